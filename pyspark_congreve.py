"""Makes ``format("rocketmq")`` known: Spark looks for DefaultSource in modules named pyspark_*."""

from congreve.spark.source import RocketMQDataSource as DefaultSource

__all__ = ["DefaultSource"]
