"""Numbers that are kept at once, for the price of a store into memory."""

import mmap
import os
import struct

from congreve.engine.errors import StoreError

_HEAD = b"CGRVPRG1"
_NUMBER = struct.Struct("<q")


class Progress:
    """Rows of numbers in a small shared mapping.

    They survive a killed process, but are never synced: after a power cut the file may be newer
    than the log. So each row names the log's end that it speaks of, and is believed only where
    the log still reaches there. What must be certain is kept in a state file besides.
    """

    def __init__(self, path: str, *, rows: int, columns: int) -> None:
        self._path = path
        self._rows = rows
        self._columns = columns
        self._map: mmap.mmap | None = None

    def open(self, log_end: int) -> dict[int, tuple[int, ...]]:
        """The rows that a log of this end lets one believe; StoreError."""
        size = len(_HEAD) + self._rows * self._row_size
        try:
            os.makedirs(os.path.dirname(self._path), exist_ok=True)
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                old = os.fstat(descriptor).st_size
                os.ftruncate(descriptor, size)
                self._map = mmap.mmap(descriptor, size)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise StoreError(f"cannot open {self._path}: {error.strerror}") from error
        if old != size or self._map[: len(_HEAD)] != _HEAD:
            self._map[:] = _HEAD + bytes(size - len(_HEAD))
        rows = {row: self._read(row) for row in range(self._rows)}
        return {row: found[1:] for row, found in rows.items() if 0 < found[0] <= log_end}

    def note(self, row: int, values: tuple[int, ...], log_end: int) -> None:
        """Replace a row; ignored where there are not so many rows, and before open()."""
        if self._map is None or row >= self._rows:
            return
        at = self._at(row)
        # The end goes first: a row cut off in the middle of this is disbelieved sooner.
        for number in (log_end, *values):
            _NUMBER.pack_into(self._map, at, number)
            at += _NUMBER.size

    def close(self) -> None:
        """Idempotent."""
        if self._map is not None:
            self._map.close()
            self._map = None

    @property
    def _row_size(self) -> int:
        return (1 + self._columns) * _NUMBER.size

    def _at(self, row: int) -> int:
        return len(_HEAD) + row * self._row_size

    def _read(self, row: int) -> tuple[int, ...]:
        assert self._map is not None
        return struct.unpack_from(f"<{1 + self._columns}q", self._map, self._at(row))
