"""The physical offset up to which an elected group has its log: its members write it, what reads a
member's files ends there."""

import errno
import os

import msgspec

from congreve.engine.errors import StoreError
from congreve.engine.state.sealed import seal, unseal
from congreve.engine.state.state_file import DISK, FileSystem, StateFile

CONFIRMED_FILE = "confirmed.json"


class ConfirmedFile:
    """`ROOT/congreve/confirmed.json`, sealed. Every later master has the log before this offset."""

    def __init__(self, own_dir: str, *, files: FileSystem = DISK, read_only: bool = False) -> None:
        path = os.path.join(own_dir, CONFIRMED_FILE)
        self._disk = files
        self._file = StateFile(path, files=files, read_only=read_only)

    def load(self) -> int:
        """The saved offset; 0 without a valid file. Raises StoreError."""
        return self.find() or 0

    def find(self) -> int | None:
        """The saved offset, 0 if the file is damaged; None without a file: the store is not that
        of an elected group. Raises StoreError."""
        found = self._file.load(confirmed_in)
        return 0 if found is None and self._file.was_damaged else found

    def remove(self) -> None:
        """Remove the file: the store is not an elected group's any more. Raises StoreError."""
        for path in (self._file.path, self._file.backup_path):
            try:
                self._disk.remove(path)
            except OSError as error:
                if error.errno != errno.ENOENT:
                    raise StoreError(f"cannot remove {path}: {error.strerror}") from error

    def replace(self, offset: int) -> None:
        """Save the offset; it is durable when this returns. Raises StoreError."""
        self._file.replace(seal(msgspec.json.encode(offset)))


def confirmed_in(text: str) -> int:
    """The offset in the text of the file. Raises ValueError or msgspec's errors."""
    return msgspec.json.decode(unseal(text), type=int)
