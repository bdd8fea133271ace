"""consumerOffset.json, and a journal of the offsets that were acknowledged after it was written.

The reference writes consumerOffset.json every five seconds. An acknowledged offset must survive a
kill before that. The broker appends it to a journal, one small write for many offsets, instead of
writing the whole file. The journal belongs to one text of the file, by checksum. It is ignored if
another broker has written the file, or if it was not removed after the file was written.
"""

import logging
import os
import threading
import zlib
from contextlib import suppress

import msgspec

from congreve.broker.metadata.offsets import Acknowledged, ConsumerOffsetManager, Line
from congreve.engine.errors import StoreError
from congreve.engine.state.state_file import DISK, File, FileSystem, StateFile

logger = logging.getLogger(__name__)

JOURNAL_MAX = 4 << 20
"""Bytes of the journal, after which the whole file is written instead."""
_CRC_DIGITS = 8


class OffsetFile:
    """Loads and saves a ConsumerOffsetManager; any thread may call append() and replace()."""

    def __init__(
        self,
        path: str,
        journal_path: str,
        offsets: ConsumerOffsetManager,
        files: FileSystem = DISK,
    ) -> None:
        self.path = path
        self._files = files
        self._file = StateFile(path, files=files)
        self.journal_path = journal_path
        self._offsets = offsets
        self._lock = threading.Lock()
        self._base = 0  # checksum of the file's text, 0 without a file
        self._size = 0  # bytes of the journal
        self._journal: File | None = None
        self._may_append = True

    def load(self) -> None:
        """Read the file, and its journal. Raises StoreError when the file cannot be used."""
        self._file.load(self._parse)
        if self._file.source != self.path:
            self._base = 0
        try:
            data = self._files.read_all(self.journal_path)
        except FileNotFoundError:
            return
        except OSError as error:
            logger.error("%s cannot be read: %s", self.journal_path, error.strerror)
            data = b""
        self._may_append = False
        whole = self._file.source == self.path
        batches, unusable = _read_journal(data)
        if unusable:
            logger.error("%s is damaged: ignoring %d of its lines", self.journal_path, unusable)
        for base, lines in batches:
            if base == self._base or not whole:
                self._offsets.replay(lines)

    def append(self, acknowledged: Acknowledged) -> None:
        """Write these offsets to disk. Raises StoreError when that fails."""
        with self._lock:
            lines = self._offsets.lines(acknowledged)
            if not lines:
                return
            if not self._may_append or self._size > JOURNAL_MAX:
                self._replace()
                return
            try:
                self._append(lines)
            except OSError as error:
                self._may_append = False
                self._close()
                raise StoreError(f"cannot write {self.journal_path}: {error.strerror}") from error

    def replace(self) -> None:
        """Write all offsets to consumerOffset.json. Raises StoreError when that fails."""
        with self._lock:
            self._replace()

    def close(self) -> None:
        """Close the journal. Idempotent."""
        with self._lock:
            self._close()

    def _parse(self, text: str) -> bool:
        self._offsets.load(text)
        self._base = zlib.crc32(text.encode())
        return True

    def _replace(self) -> None:
        text = self._offsets.file_text()
        self._file.replace(text)
        self._base = zlib.crc32(text.encode())
        self._close()
        # If it reappears after a power cut, it belongs to another text.
        with suppress(OSError):
            self._files.remove(self.journal_path)
        self._may_append = True

    def _append(self, lines: list[Line]) -> None:
        value = msgspec.json.encode((self._base, lines))
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

    def _close(self) -> None:
        if self._journal is not None:
            self._journal.close()
            self._journal = None


def _read_journal(data: bytes) -> tuple[list[tuple[int, list[Line]]], int]:
    """The writes of a journal: checksum of their text and lines; and the number of damaged ones."""
    batches: list[tuple[int, list[Line]]] = []
    *writes, _ = data.split(b"\n")  # a torn write at the end was not acknowledged
    for write in writes:
        crc, value = write[:_CRC_DIGITS], write[_CRC_DIGITS:]
        if crc == b"%08x" % zlib.crc32(value):
            # Lines of another version may have another format.
            with suppress(msgspec.MsgspecError):
                batches.append(msgspec.json.decode(value, type=tuple[int, list[Line]]))
    return batches, len(writes) - len(batches)
