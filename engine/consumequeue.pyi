from collections.abc import Callable
from typing import Any, final

import numpy as np

from congreve.engine.queuefiles import MappingCache

@final
class ConsumeQueue:
    """One queue of one topic: 20-byte entries that say where messages lie in the log.

    RocketMQ: ConsumeQueue. One thread appends; others may read and flush. Disk trouble raises
    BackendError, files or offsets that cannot be true StoreFormatError.
    """

    watched: bool

    def __init__(
        self,
        folder: str,
        topic: str,
        queue_id: int,
        file_size: int = 6_000_000,
        cache: MappingCache | None = None,
    ) -> None:
        """`folder` appears with the first entry; `file_size` bytes, rounded up to whole entries."""
    @property
    def topic(self) -> str: ...
    @property
    def queue_id(self) -> int: ...
    @property
    def file_size(self) -> int:
        """Bytes of each file."""
    @property
    def min(self) -> int:
        """First offset that can be read (getMinOffsetInQueue)."""
    @property
    def max(self) -> int:
        """Offset of the next entry (getMaxOffsetInQueue)."""
    @property
    def max_physical_offset(self) -> int:
        """Where the last entry's record ends in the log; 0 without an entry, filler not counted."""
    @property
    def files(self) -> list[str]:
        """Paths of the files, oldest first."""
    @property
    def dirty_pages(self) -> int:
        """4 KiB pages that a flush would write."""
    def __getitem__(self, offset: int, /) -> tuple[int, int, int]:
        """(physical offset, size, tags code) of one entry; IndexError outside [min, max)."""
    def entries(self, start: int, stop: int) -> np.ndarray[Any, np.dtype[np.void]]:
        """Entries of [start, stop) as format.CONSUME_QUEUE_ENTRY, clipped to [min, max).

        A view of the mapped file where one file holds them all, else a copy.
        """
    def release_before(self, offset: int) -> None:
        """Unmap files that hold only entries before `offset`; they are mapped again when read."""
    def offset_at_time(self, timestamp: int, store_time_of: Callable[[int, int], int]) -> int:
        """The offset stored at `timestamp` ms (getOffsetInQueueByTime, defect D15).

        `store_time_of(physical_offset, size)` gives a record's store time, -1 where it cannot be
        read. An equal time wins, else the nearer neighbour, of two the earlier; before all the
        first entry, after all the last; `min` when the queue is empty.
        """
    def make_room(self) -> None:
        """Open the next file or reserve the next stretch of this one, if there is no room left."""
    def start_at(self, offset: int) -> None:
        """Let an empty queue begin at `offset`, with Java's filler entries in front of it."""
    def append(self, queue_offset: int, physical_offset: int, size: int, tags_code: int) -> bool:
        """Take a record found in the log (putMessagePositionInfo, defect D8).

        False where the queue has it already. A gap is filled with filler entries; one larger than
        a file raises StoreFormatError.
        """
    def load(self) -> None:
        """List the files and find the last valid entry; changes nothing on disk (defect D7).

        Files that are not the queue's are skipped with a warning (D27). `min` is the first file's
        begin until correct_min_offset() is called.
        """
    def truncate_from(self, physical_offset: int) -> None:
        """Drop the entries of records that end behind `physical_offset` (recovery's cut)."""
    def truncate_to(self, offset: int) -> None:
        """Drop entries from `offset` on: their place is zeroed and synced, later files removed."""
    def correct_min_offset(self, min_physical: int) -> None:
        """Set `min` to the first entry whose record lies at or behind `min_physical`."""
    def delete_expired(self, min_physical: int) -> int:
        """Correct `min` and remove files that lie before it, never the last; how many."""
    def flush(self, least_pages: int = 0) -> bool:
        """msync the entries appended since the last flush; False where there was too little."""
    def note_flushed(self, offset: int) -> None:
        """The file system was synced as a whole when the entries below `offset` were there."""
    def close(self) -> None:
        """Flush and unmap. A file that never got an entry is removed."""
    def destroy(self) -> None:
        """Remove the queue's files and folder; the queue is empty afterwards."""
