"""A state file with a journal of the changes that came after its text was written.

A change then costs one small write, however large the table is. The journal belongs to one text of
the file, by checksum. It is ignored if another broker has written the file, or if it was not
removed after the file was written.
"""

import logging
import os
import zlib
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

import msgspec

from congreve.engine.errors import StoreError
from congreve.engine.state.state_file import File, FileSystem, StateFile

logger = logging.getLogger(__name__)

E = TypeVar("E")

JOURNAL_MAX = 4 << 20
"""Bytes of the journal, after which the whole file is written instead."""
_CRC_DIGITS = 8


class JournaledFile(Generic[E]):
    """A StateFile and its journal, of which each line is an entry of type `entry`, as JSON.

    One thread at a time may use it.
    """

    def __init__(self, path: str, journal_path: str, entry: type[E], files: FileSystem) -> None:
        self.path = path
        self.journal_path = journal_path
        self._files = files
        self._file = StateFile(path, files=files)
        self._entry = entry
        self._base = 0  # checksum of the file's text, 0 without a file
        self._size = 0  # bytes of the journal
        self._journal: File | None = None
        self._may_append = True

    @property
    def has_entries(self) -> bool:
        """Whether this process has appended entries since it wrote the file."""
        return self._journal is not None

    @property
    def wants_replace(self) -> bool:
        """Whether the next change must write the whole file: append() may not be called."""
        return not self._may_append or self._size > JOURNAL_MAX

    def load(self, parse: Callable[[str], object], replay: Callable[[E], None]) -> bool:
        """Read the file with `parse`, then its journal; returns whether there was a file.

        Raises StoreError when the file cannot be used.
        """

        def parse_text(text: str) -> bool:
            parse(text)
            self._base = zlib.crc32(text.encode())
            return True

        found = self._file.load(parse_text) is not None
        whole = self._file.source == self.path
        if not whole:
            self._base = 0
        try:
            data = self._files.read_all(self.journal_path)
        except FileNotFoundError:
            return found
        except OSError as error:
            logger.error("%s cannot be read: %s", self.journal_path, error.strerror)
            data = b""
        self._may_append = False
        lines, unusable = read_journal(data, self._entry)
        if unusable:
            logger.error("%s is damaged: ignoring %d of its lines", self.journal_path, unusable)
        for base, entry in lines:
            if base == self._base or not whole:
                replay(entry)
        return found

    def append(self, entry: E) -> None:
        """Append an entry; it is durable when this returns.

        Raises StoreError when that fails; then the whole file must be written.
        """
        try:
            self._append(entry)
        except (OSError, ValueError) as error:  # ValueError: JSON cannot hold it
            self.distrust_journal()
            why = error.strerror if isinstance(error, OSError) else error
            raise StoreError(f"cannot write {self.journal_path}: {why}") from error

    def replace(self, text: str) -> None:
        """Write the whole file; the journal is empty then. Raises StoreError when that fails."""
        self._file.replace(text)
        self._base = zlib.crc32(text.encode())
        self.close()
        # If it reappears after a power cut, it belongs to another text.
        with suppress(OSError):
            self._files.remove(self.journal_path)
        self._size = 0
        self._may_append = True

    def distrust_journal(self) -> None:
        """Let the next change write the whole file."""
        self._may_append = False
        self.close()

    def close(self) -> None:
        """Close the journal. Idempotent."""
        if self._journal is not None:
            self._journal.close()
            self._journal = None

    def _append(self, entry: E) -> None:
        value = msgspec.json.encode((self._base, entry))
        data = b"%08x%s\n" % (zlib.crc32(value), value)
        if self._journal is None:
            folder = os.path.dirname(self.journal_path)
            self._files.make_folder(folder)
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
            self._journal = self._files.open(self.journal_path, flags)
            self._files.sync_folder(folder)
            self._size = 0
        self._files.write(self._journal, data, self._size)
        self._files.sync_data(self._journal)
        self._size += len(data)


def read_journal(data: bytes, entry: type[E]) -> tuple[list[tuple[int, E]], int]:
    """The lines of a journal (checksum of the text, entry), and the number of damaged lines."""
    line_type: type[tuple[int, E]] = tuple[int, entry]  # type: ignore[valid-type]
    read: list[tuple[int, E]] = []
    *lines, _ = data.split(b"\n")  # a torn line at the end was not acknowledged
    for line in lines:
        crc, value = line[:_CRC_DIGITS], line[_CRC_DIGITS:]
        if crc == b"%08x" % zlib.crc32(value):
            # Lines of another version may have another format.
            with suppress(msgspec.MsgspecError):
                read.append(msgspec.json.decode(value, type=line_type))
    return read, len(lines) - len(read)
