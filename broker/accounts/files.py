"""The files with accounts: plain_acl.yml, and all .yml and .yaml files below acl/ beside it.

They are read as RocketMQ reads them. What administrators change is written to the file that has
the account, with mode 0600. (RocketMQ: PlainPermissionManager, AclUtils.)
"""

import logging
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from congreve.base.clock import Clock
from congreve.broker.accounts.accounts import (
    KEY_MIN,
    PERM_TEXTS,
    Account,
    Accounts,
    Grant,
    Kind,
    Perm,
)
from congreve.broker.accounts.addresses import AddressPattern
from congreve.broker.errors import ConfigError
from congreve.engine.state.state_file import DISK, SECRET_MODE, FileSystem, StateFile
from congreve.records.message.topics import RETRY_PREFIX
from congreve.remoting.messages.admin_bodies import DISABLED, AclConfig, PlainAccessConfig
from congreve.remoting.messages.bodies import DataVersion

logger = logging.getLogger(__name__)

DEFAULT_FILE = "plain_acl.yml"
FURTHER_FOLDER = "acl"
FILE_MAX = 8 << 20
"""Most bytes of one file."""
DEPTH_MAX = 8
"""Folders within each other below acl/."""

ANY = "*"
"""At the end of a name: all names that begin so."""
AT = "@"
"""Between a permission and the addresses from which it holds."""
_ACCOUNTS, _WHITE, _VERSION = "accounts", "globalWhiteRemoteAddresses", "dataVersion"

_FIELDS = frozenset(PlainAccessConfig.__struct_encode_fields__)

Stamp = tuple[tuple[str, int, int, int], ...]
"""Path, time of change (ns), size and inode of each file."""


