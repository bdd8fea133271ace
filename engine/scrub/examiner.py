"""Reads of the log from its files: what is damaged there, and whole records for a peer."""

import errno
import os
from collections.abc import Iterator
from typing import NamedTuple

from congreve.engine.log.commit_log import CommitLog
from congreve.engine.log.named_record import NamedRecord
from congreve.engine.recovery import scan
from congreve.engine.recovery.scan import LogScanner
from congreve.engine.scrub.damage import Damage
from congreve.io_backends.backend import Segment
from congreve.io_backends.files.file_system import DISK, File, FileSystem
from congreve.io_backends.pages import is_in_memory, retire

PIECE = 256 << 10
"""Bytes of one read."""
SEARCHED = 16 << 20
"""Bytes of one read in the search for the next whole record behind damage."""
WHOLE_MAX = 32 << 20
"""A longer record is not fetched from another log."""
PAGE = 4096


class Step(NamedTuple):
    """What one step has read, in bytes, up to which physical offset, and damage in it."""

    read: int
    end: int
    damage: Damage | None = None


class LogExaminer:
    """Checks each record of a log as its file has it: place, lengths and the CRC of the body.

    It reads the files, not the memory of the segments: a sector that the disk cannot read is damage
    then, and no failure of the store. No part of a header but its lengths, its magic and its place
    has a check in RocketMQ's format, and neither have properties. Any thread may use it.
    """

    def __init__(self, log: CommitLog, files: FileSystem = DISK) -> None:
        self._log = log
        self._files = files

    @property
    def end(self) -> int:
        """The end of what is on disk, and confirmed in an elected group."""
        return min(self._log.backend.durable_offset, self._log.shown_end)

    def steps(self, begin: int, end: int) -> Iterator[Step]:
        """Check the records of [begin, end), step by step; one begins at `begin`.

        Raises OSError for a file that cannot be opened.
        """
        for segment in self._log.segments:
            base = segment.base_offset
            if base < end and begin < base + segment.size:
                try:
                    yield from self._of_segment(segment, max(begin, base), end)
                except FileNotFoundError:
                    continue  # it has expired

    def _of_segment(self, segment: Segment, position: int, end: int) -> Iterator[Step]:
        scanner = LogScanner(grows=True)
        base, wanted, whole = segment.base_offset, PIECE, -1
        segment_end = base + segment.size
        end = min(end, segment_end)
        with self._files.open(segment.path, os.O_RDONLY) as file:
            while position < end:
                wanted = min(wanted, segment_end - position)
                start = position - base
                cold = not is_in_memory(segment, start, start + wanted)
                data = self.read(file, wanted, start)
                stop = min(end, position + len(data))
                why = scanner.scan(data, position, position, stop)
                bad = scanner.position
                if bad > position:
                    whole = scanner.last_record
                if cold:
                    retire(segment, start, start + wanted)
                yield Step(bad - position, bad)
                head = data[bad - position :]
                if why == scan.LIMIT:
                    position, wanted = bad, PIECE
                    continue
                size = scanner.claimed_size(head, segment_end - bad)
                if why == scan.BLANK and bad + size == segment_end:
                    return
                if bad + len(head) < min(bad + size, segment_end):
                    position, wanted = bad, max(PIECE, size)  # it goes on behind what was read
                    continue
                if bad + size > end:
                    return  # it is not on disk yet
                position, wanted = self._end_of_damage(file, segment, head, bad, end), PIECE
                yield Step(
                    position - bad,
                    position,
                    Damage(bad, position, segment.path, self._beside(whole, position, end)),
                )

    def _end_of_damage(self, file: File, segment: Segment, head: bytes, bad: int, end: int) -> int:
        """Where the log goes on: at the next record if only the body is damaged, else at the first
        whole one."""
        scanner, base = LogScanner(grows=True), segment.base_offset
        if scanner.pass_body(head, bad, bad):
            return scanner.position
        position = bad + 1
        while position < end:
            data = self.read(file, min(SEARCHED, base + segment.size - position), position - base)
            found = scanner.resync(data, position, position)
            if found is not None:
                return min(found, end)
            position += max(SEARCHED // 2, 1)  # a record may go on behind what was read
        return end

    def _beside(self, before: int, behind: int, end: int) -> NamedRecord | None:
        """A whole record beside damage: the one before it, or else the one behind it.

        Without one, the header of a damaged record behind it may do (NamedRecord.is_same).
        """
        log = self._log
        if before >= 0:
            return log.named_record(before)
        header = log.named_record(behind) if behind < end else None
        if header is not None and log.read(behind) is not None:
            return header
        return log.newest_record() or header

    def whole_records(self, begin: int, end: int, most: int) -> bytes:
        """The whole records from `begin` on that end at or before `end`, about `most` bytes.

        The blank at the end of a segment counts as one. Empty if there is none, or if this log is
        damaged there, too. Raises OSError.
        """
        segment = self._log.segment_at(begin)
        end = min(end, self.end)
        if segment is None or begin >= end:
            return b""
        base, segment_end = segment.base_offset, segment.base_offset + segment.size
        end = min(end, segment_end)
        scanner = LogScanner(grows=True)
        with self._files.open(segment.path, os.O_RDONLY) as file:
            data = self.read(file, min(max(most, PAGE), segment_end - begin), begin - base)
            size = scanner.claimed_size(data, segment_end - begin)
            if len(data) < size <= WHOLE_MAX:
                data = self.read(file, size, begin - base)
        why = scanner.scan(data, begin, begin, min(end, begin + len(data)))
        if why == scan.BLANK and scanner.position == begin:
            return data[:size] if begin + size == segment_end and len(data) >= size else b""
        return data[: scanner.position - begin] if scanner.position <= end else b""

    def end_of_damage_at(self, begin: int, end: int) -> int | None:
        """Where whole records go on, `end` at the latest, if the one at `begin` is damaged.

        None without damage there. Raises OSError.
        """
        for step in self.steps(begin, min(end, self.end)):
            if step.damage is not None:
                return step.end if step.damage.begin == begin else None
        return None

    def read(self, file: File, size: int, at: int) -> bytes:
        """`size` bytes of a file; zeros for a page that the disk cannot read, or does not have."""
        try:
            return self._files.read(file, size, at).ljust(size, b"\0")
        except OSError as error:
            if error.errno != errno.EIO:
                raise
        pieces = []
        while size > 0:
            length = min(PAGE - at % PAGE, size)
            try:
                pieces.append(self._files.read(file, length, at).ljust(length, b"\0"))
            except OSError as error:
                if error.errno != errno.EIO:
                    raise
                pieces.append(bytes(length))
            size, at = size - length, at + length
        return b"".join(pieces)
