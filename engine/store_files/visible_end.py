"""The end of a queue's records in the log's files, while a broker writes the store.

Entries are in the consume queue at once, but records may follow later: ioBackend=pool and uring and
RocketMQ's transientStorePool buffer them first, and uring has several writes in flight, which may
complete in any order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from congreve.engine.errors import StoreFormatError
from congreve.records.columns.builder import RecordColumns
from congreve.records.errors import RecordError
from congreve.records.record import decode_record

if TYPE_CHECKING:
    from congreve.engine.store_files.files import Entries, QueueFile, StoreFiles

IN_FLIGHT = 8 << 20
"""Bytes at the log's end that may be written out of order: twice those of uring."""
SECTOR = 512
"""Bytes that a disk writes atomically."""


def readable_end(log: StoreFiles, queue: QueueFile) -> int:
    """Offset after the last message that is in the log's files together with all before it.

    A record with a sector of zeros is not written yet; a damaged record is.
    """
    end = queue.offset_from(lambda place, _: _not_begun(log, place))
    if end == queue.min_offset:
        return end
    newest = int(queue.entries(end - 1, end)["physical_offset"][0])
    begin = queue.offset_from(lambda place, _: place > newest - IN_FLIGHT)
    entries = queue.entries(begin, end)
    for row in _doubtful(log, entries, begin):
        entry = entries[row]
        if _unwritten(log, int(entry["physical_offset"]), int(entry["size"])):
            return begin + row
    return end


def _not_begun(log: StoreFiles, physical_offset: int) -> bool:
    try:
        return not any(log.record(physical_offset, 4))
    except StoreFormatError:
        return physical_offset >= log.log_begin  # in a segment that does not exist yet


def _doubtful(log: StoreFiles, entries: Entries, begin: int) -> Iterator[int]:
    """Entries, ascending, whose records are invalid or end with a zero byte."""
    physical = entries["physical_offset"].astype(np.int64)
    sizes = entries["size"].astype(np.int32)
    offsets = np.arange(begin, begin + len(entries), dtype=np.int64)
    codes = np.zeros(len(entries), np.int64)
    for base, part in log.runs(physical):
        gather = RecordColumns((), verify_crc=True, keep_corrupt=True)
        segment = log.segment(base)
        gather.add_entries(segment, base, physical[part], sizes[part], offsets[part], codes[part])
        ends = np.minimum(physical[part] - base + sizes[part], segment.size) - 1
        rows = np.flatnonzero(segment.array()[ends] == 0).tolist()
        yield from (
            part.start + row for row in sorted({*rows, *(row for row, _ in gather.corrupt)})
        )


def _unwritten(log: StoreFiles, physical_offset: int, size: int) -> bool:
    data = bytes(log.record(physical_offset, size))
    try:
        if not decode_record(data).properties:
            return False  # it ends with the zero length of its properties
    except RecordError:
        pass
    edge = SECTOR - physical_offset % SECTOR
    pieces = [data[:edge], *(data[at : at + SECTOR] for at in range(edge, len(data), SECTOR))]
    return not all(any(piece) for piece in pieces)