class AccountFiles:
    """Reads and writes the files below `folder`; one thread at a time may call it.

    (RocketMQ: PlainPermissionManager.)
    """

    def __init__(self, folder: str, clock: Clock, files: FileSystem = DISK) -> None:
        self.default_path = os.path.join(folder, DEFAULT_FILE)
        self._further = os.path.join(folder, FURTHER_FOLDER)
        self._clock = clock
        self._files = files
        self.versions: dict[str, DataVersion] = {}
        """The data version of each file, by its path, as loaded."""
        self._configs: dict[str, PlainAccessConfig] = {}
        self._paths: dict[str, str] = {}
        self._white: list[str] = []

    def stamp(self) -> Stamp:
        """A value that changes when a file is changed, added or removed."""
        found = []
        for path in self._all_paths():
            try:
                status = self._files.status(path)
            except OSError:
                continue
            found.append((path, status.st_mtime_ns, status.st_size, status.st_ino))
        return tuple(found)

    def load(self) -> Accounts:
        """Read all files. Raises ConfigError, and keeps the loaded accounts, if one cannot be
        used."""
        versions: dict[str, DataVersion] = {}
        configs: dict[str, PlainAccessConfig] = {}
        paths: dict[str, str] = {}
        white: list[str] = []
        for path in self._all_paths():
            tree = self._read(path)
            versions[path] = _version_of(tree)
            white += _texts(tree, _WHITE, path)
            for config in _configs_of(tree, path):
                if config.access_key in configs:
                    logger.warning(
                        "%s: %s has this accessKey, too: the first one counts: %s",
                        *(path, paths[config.access_key], config.access_key),
                    )
                    continue
                configs[config.access_key] = config
                paths[config.access_key] = path
        by_key = {
            key: account_of(config) for key, config in configs.items() if config.status != DISABLED
        }
        patterns = tuple(AddressPattern.parse(text) for text in white)
        self.versions, self._configs, self._paths, self._white = versions, configs, paths, white
        return Accounts(by_key=by_key, white_addresses=patterns)

    def load_for_start(self) -> Accounts:
        """Read all files, as load(). Raises ConfigError, too, if no request could pass."""
        found = self.load()
        if not found.by_key and not found.white_addresses:
            raise ConfigError(
                f"aclEnable=true, but there is no account: make one in {self.default_path}, "
                "for example with `congreve user add`"
            )
        return found

    def without_secrets(self) -> AclConfig:
        """All accounts and white addresses as loaded, without secrets."""
        shown = [msgspec.structs.replace(each, secret_key=None) for each in self._configs.values()]
        return AclConfig(global_white_addrs=self._white, plain_access_configs=shown)

    # --- changes

    def update(self, wanted: PlainAccessConfig) -> None:
        """Create an account, or change what is not None in `wanted`, and `admin`.

        Raises ConfigError for what is not allowed, StoreError when the file cannot be written.
        """

        def merged(old: PlainAccessConfig | None) -> PlainAccessConfig:
            found = wanted if old is None else msgspec.structs.replace(old, **_set_in(wanted))
            account_of(found)
            for text in (*(wanted.topic_perms or ()), *(wanted.group_perms or ())):
                _check_perm(text.partition("=")[2])
            for default in (wanted.default_topic_perm, wanted.default_group_perm):
                if (default or "DENY").strip() not in PERM_TEXTS:
                    raise ConfigError(
                        f"{default!r} is not a permission: use {', '.join(PERM_TEXTS)}"
                    )
            return found

        self.change(wanted.access_key, merged)

    def change(
        self,
        access_key: str,
        edit: Callable[[PlainAccessConfig | None], PlainAccessConfig | None],
    ) -> None:
        """Replace an account by what `edit` makes of it; None is no account.

        Raises ConfigError for what is not allowed, StoreError when the file cannot be written.
        """
        path = self._paths.get(access_key, self.default_path)
        tree = self._read(path)
        entries = _entries(tree, path)
        at = next((i for i, e in enumerate(entries) if _key_of(e) == access_key), len(entries))
        old = entries[at] if at < len(entries) else None
        found = edit(None if old is None else _config_of(old, path))
        if found is None:
            if old is None:
                return
            tree[_ACCOUNTS] = [e for e in entries if _key_of(e) != access_key]
        else:
            account_of(found)
            known = {name: value for name, value in (old or {}).items() if name not in _FIELDS}
            entries[at : at + 1] = [known | _fields_of(found)]
            tree[_ACCOUNTS] = entries
        self._write(path, tree)

    def delete(self, access_key: str) -> None:
        """Remove an account. Raises ConfigError for an unknown one, StoreError."""
        if access_key not in self._paths:
            raise ConfigError(f"there is no account with accessKey={access_key}")
        self.change(access_key, lambda _: None)

    def set_white_addresses(self, patterns: list[str], path: str | None = None) -> None:
        """Replace a file's global white addresses; `path` is one of `versions`, or the default.

        Raises ConfigError for a bad pattern or another file, StoreError.
        """
        path = path or self.default_path
        if path != self.default_path and path not in self.versions:
            raise ConfigError(f"{path} is not an account file of this broker")
        for pattern in patterns:
            AddressPattern.parse(pattern)
        tree = self._read(path)
        tree[_WHITE] = patterns
        self._write(path, tree)

    # --- files

    def _all_paths(self) -> list[str]:
        paths = sorted(self._yaml_files(self._further, DEPTH_MAX))
        if self._files.exists(self.default_path):
            paths.append(self.default_path)
        return paths

    def _yaml_files(self, folder: str, depth: int) -> Iterator[str]:
        if depth == 0 or not self._files.is_folder(folder):
            return
        try:
            entries = self._files.entries(folder)
        except OSError as error:
            raise ConfigError(f"cannot read {folder}: {error.strerror}") from error
        for entry in entries:
            if entry.name.startswith("."):
                continue  # Kubernetes keeps the versions of mounted files in hidden folders
            if entry.is_dir():
                yield from self._yaml_files(entry.path, depth - 1)
            elif entry.name.endswith((".yml", ".yaml")):
                yield entry.path

    def _read(self, path: str) -> dict[str, Any]:
        try:
            size = self._files.status(path).st_size
            if size > FILE_MAX:
                raise ConfigError(f"{path} has {size} bytes, {FILE_MAX} are the most")
            tree = msgspec.yaml.decode(self._files.read_all(path))
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise ConfigError(f"cannot read {path}: {error}") from error
        if tree is None:
            return {}
        if not isinstance(tree, dict):
            raise ConfigError(f"{path} is not a mapping of keys to values")
        return tree

    def _write(self, path: str, tree: dict[str, Any]) -> None:
        version = _version_of(tree)
        newer = {"counter": version.counter + 1, "timestamp": self._clock.now()}
        tree[_VERSION] = [newer]
        target = str(Path(path).resolve())  # a symbolic link stays
        StateFile(target, files=self._files, secret=True).replace(
            msgspec.yaml.encode(tree).decode()
        )

    def warn_of_readers(self) -> None:
        """Log the files that others than their owner may read."""
        for path in self._all_paths():
            mode = self._files.status(path).st_mode & 0o777
            if mode & ~SECRET_MODE:
                logger.warning("%s has secrets and mode %o: use 600", path, mode)


# --- accounts from a file's tree


