"""The part of a read that comes from the files of a table (option `lake`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from congreve.lake.data_files import DataFiles, RowGroup, first_at
from congreve.records.columns.stored import COLUMNS, stored_rows
from congreve.records.message.properties import KEY_SEPARATOR
from congreve.spark.offsets import Queue, Range
from congreve.spark.options import record_filter
from congreve.spark.rows import QueueRows, Scan
from congreve.spark.schema import CORRUPT

if TYPE_CHECKING:
    from congreve.lake.row_groups import RowGroups


@dataclass(frozen=True)
class QueueFiles:
    """The row groups of a queue, which have all of its messages before `end`."""

    end: int
    groups: tuple[RowGroup, ...] = ()

    def within(self, start: int, stop: int) -> QueueFiles:
        """The row groups that a range needs."""
        wanted = (g for g in self.groups if g.first < stop and start < g.stop)
        return QueueFiles(self.end, tuple(wanted))

    @property
    def first(self) -> int:
        """The first offset in the table; `end` without any message."""
        return min((group.first for group in self.groups), default=self.end)


@dataclass(frozen=True)
class TableFiles:
    """The row groups of queues, pickled to tasks, which read tables without their catalog."""

    files: dict[str, DataFiles] = field(default_factory=dict)
    queues: dict[Queue, QueueFiles] = field(default_factory=dict)

    def of(self, queue: Queue) -> QueueFiles:
        """The files of a queue; none if its table does not have the queue."""
        return self.queues.get(queue, QueueFiles(0))

    def narrowed(self, parts: tuple[Range, ...]) -> TableFiles:
        """What the ranges of a task need."""
        queues: dict[Queue, QueueFiles] = {}
        for queue, start, stop in parts:
            found = self.of(queue).within(start, stop)
            before = queues.get(queue, QueueFiles(found.end))
            queues[queue] = QueueFiles(
                found.end, tuple(dict.fromkeys((*before.groups, *found.groups)))
            )
        topics = {queue.topic for queue in queues}
        return TableFiles({t: f for t, f in self.files.items() if t in topics}, queues)

    def with_table(self, topic: str, groups: RowGroups) -> TableFiles:
        """These files with those of one more topic, or with newer ones of it."""
        queues = {queue: found for queue, found in self.queues.items() if queue.topic != topic}
        for broker, ends in groups.ends.items():
            for queue_id, end in ends.items():
                of_queue = tuple(groups.of_queue.get((broker, queue_id), ()))
                queues[Queue(topic, broker, queue_id)] = QueueFiles(end, of_queue)
        return TableFiles({**self.files, topic: groups.files}, queues)

    def read(self, part: Range, scan: Scan) -> Iterator[pa.RecordBatch]:
        """Yield the messages of a range, of which the table has all, in batches of a row group."""
        as_records = scan.sql is not None or pa.types.is_string(_kind(scan, "properties"))
        names = [name for name in scan.schema.names if name != CORRUPT]
        more = [name for name, used in (("tags", scan.tags), ("tagsCode", scan.codes)) if used]
        for rows in self._rows(part, COLUMNS if as_records else [*names, *more]):
            found = _records(rows, part.queue, scan) if as_records else _columns(rows, scan)
            if len(found):
                yield found

    def sizes(self, part: Range) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """The bytes of each record of a range, in the order of offsets."""
        offsets, sizes = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for rows in self._rows(part, ["storeSize"]):
            offsets.append(rows["queueOffset"].to_numpy())
            sizes.append(rows["storeSize"].to_numpy().astype(np.int64))
        order = np.argsort(np.concatenate(offsets), kind="stable")
        return np.concatenate(sizes)[order]

    def offset_from_time(self, queue: Queue, timestamp_ms: int) -> int | None:
        """The first offset stored at or after a time, None if all messages are older."""
        files = self.files.get(queue.topic)
        if files is None:
            return None
        return first_at(files, self.of(queue).groups, (queue.broker, queue.queue_id), timestamp_ms)

    def with_key(self, queue: Queue, key: str) -> list[int]:
        """The offsets of the messages with a key; this reads the keys of all messages."""
        found: list[int] = []
        known = self.of(queue)
        for rows in self._rows(Range(queue, 0, known.end), ["keys", "msgId"]):
            columns = rows.select(["queueOffset", "keys", "msgId"]).to_pydict().values()
            for offset, keys, unique in zip(*columns, strict=True):
                if key == unique or key in (keys or "").split(KEY_SEPARATOR):
                    found.append(offset)
        return found

    def _rows(self, part: Range, columns: list[str] | tuple[str, ...]) -> Iterator[pa.Table]:
        queue, start, stop = part
        for group in self.of(queue).within(start, stop).groups:
            rows = self.files[queue.topic].read(group, (queue.broker, queue.queue_id), columns)
            if not start <= group.first <= group.stop <= stop:
                offsets = rows["queueOffset"]
                rows = rows.filter(
                    pc.and_(pc.greater_equal(offsets, start), pc.less(offsets, stop))
                )
            yield rows


def _kind(scan: Scan, name: str) -> pa.DataType:
    return scan.schema.field(name).type if name in scan.schema.names else pa.null()


def _columns(rows: pa.Table, scan: Scan) -> pa.RecordBatch:
    if scan.tags is not None:
        rows = rows.filter(pc.is_in(rows["tags"], pa.array(scan.tags, rows["tags"].type)))
    if scan.codes is not None:
        rows = rows.filter(pc.is_in(rows["tagsCode"], pa.array(scan.codes, pa.int64())))
    arrays = [
        rows[field.name].combine_chunks().cast(field.type)
        if field.name in rows.column_names
        else pa.nulls(len(rows), field.type)
        for field in scan.schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=scan.schema)


def _records(rows: pa.Table, queue: Queue, scan: Scan) -> pa.RecordBatch:
    """The rows as records, for what only records can do: SQL92, properties as JSON."""
    found = QueueRows(scan, queue, None if scan.sql is None else record_filter(scan.sql))
    for batch in rows.combine_chunks().to_batches():
        found.gather.add_records(stored_rows(batch, queue.topic, queue.queue_id).records)
    return found.take()
