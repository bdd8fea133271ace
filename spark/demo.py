"""The Spark part of ``congreve demo``: `python -m congreve.spark.demo STORE TOPIC EXPECTED`."""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.functions import avg, col, count, get_json_object, round, when

from congreve.spark.source import RocketMQDataSource

LOG4J = Path(__file__).with_name("log4j2.properties")


def main(store: str, topic: str, expected: int) -> int:
    """Print flights and mean departure delay by airline; 1 when rows are missing, else 0."""
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("congreve demo")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={LOG4J.as_uri()}")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .getOrCreate()
    )
    try:
        spark.dataSource.register(RocketMQDataSource)
        messages = (
            spark.read.format("rocketmq").option("storePath", store).option("topic", topic).load()
        )
        rows = messages.count()
        delay = get_json_object(col("body").cast("string"), "$.dep_delay")
        (
            messages.withColumn("delay", when(delay != "NA", delay.cast("int")))
            .groupBy(col("tags").alias("airline"))
            .agg(
                count("*").alias("flights"),
                round(avg("delay"), 1).alias("mean departure delay (min)"),
            )
            .orderBy(col("flights").desc())
            .show(5)
        )
    finally:
        spark.stop()
    sys.stdout.write(f"Spark read {rows:,} flights from the store's files, {expected:,} expected\n")
    return 0 if rows == expected else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
