"""What a clean stop left beside the log, by which the next start knows files of another store.

Topics, offsets and times of another store, or of another moment of this one, are valid files: only
their content says that they do not fit this log.
"""

import os
import zlib

import msgspec

from congreve.engine.config import StoreConfig
from congreve.engine.errors import StoreError
from congreve.engine.state.sealed import seal, unseal
from congreve.engine.state.state_file import DISK, FileSystem, StateFile

_MEANINGS = {
    "config/topics.json": "topics may lack queues that have messages, or have other permissions",
    "config/subscriptionGroup.json": "groups may have other settings",
    "config/consumerOffset.json": "groups may skip messages, or get them again",
    "config/delayOffset.json": "delayed messages may come again, or not at all",
    "checkpoint": "RocketMQ may begin its recovery at a wrong place",
}
"""The files below the store's root, and what follows if one is of another store."""


class LeftFiles(msgspec.Struct, frozen=True, rename="camel"):
    """The end of the log, and the CRC-32 of each file that there was, by its path.

    (RocketMQ has no counterpart.)
    """

    log_end: int
    files: dict[str, int]


class LeftFilesFile:
    """`ROOT/congreve/left-files.json`, sealed: what the last clean stop left.

    (RocketMQ has no counterpart.)
    """

    def __init__(
        self, config: StoreConfig, files: FileSystem = DISK, *, read_only: bool = False
    ) -> None:
        self._root = config.root_dir
        self._disk = files
        path = os.path.join(config.own_dir, "left-files.json")
        self._file = StateFile(path, files=files, read_only=read_only)

    def save(self, log_end: int) -> None:
        """Note the files as they are, and the end of the log. Raises StoreError."""
        left = LeftFiles(log_end, self._present())
        self._file.replace(seal(msgspec.json.encode(left)))

    def changes(self, log_end: int | None = None) -> list[str]:
        """What differs after a clean stop: sentences; with `log_end` one for a log that goes on.

        Raises StoreError.
        """
        left = self._file.load(_parse)
        if left is None:
            return []
        present = self._present()
        changed = [name for name in _MEANINGS if left.files.get(name) != present.get(name)]
        more = 0 if log_end is None else log_end - left.log_end
        if changed and more > 0:
            return [
                f"another program has used {self._root} since the last clean stop: its log is"
                f" {more} bytes longer, and {', '.join(changed)} changed"
            ]
        found = [
            f"{os.path.join(self._root, name)} is not what the last clean stop left: if it was not"
            f" edited but is of another store or moment, {_MEANINGS[name]}"
            for name in changed
        ]
        if more < 0:
            found.append(
                f"the log of {self._root} has {-more} bytes fewer than at the last clean stop: if"
                " it is of another moment, groups may skip messages"
            )
        return found

    def _present(self) -> dict[str, int]:
        found = {}
        for name in _MEANINGS:
            path = os.path.join(self._root, name)
            try:
                found[name] = zlib.crc32(self._disk.read_all(path))
            except FileNotFoundError:
                continue
            except OSError as error:
                raise StoreError(f"cannot read {path}: {error.strerror}") from error
        return found


def _parse(text: str) -> LeftFiles:
    return msgspec.json.decode(unseal(text), type=LeftFiles)
