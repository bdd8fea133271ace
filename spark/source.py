"""``spark.read.format("rocketmq")`` over a store's files: one task a queue, Arrow batches out.

A first read, used by the main job: option `storePath` and `topic`, the columns below. It reads the
consume queues as numpy arrays and the records they name from the mapped log; a broker may be
writing meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from congreve.engine.files import StoreFiles
from congreve.records.properties import KEYS, TAGS
from congreve.records.record import decode_record
from congreve.spark.errors import OptionError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from congreve.records.message import Record

ROWS_PER_BATCH = 16_384


class Queue(NamedTuple):
    """What one task reads: the entries [start, stop) of a queue."""

    queue_id: int
    start: int
    stop: int


class QueuePartition(InputPartition):
    """A queue as Spark hands it to a task."""

    def __init__(self, queue: Queue) -> None:
        super().__init__(queue)
        self.queue = queue


COLUMNS: dict[str, tuple[str, pa.DataType]] = {
    "topic": ("string", pa.string()),
    "queueId": ("int", pa.int32()),
    "queueOffset": ("bigint", pa.int64()),
    "tags": ("string", pa.string()),
    "keys": ("string", pa.string()),
    "body": ("binary", pa.binary()),
    "bornTimestamp": ("timestamp", pa.timestamp("us", tz="UTC")),
    "storeTimestamp": ("timestamp", pa.timestamp("us", tz="UTC")),
}
ARROW_SCHEMA = pa.schema([(name, arrow) for name, (_, arrow) in COLUMNS.items()])


class RocketMQDataSource(DataSource):
    """Reads the messages of one topic from the files under `storePath`."""

    @classmethod
    def name(cls) -> str:
        return "rocketmq"

    def schema(self) -> str:
        return ", ".join(f"{name} {sql}" for name, (sql, _) in COLUMNS.items())

    def reader(self, schema: StructType) -> DataSourceReader:
        return TopicReader(self._option("storePath"), self._option("topic"))

    def _option(self, name: str) -> str:
        value: str | None = self.options.get(name)
        if not value:
            raise OptionError(f"format('rocketmq') needs .option({name!r}, ...)")
        return value


class TopicReader(DataSourceReader):
    """Cuts a topic into its queues on the driver, reads one of them in each task."""

    def __init__(self, store_path: str, topic: str) -> None:
        self._store_path = store_path
        self._topic = topic

    def partitions(self) -> list[InputPartition]:
        files = StoreFiles(Path(self._store_path))
        found: list[InputPartition] = []
        for queue_id in files.queues(self._topic):
            first, entries = files.entries(self._topic, queue_id)
            if len(entries):
                found.append(QueuePartition(Queue(queue_id, first, first + len(entries))))
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, QueuePartition):
            return  # Spark asks for one empty partition where there are none
        queue = partition.queue
        files = StoreFiles(Path(self._store_path))
        first, entries = files.entries(self._topic, queue.queue_id)
        for start in range(queue.start, queue.stop, ROWS_PER_BATCH):
            stop = min(start + ROWS_PER_BATCH, queue.stop)
            chunk = entries[start - first : stop - first]
            yield _batch(
                [
                    decode_record(files.record(int(entry["physical_offset"]), int(entry["size"])))
                    for entry in chunk
                ]
            )


def _batch(records: list[Record]) -> pa.RecordBatch:
    columns = [
        [record.topic for record in records],
        [record.queue_id for record in records],
        [record.queue_offset for record in records],
        [record.properties.get(TAGS) for record in records],
        [record.properties.get(KEYS) for record in records],
        [record.body for record in records],
        [record.born_timestamp * 1000 for record in records],
        [record.store_timestamp * 1000 for record in records],
    ]
    arrays = [
        pa.array(column, field.type) for column, field in zip(columns, ARROW_SCHEMA, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=ARROW_SCHEMA)
