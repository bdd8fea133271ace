"""A store's files, for programs that only read (no lock, no recovery)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from congreve.engine.config import StoreConfig
from congreve.engine.errors import StoreFormatError, UnknownTopicError
from congreve.engine.file_sizes import ENTRY_SIZE, FILLER_SIZE
from congreve.engine.format import CONSUME_QUEUE_ENTRY
from congreve.engine.state.confirmed import CONFIRMED_FILE, confirmed_in
from congreve.engine.state.lock import is_held
from congreve.engine.store_files.read_only import NumberedFile, ReadOnlyFiles
from congreve.engine.store_files.visible_end import readable_end
from congreve.io_backends.files.file_system import DISK, FileSystem
from congreve.io_backends.mapping import Mapping

Entries = np.ndarray[Any, np.dtype[np.void]]


class QueueFile:
    """The entries of one queue, offsets [min_offset, max_offset), read while a broker may append.

    Filler and entries of expired records are before `min_offset`; `max_offset` is that of the
    object's creation, or of cut_off(). Raises StoreFormatError if a file is missing in between,
    StoreError if one cannot be read. (RocketMQ: ConsumeQueue, without writes.)
    """

    def __init__(
        self, files: Sequence[NumberedFile], log_begin: int, reader: ReadOnlyFiles
    ) -> None:
        self._files: list[tuple[int, Entries]] = []
        for number, (base, path, size) in enumerate(files):
            if number + 1 < len(files) and base + size != files[number + 1][0]:
                raise StoreFormatError(
                    f"{path} has {size} bytes and {files[number + 1][1].name} does not begin "
                    "after it: one of them is not a file of this queue"
                )
            if size >= ENTRY_SIZE:
                entries = reader.map(path, size).array(CONSUME_QUEUE_ENTRY)
                self._files.append((base // ENTRY_SIZE, entries))
        self.min_offset = self.max_offset = 0
        if self._files:
            first, last = self._files[0][0], self._files[-1]
            self.max_offset = last[0] + _first(lambda i: last[1]["size"][i] <= 0, 0, len(last[1]))
            self.min_offset = _first(lambda i: self._alive(i, log_begin), first, self.max_offset)

    def entries(self, start: int, stop: int) -> Entries:
        """Entries of [start, stop) as CONSUME_QUEUE_ENTRY, clipped to the existing ones.

        A view of the mapped file if one file holds them all, else a copy.
        """
        start, stop = max(start, self.min_offset), min(stop, self.max_offset)
        parts = [
            entries[max(start - base, 0) : stop - base]
            for base, entries in self._files
            if base < stop and start < base + len(entries)
        ]
        if start >= stop or not parts:
            return np.empty(0, CONSUME_QUEUE_ENTRY)
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def place(self, offset: int) -> int:
        """Physical offset of a message, also of an expired one; -1 if no entry has it any more."""
        for base, entries in reversed(self._files):
            if base <= offset < min(base + len(entries), self.max_offset):
                entry = entries[offset - base]
                return -1 if entry["size"] == FILLER_SIZE else int(entry["physical_offset"])
        return -1

    def offset_from(self, reached: Callable[[int, int], bool]) -> int:
        """First offset whose record is `reached(physical_offset, size)`, else max_offset.

        A binary search: all records after a reached one must be reached, too.
        """

        def there(offset: int) -> bool:
            entry = self._at(offset)
            return reached(int(entry["physical_offset"]), int(entry["size"]))

        return _first(there, self.min_offset, self.max_offset)

    def end_within(self, physical_offset: int) -> int:
        """Offset after the last record that ends at or before a physical offset."""
        return self.offset_from(
            lambda place, size: size != FILLER_SIZE and place + size > physical_offset
        )

    def cut_off(self, end: int) -> None:
        """End the queue at an offset at or before its end."""
        self.max_offset = min(self.max_offset, end)

    def _at(self, offset: int) -> Any:
        for base, entries in reversed(self._files):
            if base <= offset:
                return entries[offset - base]
        raise IndexError(offset)

    def _alive(self, offset: int, log_begin: int) -> bool:
        entry = self._at(offset)
        return bool(entry["size"] != FILLER_SIZE and entry["physical_offset"] >= log_begin)


class StoreFiles:
    """The commit log and consume queues under one storePathRootDir, read while a broker may write.

    Segments are mapped at their first use and stay mapped until release(), or as long as this
    object lives. Foreign files are ignored. Raises StoreFormatError, and StoreError if a file
    cannot be read.
    """

    def __init__(
        self, root: Path, commit_log: Path | None = None, files: FileSystem = DISK
    ) -> None:
        self.root = root
        self._reader = ReadOnlyFiles(files)
        self._folder = commit_log or root / "commitlog"
        if not self._reader.is_folder(self._folder):
            raise StoreFormatError(
                f"{root} is not a store: the folder {self._folder} does not exist"
            )
        self._mapped: dict[int, Mapping] = {}
        self.refresh()

    def release(self) -> None:
        """Unmap the segments; a later use maps them again."""
        self._mapped.clear()

    def refresh(self) -> None:
        """Look for new and deleted segments, and whether a broker has the store."""
        self.live = is_held(str(self.root / "lock"), self._reader.files)
        self._confirmed = self._read_confirmed()
        found = self._reader.numbered(self._folder)
        self._segments = {base: path for base, path, _ in found}
        bases = list(self._segments)
        self.log_begin = bases[0] if bases else 0
        if len(bases) > 1:
            self._segment_size = bases[1] - bases[0]
        elif bases:
            self._segment_size = found[0][2]
        else:
            self._segment_size = 0
        for base, path, size in found[:-1]:
            if size != self._segment_size or (base - self.log_begin) % self._segment_size:
                raise StoreFormatError(
                    f"{path} has {size} bytes, but {self._segments[bases[1]].name} begins "
                    f"{self._segment_size} after the first: one of them is not a segment of this "
                    "log, or one between them is missing"
                )
        for gone in self._mapped.keys() - self._segments.keys():
            del self._mapped[gone]

    def _read_confirmed(self) -> int | None:
        path = Path(StoreConfig(root_dir=str(self.root)).own_dir) / CONFIRMED_FILE
        data = self._reader.read_all(path)
        try:
            return None if data is None else confirmed_in(data.decode())
        except (ValueError, msgspec.MsgspecError) as error:
            raise StoreFormatError(
                f"{path} is damaged ({error}), so what the group has confirmed is unknown: start"
                " the member, which writes it again"
            ) from error

    def topics(self) -> list[str]:
        """Names of all topics that have queues, sorted."""
        return [folder.name for folder in self._reader.folders(self.root / "consumequeue")]

    def queues(self, topic: str) -> list[int]:
        """Ids of the topic's queues, ascending. Raises UnknownTopicError if it has none."""
        folder = self.root / "consumequeue" / topic
        if not self._reader.is_folder(folder):
            raise UnknownTopicError(f"{self.root} has no topic {topic!r}")
        names = (entry.name for entry in self._reader.entries(folder))
        return sorted(int(name) for name in names if name.isdecimal())

    def queue(self, topic: str, queue_id: int) -> QueueFile:
        """The queue's present entries; a queue without files is empty.

        If a broker has the store, without messages that it has not written to the log's files. In
        the store of a member of an elected group it ends where the group has confirmed the log.
        """
        folder = self.root / "consumequeue" / topic / str(queue_id)
        queue = QueueFile(self._reader.numbered(folder), self.log_begin, self._reader)
        if self._confirmed is not None:
            queue.cut_off(queue.end_within(self._confirmed))
        if self.live:
            queue.cut_off(readable_end(self, queue))
        return queue

    def segment_base(self, physical_offset: int) -> int:
        """The base offset of the segment with a physical offset."""
        if not self._segment_size:
            raise StoreFormatError(f"{self._folder} has no segment")
        return physical_offset - (physical_offset - self.log_begin) % self._segment_size

    def runs(self, physical_offsets: Any) -> Iterator[tuple[int, slice]]:
        """Ascending physical offsets by segment: its base offset, and the slice of the offsets.

        An offset after the last segment belongs to the segment that would follow.
        """
        start = 0
        while start < len(physical_offsets):
            base = self.segment_base(int(physical_offsets[start]))
            beyond = physical_offsets[start:] >= base + self._segment_size
            stop = start + int(np.argmax(beyond)) if beyond.any() else len(physical_offsets)
            yield base, slice(start, stop)
            start = stop

    def segment(self, base: int) -> Mapping:
        """The bytes of the segment with this base; a torn last one has fewer than the others.

        Raises StoreFormatError if it has expired, StoreError if it cannot be read.
        """
        mapped = self._mapped.get(base)
        if mapped is None:
            if base not in self._segments:
                self.refresh()
            path = self._segments.get(base)
            if path is None:
                raise StoreFormatError(
                    f"{self._folder} no longer has a segment for physical offset {base}"
                )
            mapped = self._mapped[base] = self._reader.map(path, self._reader.size(path))
        return mapped

    def record(self, physical_offset: int, size: int) -> memoryview:
        """The bytes of one record, fewer at the end of the segment.

        A negative or too large `size` is clipped to the segment. Raises StoreFormatError if the
        record has expired.
        """
        base = self.segment_base(physical_offset)
        start = physical_offset - base
        return memoryview(self.segment(base))[start : start + max(size, 0)]


def _first(holds: Callable[[int], Any], start: int, stop: int) -> int:
    """First of [start, stop) from which on `holds` is true, else stop."""
    while start < stop:
        middle = (start + stop) // 2
        if holds(middle):
            stop = middle
        else:
            start = middle + 1
    return start
