"""Whose the parts of a store are that lie outside its root: a log on another disk, linked folders.

A copy of a root still names the original's parts, and would serve them with its own queues and
offsets.
"""

import logging
import os
from dataclasses import dataclass

import msgspec

from congreve.engine.config import StoreConfig
from congreve.engine.errors import StoreError
from congreve.engine.state.checkpoint import Checkpoint
from congreve.engine.state.identity import IdentityFile
from congreve.engine.state.sealed import seal, unseal
from congreve.engine.state.state_file import DISK, FileSystem, StateFile

logger = logging.getLogger(__name__)


class PartOwner(msgspec.Struct, frozen=True, rename="camel"):
    """The store that used a part last: its id and root, and how many checkpoints it had written.

    (RocketMQ has no counterpart.)
    """

    identity: str
    root: str
    checkpoints: int


class PartOwnerFile:
    """`FOLDER.owner.json` beside a part's folder, sealed. (RocketMQ has no counterpart.)"""

    def __init__(self, folder: str, files: FileSystem = DISK) -> None:
        self.folder = folder
        self.path = f"{folder}.owner.json"
        self._file = StateFile(self.path, files=files)

    def load(self) -> PartOwner | None:
        """The owner; None without a valid file. Raises StoreError."""
        return self._file.load(lambda text: msgspec.json.decode(unseal(text), type=PartOwner))

    def replace(self, owner: PartOwner) -> None:
        """Save the owner; it is durable when this returns. Raises StoreError."""
        self._file.replace(seal(msgspec.json.encode(owner)))


@dataclass(slots=True)
class _Store:
    """The store that is being opened; without an `identity` at its first start."""

    identity: str | None
    root: str
    checkpoints: int | None


class PartOwners:
    """Refuses parts of another store, and notes beside the own ones whose they are.

    Nothing is written for a store whose parts are all in its root. (RocketMQ has no counterpart.)
    """

    def __init__(self, config: StoreConfig, files: FileSystem = DISK) -> None:
        self._config = config
        self._files = files
        self._count = StateFile(os.path.join(config.own_dir, "parts.json"), files=files)
        self._store = _Store(None, "", None)
        self._outside: list[PartOwnerFile] = []

    def check(self, identity: str | None) -> None:
        """Look at all parts before the store with this id is opened.

        Raises StoreError for a part of another store, and for one that was used with a later state
        of this store than the root holds.
        """
        root = self._files.real_path(self._config.root_dir)
        count = self._count.load(_parse_count)
        self._store = _Store(identity, root, count)
        self._outside = []
        for path in (
            self._config.commit_log_dir,
            self._config.consume_queue_dir,
            self._config.index_dir,
            self._config.config_dir,
            self._config.own_dir,
        ):
            self._check_part(PartOwnerFile(self._files.real_path(path), self._files))

    def claim(self, identity: str) -> None:
        """Note that this store uses the parts. Raises StoreError."""
        self._store.identity = identity
        self.advance()

    def advance(self) -> None:
        """Note a further checkpoint, which is on disk. Raises StoreError."""
        if not self._outside:
            return
        assert self._store.identity is not None
        count = (self._store.checkpoints or 0) + 1
        # The root first: after a kill between the two it may be ahead of its parts.
        self._count.replace(seal(msgspec.json.encode(count)))
        self._store.checkpoints = count
        owner = PartOwner(self._store.identity, self._store.root, count)
        for file in list(self._outside):
            try:
                file.replace(owner)
            except StoreError as error:
                self._outside.remove(file)
                logger.warning("nothing says that %s is of this store: %s", file.folder, error)

    def _check_part(self, file: PartOwnerFile) -> None:
        is_outside = not f"{file.folder}/".startswith(f"{self._store.root}/")
        owner = file.load()
        if owner is not None and self._is_used(file.folder):
            self._check_owner(file, owner)
        elif is_outside and self._is_used(file.folder):
            self._check_neighbours(file.folder)
        if is_outside:
            self._outside.append(file)

    def _is_used(self, folder: str) -> bool:
        return self._files.is_folder(folder) and bool(self._files.entries(folder))

    def _check_owner(self, file: PartOwnerFile, owner: PartOwner) -> None:
        mine = self._store
        cure = f"or remove {file.path} to use it nevertheless"
        if self._is_other_root(owner):
            raise StoreError(
                f"{file.folder} belongs to the store in {owner.root}, not to {mine.root}: start"
                f" that store, let storePathCommitLog and links name this store's own parts, {cure}"
            )
        if owner.identity != mine.identity:
            if mine.identity is not None or self._is_used(self._config.consume_queue_dir):
                raise StoreError(
                    f"{file.folder} belongs to another store, which was in {owner.root}:"
                    f" restore that store as a whole, {cure}"
                )
        elif mine.checkpoints is not None and owner.checkpoints > mine.checkpoints + 1:
            raise StoreError(
                f"{file.folder} was used with a later state of this store than {mine.root} holds:"
                f" restore both from the same backup, {cure}, with the older queues and offsets"
            )

    def _is_other_root(self, owner: PartOwner) -> bool:
        """Whether the owner is still there, in another folder than this store."""
        files, root = self._files, self._store.root
        if not files.is_folder(owner.root) or self._is_same_folder(owner.root, root):
            return False
        own_dir = os.path.join(owner.root, os.path.basename(self._config.own_dir))
        return IdentityFile(own_dir, files=files, read_only=True).load() == owner.identity

    def _is_same_folder(self, path: str, other: str) -> bool:
        one, two = self._files.status(path), self._files.status(other)
        return (one.st_dev, one.st_ino) == (two.st_dev, two.st_ino)

    def _check_neighbours(self, folder: str) -> None:
        """Refuse a part that lies in the root of another store, which has used it since this one.

        A root that was moved away from its log has used the log since.
        """
        parent = os.path.dirname(folder)
        queues = os.path.join(parent, os.path.basename(self._config.consume_queue_dir))
        if not self._files.is_folder(queues):
            return
        name = os.path.basename(self._config.checkpoint_path)
        theirs = Checkpoint(os.path.join(parent, name), self._files)
        ours = Checkpoint(self._config.checkpoint_path, self._files)
        theirs.load()
        ours.load()
        if theirs.physic_msg_timestamp >= ours.physic_msg_timestamp:
            raise StoreError(
                f"{folder} is a part of the store in {parent}, not of {self._store.root}: let"
                " storePathCommitLog and links name this store's own parts, or start the broker"
                f" with storePathRootDir={parent}"
            )


def _parse_count(text: str) -> int:
    return msgspec.json.decode(unseal(text), type=int)
