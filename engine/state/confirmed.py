"""The physical offset up to which a group has its master's log: the master writes it, an exporter
reads it."""

import os

import msgspec

from congreve.engine.state.sealed import seal, unseal
from congreve.engine.state.state_file import DISK, FileSystem, StateFile


class ConfirmedFile:
    """`ROOT/congreve/confirmed.json`, sealed. Every later master has the log before this offset."""

    def __init__(self, own_dir: str, *, files: FileSystem = DISK, read_only: bool = False) -> None:
        path = os.path.join(own_dir, "confirmed.json")
        self._file = StateFile(path, files=files, read_only=read_only)

    def load(self) -> int:
        """The saved offset; 0 without a valid file. Raises StoreError."""
        return self._file.load(_parse) or 0

    def replace(self, offset: int) -> None:
        """Save the offset; it is durable when this returns. Raises StoreError."""
        self._file.replace(seal(msgspec.json.encode(offset)))


def _parse(text: str) -> int:
    return msgspec.json.decode(unseal(text), type=int)
