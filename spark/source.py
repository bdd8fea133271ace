"""``format("rocketmq")``: what Spark asks for first, and who answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader

from congreve.spark import options as spark_options
from congreve.spark.batch import BatchReader, PushdownReader
from congreve.spark.schema import checked_schema, wanted_schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class RocketMQDataSource(DataSource):
    """Messages of a store's files (`storePath`) or of a cluster's brokers (`nameServer`)."""

    @classmethod
    def name(cls) -> str:
        return "rocketmq"

    def schema(self) -> StructType:
        return wanted_schema(spark_options.parse(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        options = spark_options.parse(self.options)
        kind = PushdownReader if options.pushdown else BatchReader
        return kind(options, checked_schema(schema, options))
