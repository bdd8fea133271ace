"""The file with quotas, quotas.yml beside broker.conf."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from congreve.broker.errors import ConfigError
from congreve.broker.quota_limits import EVERY_NAME, Kind, Limits, key_of
from congreve.engine.state.state_file import DISK, FileSystem, StateFile

FILE_NAME = "quotas.yml"
FILE_MAX = 8 << 20
"""Most bytes of the file."""

Stamp = tuple[int, int, int] | None
"""Time of change (ns), size and inode; None: there is no file."""


class Quota(NamedTuple):
    """The limits of one name; the name ``*`` stands for all names without limits of their own."""

    kind: Kind
    name: str
    limits: Limits


class QuotaFile:
    """Reads and writes quotas.yml below `folder`: kind -> name -> limits.

    RocketMQ has no such file.
    """

    def __init__(self, folder: str, files: FileSystem = DISK) -> None:
        self.path = os.path.join(folder, FILE_NAME)
        self._files = files

    def stamp(self) -> Stamp:
        """A value that changes when the file is changed, added or removed."""
        try:
            status = self._files.status(self.path)
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size, status.st_ino

    def load(self) -> list[Quota]:
        """All quotas; none without a file. Raises ConfigError for a file that cannot be used."""
        text = self._read()
        try:
            return parse_quotas(text)
        except ConfigError as error:
            raise ConfigError(f"{self.path}: {error}") from error

    def set(self, quota: Quota) -> None:
        """Add or replace a quota. Raises ConfigError or StoreError."""
        if quota.name != EVERY_NAME:
            key_of(quota.kind, quota.name)
        others = (each for each in self.load() if each[:2] != quota[:2])
        self._save([*others, quota])

    def delete(self, kind: Kind, name: str) -> None:
        """Remove a quota. Raises ConfigError if there is none, StoreError."""
        quotas = self.load()
        kept = [each for each in quotas if each[:2] != (kind, name)]
        if len(kept) == len(quotas):
            raise ConfigError(f"there is no quota for the {kind} {name}")
        self._save(kept)

    def _read(self) -> bytes:
        try:
            size = self._files.status(self.path).st_size
            if size > FILE_MAX:
                raise ConfigError(f"{self.path} has {size} bytes, {FILE_MAX} are the most")
            return self._files.read_all(self.path)
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise ConfigError(f"cannot read {self.path}: {error}") from error

    def _save(self, quotas: list[Quota]) -> None:
        tree: dict[str, dict[str, dict[str, int]]] = {}
        for kind, name, limits in sorted(quotas, key=lambda quota: quota[:2]):
            fields = {key: value for key, value in msgspec.to_builtins(limits).items() if value}
            tree.setdefault(str(kind), {})[name] = fields
        target = str(Path(self.path).resolve())  # a symbolic link stays
        StateFile(target, files=self._files).replace(msgspec.yaml.encode(tree).decode())


def parse_quotas(text: bytes) -> list[Quota]:
    """The quotas of a file's text. Raises ConfigError."""
    try:
        tree = msgspec.yaml.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ConfigError(f"no YAML: {error}") from error
    if tree is None:
        return []
    if not isinstance(tree, dict):
        raise ConfigError("not a mapping of kinds to names")
    return list(_quotas_of(tree))


def _quotas_of(tree: dict[str, Any]) -> Iterator[Quota]:
    for kind_text, names in tree.items():
        if kind_text not in set(Kind):
            raise ConfigError(f"{kind_text!r} has no quotas: use {', '.join(Kind)}")
        kind = Kind(kind_text)
        if not isinstance(names, dict):
            raise ConfigError(f"{kind} is not a mapping of names to limits")
        for name, fields in names.items():
            text = str(name)
            if text != EVERY_NAME:
                key_of(kind, text)
            yield Quota(kind, text, Limits.of(fields or {}))
