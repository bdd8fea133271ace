"""Measures Spark itself: one batch of the store's rows is returned repeatedly."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from congreve.spark.batch import BatchReader
from congreve.spark.options import parse
from congreve.spark.schema import checked_schema, wanted_schema
from congreve.spark.sources.store_source import StoreSource
from sparkspeed.store import QUEUES


class RepeatedSource(DataSource):
    """The options of format rocketmq, and `rows`: how many to return in total."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "repeated"

    def schema(self) -> StructType:
        """The schema."""
        return wanted_schema(parse(self._own()))

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader of a batch."""
        options = parse(self._own())
        reader = BatchReader(options, checked_schema(schema, options))
        source = StoreSource(options)
        batch = next(source.read(reader.plan(source)[0], reader.scan()))
        return RepeatedReader(batch, int(self.options["rows"]) // QUEUES)

    def _own(self) -> dict[str, str]:
        return {name: value for name, value in self.options.items() if name.lower() != "rows"}


class RepeatedReader(DataSourceReader):
    """As many tasks as the store has queues."""

    def __init__(self, batch: pa.RecordBatch, rows: int) -> None:
        self._batch, self._rows = batch, rows

    def partitions(self) -> list[InputPartition]:
        """The partitions."""
        return [InputPartition(number) for number in range(QUEUES)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the same batch repeatedly."""
        left = self._rows
        while left > 0:
            yield self._batch.slice(0, left)
            left -= self._batch.num_rows
