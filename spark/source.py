"""The data source ``format("rocketmq")``: creates the readers and writers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

from congreve.spark import options as spark_options
from congreve.spark.batch import BatchReader, PushdownReader
from congreve.spark.errors import OptionError, SparkError
from congreve.spark.schema import checked_schema, wanted_schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class RocketMQDataSource(DataSource):
    """Messages of a store's files (`storePath`) or of a cluster's brokers (`nameServer`)."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "rocketmq"

    def schema(self) -> StructType:
        # Spark calls this before it is known whether it reads a batch or a stream.
        """The schema of a read without .schema()."""
        return wanted_schema(spark_options.parse(self.options, streaming=None))

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader of a batch."""
        options = spark_options.parse(self.options)
        kind = PushdownReader if options.pushdown else BatchReader
        return kind(options, checked_schema(schema, options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """The reader of a stream."""
        from congreve.spark.stream import RefusedStream, StreamReader

        try:
            options = spark_options.parse(self.options, streaming=True)
            return StreamReader(options, checked_schema(schema, options))
        except SparkError as error:
            return RefusedStream(error)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """The writer of a batch."""
        from congreve.spark.sink import BatchSink, check_sink, sink_options

        if overwrite:
            raise OptionError("mode overwrite: messages cannot be overwritten, use mode append")
        options = sink_options(self.options)
        check_sink(schema, options)
        return BatchSink(options)

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        """The writer of a stream."""
        from congreve.spark.sink import StreamSink, check_sink, sink_options

        options = sink_options(self.options)
        check_sink(schema, options)
        return StreamSink(options)
