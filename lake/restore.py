"""A store rebuilt from tables: the same messages at the same queue offsets."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.expressions import EqualTo, Reference
from pyiceberg.expressions.literals import literal
from pyiceberg.manifest import DataFile

from congreve.engine.config import StoreConfig
from congreve.engine.offline.new_store import NewStore
from congreve.lake.errors import RestoreError
from congreve.lake.table import TopicTable
from congreve.records.message.message import Host, Record

BATCH_ROWS = 2_048
COLUMNS = (
    *("storeTimestamp", "commitLogOffset", "topic", "body", "properties", "queueId"),
    *("queueOffset", "flag", "sysFlag", "bornTimestamp", "bornHost", "storeHost"),
    *("reconsumeTimes", "brokerName"),
)
"""The columns of a Row. The first two are its place in the log; the others tell the rest of it."""
COMPRESSED = 0x1 | 0x700
"""The bits of sysFlag for a compressed body and its algorithm: tables have the plain body."""

Row = tuple[Any, ...]


class Restore:
    """Writes the messages of one broker from tables into a new store.

    Messages keep queue, queue offset, times, hosts, flags, body and properties. Their place in the
    log, and so the offset message id, is a new one. Each queue begins and ends as in the table.
    """

    def __init__(self, tables: Sequence[TopicTable], broker: str, config: StoreConfig) -> None:
        """`config.root_dir` is the store's folder, which must not exist yet."""
        self._tables = tables
        self._broker = broker
        self._config = config

    def run(self) -> int:
        """Write the store; returns the number of messages.

        Raises RestoreError when a table does not exist, StoreError when the folder does, when the
        messages do not follow each other, and when the store cannot be written.
        """
        for table in self._tables:
            if not table.load():
                raise RestoreError(f"there is no table {table.name}")
        restored = 0
        with NewStore(self._config) as store:
            for row in heapq.merge(*map(self._rows, self._tables), key=_moment):
                store.put(_record(row))
                restored += 1
        return restored

    def _rows(self, table: TopicTable) -> Iterator[Row]:
        """A table's rows in the order of the log: partition by partition, in store time."""
        by_partition: dict[Any, list[DataFile]] = {}
        scan = table.iceberg.scan(
            EqualTo(term=Reference("brokerName"), value=literal(self._broker))
        )
        for task in scan.plan_files():
            values = tuple(task.file.partition[i] for i in range(len(task.file.partition)))
            by_partition.setdefault((task.file.spec_id, values), []).append(task.file)
        for key in sorted(by_partition):
            streams = (
                self._of_queue(table, file, queue)
                for file in by_partition[key]
                for queue in self._queues(table, file)
            )
            yield from heapq.merge(*streams, key=_moment)

    def _queues(self, table: TopicTable, file: DataFile) -> list[int]:
        with table.iceberg.io.new_input(file.file_path).open() as stream:
            found = pq.read_table(stream, columns=["queueId"])["queueId"]
        return sorted(found.unique().to_pylist())

    def _of_queue(self, table: TopicTable, file: DataFile, queue: int) -> Iterator[Row]:
        with table.iceberg.io.new_input(file.file_path).open() as stream:
            source = pq.ParquetFile(stream)
            groups = [n for n in range(source.num_row_groups) if _may_have(source, n, queue)]
            for batch in source.iter_batches(BATCH_ROWS, row_groups=groups, columns=COLUMNS):
                mine = pc.and_(
                    pc.equal(batch["queueId"], queue), pc.equal(batch["brokerName"], self._broker)
                )
                yield from _rows(batch.filter(mine))


def _may_have(source: pq.ParquetFile, group: int, queue: int) -> bool:
    """False if the statistics of a row group say that it has no message of the queue."""
    chunk = source.metadata.row_group(group).column(source.schema.names.index("queueId"))
    known = chunk.statistics
    return known is None or not known.has_min_max or known.min <= queue <= known.max


def _rows(batch: pa.RecordBatch) -> Iterator[Row]:
    """Tuples of the columns, with times as integers: Python's datetime would only slow down."""
    times = ("bornTimestamp", "storeTimestamp")
    columns = (batch[name].cast(pa.int64()) if name in times else batch[name] for name in COLUMNS)
    return zip(*(column.to_pylist() for column in columns), strict=True)


def _record(row: Row) -> Record:
    stored, _, topic, body, properties, queue_id, queue_offset, flag, *more = row
    sys_flag, born, born_host, store_host, reconsume_times, _ = more
    return Record(
        topic=topic,
        body=body,
        properties=dict(properties),
        queue_id=queue_id,
        queue_offset=queue_offset,
        flag=flag,
        sys_flag=sys_flag & ~COMPRESSED,
        born_timestamp=born // 1000,
        born_host=_host(born_host),
        store_timestamp=stored // 1000,
        store_host=_host(store_host),
        reconsume_times=reconsume_times,
    )


_moment = itemgetter(0, 1)


@lru_cache(1024)
def _host(text: str) -> Host:
    address, _, port = text.rpartition(":")
    return address.strip("[]"), int(port)