def account_of(config: PlainAccessConfig) -> Account:
    """The account that a file describes. Raises ConfigError."""
    for name, text in (("accessKey", config.access_key), ("secretKey", config.secret_key)):
        if len(text or "") < KEY_MIN:
            raise ConfigError(
                f"accessKey={config.access_key}: {name} has fewer than {KEY_MIN} characters"
            )
    tables: dict[Kind, dict[str, Perm]] = {Kind.TOPIC: {}, Kind.GROUP: {}}
    grants: list[Grant] = []
    for kind, texts in ((Kind.TOPIC, config.topic_perms), (Kind.GROUP, config.group_perms)):
        for text in texts or ():
            name, equals, perm = (part.strip() for part in text.partition("="))
            if not equals or not name or "=" in perm:
                raise ConfigError(
                    f"accessKey={config.access_key}: {text!r} is not a permission: use name=PUB|SUB"
                )
            of = Kind.GROUP if name.startswith(RETRY_PREFIX) else kind
            name = name.removeprefix(RETRY_PREFIX)
            perm, at, sources = perm.partition(AT)
            if not at and not name.endswith(ANY):
                tables[of][name] = _perm(perm)
                continue
            grants.append(
                Grant(
                    *(of, name.removesuffix(ANY), name.endswith(ANY), _perm(perm)),
                    AddressPattern.parse(sources) if at else None,
                )
            )
    return Account(
        access_key=config.access_key,
        secret_key=config.secret_key or "",
        white_addresses=AddressPattern.parse(config.white_remote_address or ""),
        admin=config.admin,
        default_topic_perm=_perm(config.default_topic_perm or ""),
        default_group_perm=_perm(config.default_group_perm or ""),
        topics=tables[Kind.TOPIC],
        groups=tables[Kind.GROUP],
        grants=tuple(sorted(grants, key=lambda grant: (grant.is_prefix, -len(grant.name)))),
    )


def _perm(text: str) -> Perm:
    return PERM_TEXTS.get(text.strip(), Perm.DENY)


def _check_perm(text: str) -> None:
    if text.partition(AT)[0].strip() not in PERM_TEXTS:
        raise ConfigError(f"{text!r} is not a permission: use {', '.join(PERM_TEXTS)}")


def _configs_of(tree: dict[str, Any], path: str) -> Iterable[PlainAccessConfig]:
    return (_config_of(entry, path) for entry in _entries(tree, path))


def _config_of(entry: dict[str, Any], path: str) -> PlainAccessConfig:
    return PlainAccessConfig(
        access_key=_text(entry, "accessKey") or "",
        secret_key=_text(entry, "secretKey"),
        white_remote_address=_text(entry, "whiteRemoteAddress"),
        admin=(_text(entry, "admin") or "").lower() == "true",
        default_topic_perm=_text(entry, "defaultTopicPerm"),
        default_group_perm=_text(entry, "defaultGroupPerm"),
        topic_perms=_texts(entry, "topicPerms", path) or None,
        group_perms=_texts(entry, "groupPerms", path) or None,
        status=_text(entry, "status"),
    )


def _set_in(config: PlainAccessConfig) -> dict[str, Any]:
    """What is set in `config`, and `admin`."""
    values = msgspec.structs.asdict(config)
    return {name: value for name, value in values.items() if value not in (None, [])}


def _fields_of(config: PlainAccessConfig) -> dict[str, object]:
    fields = msgspec.to_builtins(config)
    return {name: value for name, value in fields.items() if value not in (None, [])}


def _entries(tree: dict[str, Any], path: str) -> list[dict[str, Any]]:
    entries = tree.get(_ACCOUNTS) or []
    if not isinstance(entries, list) or not all(isinstance(each, dict) for each in entries):
        raise ConfigError(f"{path}: {_ACCOUNTS} is not a list of accounts")
    return entries


def _key_of(entry: dict[str, Any]) -> str | None:
    return _text(entry, "accessKey")


def _text(entry: dict[str, Any], name: str) -> str | None:
    """A scalar as text: a secret of digits is a number in YAML."""
    value = entry.get(name)
    return None if value is None else str(value)


def _texts(tree: dict[str, Any], name: str, path: str) -> list[str]:
    values = tree.get(name) or []
    if not isinstance(values, list):
        raise ConfigError(f"{path}: {name} is not a list")
    return [str(value) for value in values]


def _version_of(tree: dict[str, Any]) -> DataVersion:
    try:
        return msgspec.convert(tree[_VERSION][0], DataVersion, strict=False)
    except (KeyError, IndexError, TypeError, msgspec.ValidationError):
        return DataVersion()
