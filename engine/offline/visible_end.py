"""How far a queue's records are in the log's files, while a broker writes the store.

Entries come into the consume queue at once, records may come later: ioBackend=pool and uring and
RocketMQ's transientStorePool keep them in buffers first, and uring has several writes in flight
that may end in any order.
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
    from congreve.engine.offline.files import Entries, QueueFile, StoreFiles

IN_FLIGHT = 8 << 20
"""Bytes of log in which some may be written and others before them not: twice what uring has."""
SECTOR = 512
"""Bytes that a disk writes as a whole."""


def readable_end(log: StoreFiles, queue: QueueFile) -> int:
    """Offset behind the last message that is in the log's files, as are all before it.

    A record is not there yet where a whole sector of it is zeros; a damaged one is there.
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
        return physical_offset >= log.log_begin  # a segment that is still to come


def _doubtful(log: StoreFiles, entries: Entries, begin: int) -> Iterator[int]:
    """Entries, ascending, whose records are not sound or end with a zero byte."""
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
            return False  # the zeros that it ends with are the length of its properties
    except RecordError:
        pass
    edge = SECTOR - physical_offset % SECTOR
    pieces = [data[:edge], *(data[at : at + SECTOR] for at in range(edge, len(data), SECTOR))]
    return not all(any(piece) for piece in pieces)
