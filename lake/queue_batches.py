"""The rows of a queue in the order of their offsets, decoded as they are read."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from congreve.lake.data_files import BrokerQueue, DataFiles, RowGroup

PLACE = ("brokerName", "queueId", "queueOffset", "storeSize")
"""The columns that say which rows of a row group are wanted, and how many make a batch."""


def queue_batches(
    files: DataFiles,
    groups: Iterable[RowGroup],
    queue: BrokerQueue,
    columns: Sequence[str],
    *,
    start: int = 0,
    batch_bytes: int,
) -> Iterator[pa.RecordBatch]:
    """The rows of a queue at or after the offset `start`, in the order of their offsets.

    `groups` are those of the queue in the order of their first offsets. The offsets within a batch
    follow each other without a gap; its records have `batch_bytes` bytes at most, or there is one.
    `columns` contain queueOffset and storeSize. Those row groups are open at a time whose offsets
    overlap, of which a page of each column is decoded. Raises OSError.
    """
    for batch in _merged(files, groups, queue, columns, start, batch_bytes):
        yield from _parts(batch, batch_bytes)


def _merged(
    files: DataFiles,
    groups: Iterable[RowGroup],
    queue: BrokerQueue,
    columns: Sequence[str],
    start: int,
    batch_bytes: int,
) -> Iterator[pa.RecordBatch]:
    """Batches of all row groups in the order of offsets; dead letters lie between other rows."""
    waiting = deque(group for group in groups if group.stop > start)
    opened: list[tuple[pa.RecordBatch, Iterator[pa.RecordBatch]]] = []
    while waiting or opened:
        # All rows up to the first end of a batch are there once the row groups before it are open.
        while waiting and (not opened or waiting[0].first <= min(_last(b) for b, _ in opened)):
            batches = _decoded(files, waiting.popleft(), queue, columns, start, batch_bytes)
            if (first := next(batches, None)) is not None:
                opened.append((first, batches))
        if not opened:
            return
        stop = min(_last(batch) for batch, _ in opened)
        parts, left = [], []
        for batch, batches in opened:
            count = int(np.searchsorted(_numbers(batch["queueOffset"]), stop, side="right"))
            parts.append(batch.slice(0, count))
            rest = batch.slice(count) if count < len(batch) else next(batches, None)
            if rest is not None:
                left.append((rest, batches))
        opened = left
        if len(parts) == 1:
            yield parts[0]
        else:
            rows = pa.Table.from_batches(parts).sort_by("queueOffset")
            yield from rows.combine_chunks().to_batches()


def _last(batch: pa.RecordBatch) -> int:
    """The offset of a batch's last row."""
    return int(batch["queueOffset"][-1].as_py())


def _decoded(
    files: DataFiles,
    group: RowGroup,
    queue: BrokerQueue,
    columns: Sequence[str],
    start: int,
    batch_bytes: int,
) -> Iterator[pa.RecordBatch]:
    """The rows of one row group, in the order of offsets."""
    with files.open(group.path) as stream:
        source = pq.ParquetFile(stream)
        found = _Place.of(source, group, queue, start)
        if found is not None:
            count = max(batch_bytes // found.record_bytes, 1)
            batches = source.iter_batches(
                count, row_groups=[group.number], columns=[*columns], use_threads=False
            )
            yield from _between(batches, found.begin, found.end)
            return
    # Another program has written these rows, in an order of its own.
    rows = files.read(group, queue, columns)
    rows = rows.filter(pc.greater_equal(rows["queueOffset"], start))
    yield from rows.select([*columns]).combine_chunks().to_batches()


@dataclass(frozen=True)
class _Place:
    """The rows [begin, end) of a row group, and the mean size of their records, at least 1."""

    begin: int
    end: int
    record_bytes: int

    @classmethod
    def of(
        cls, source: pq.ParquetFile, group: RowGroup, queue: BrokerQueue, start: int
    ) -> _Place | None:
        """Where the queue's rows from `start` on are; None if they are not in order."""
        rows = source.read_row_group(group.number, [*PLACE], use_threads=False)
        mine = np.flatnonzero(
            pc.and_(
                pc.equal(rows["brokerName"], queue[0]), pc.equal(rows["queueId"], queue[1])
            ).to_numpy()
        )
        if not len(mine):
            return cls(0, 0, 1)
        begin, end = int(mine[0]), int(mine[-1]) + 1
        offsets = _numbers(rows["queueOffset"])[begin:end]
        if end - begin != len(mine) or (offsets[1:] <= offsets[:-1]).any():
            return None
        first, last = np.searchsorted(offsets, (max(start, group.first), group.stop)).tolist()
        begin, end = begin + first, begin + last
        sizes = _numbers(rows["storeSize"])[begin:end]
        return cls(begin, end, max(int(sizes.mean()) if len(sizes) else 1, 1))


def _between(batches: Iterator[pa.RecordBatch], begin: int, end: int) -> Iterator[pa.RecordBatch]:
    """The rows [begin, end) of all batches."""
    at = 0
    while at < end and (batch := next(batches, None)) is not None:
        first, last = max(begin - at, 0), min(end - at, len(batch))
        if first < last:
            yield batch.slice(first, last - first)
        at += len(batch)


def _parts(batch: pa.RecordBatch, batch_bytes: int) -> Iterator[pa.RecordBatch]:
    """Slices at gaps of the offsets, of at most `batch_bytes` bytes of records or one row."""
    offsets, sizes = _numbers(batch["queueOffset"]), _numbers(batch["storeSize"])
    ends = np.cumsum(sizes, dtype=np.int64)
    gaps = [*(np.flatnonzero(np.diff(offsets) != 1) + 1).tolist(), len(batch)]
    begin = 0
    for stop in gaps:
        while begin < stop:
            spent = int(ends[begin - 1]) if begin else 0
            end = int(np.searchsorted(ends, spent + batch_bytes, side="right"))
            end = min(max(end, begin + 1), stop)
            yield batch.slice(begin, end - begin)
            begin = end


def _numbers(column: pa.Array | pa.ChunkedArray) -> npt.NDArray[np.int64]:
    return np.asarray(column, np.int64)
