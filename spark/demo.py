"""The Spark part of ``congreve demo``, in a process of its own because it starts a JVM.

`python -m congreve.spark.demo STORE NAMESRV TOPIC EXPECTED PLOT` reads flights by airline from the
store's files, and flights and delays by day as a stream from the broker; it prints and plots them.
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import (
    avg,
    col,
    count,
    get_json_object,
    round,
    to_timestamp,
    when,
    window,
)

from congreve.spark.session import local_session

STREAM_TIMEOUT_S = 300
BAR = 40
"""Length of the longest bar in characters."""


def main(store: str, namesrv: str, topic: str, expected: int, plot: Path) -> int:
    """Read and print; returns 1 when rows are missing, else 0."""
    spark = local_session("congreve demo")
    try:
        rows = by_airline(spark, store, topic)
        days = by_day(spark, namesrv, topic)
    finally:
        spark.stop()
    sys.stdout.write(f"Spark read {rows:,} flights from the store's files, {expected:,} expected\n")
    streamed = sum(day["flights"] for day in days)
    sys.stdout.write(f"Spark streamed {streamed:,} flights from the broker; the busiest days:\n")
    most = max((day["flights"] for day in days), default=1)
    for day in sorted(days, key=lambda day: -day["flights"])[:7]:
        bar = "#" * (BAR * day["flights"] // most)
        sys.stdout.write(
            f"  {day['day']}  {day['flights']:>5,}  {day['delay'] or 0:>6.1f} min late  {bar}\n"
        )
    if save_plot(days, plot):
        sys.stdout.write(f"all days are in {plot}\n")
    return 0 if rows == streamed == expected else 1


def with_delay(messages: DataFrame) -> DataFrame:
    """The departure delay of each flight in minutes, null for a cancelled flight."""
    delay = get_json_object(col("body").cast("string"), "$.dep_delay")
    return messages.withColumn("delay", when(delay != "NA", delay.cast("int")))


def by_airline(spark: SparkSession, store: str, topic: str) -> int:
    """Print flights and mean delay by airline, read from the store's files; returns the number
    of flights."""
    messages = (
        spark.read.format("rocketmq")
        .option("storePath", store)
        .option("topic", topic)
        .option("columns", "tags,body")
        .load()
    )
    (
        with_delay(messages)
        .groupBy(col("tags").alias("airline"))
        .agg(
            count("*").alias("flights"),
            round(avg("delay"), 1).alias("mean departure delay (min)"),
        )
        .orderBy(col("flights").desc())
        .show(5)
    )
    return messages.count()


def by_day(spark: SparkSession, namesrv: str, topic: str) -> list[dict[str, Any]]:
    """Flights and mean delay in windows of a day, by a stream that stops at the current end."""
    messages = (
        spark.readStream.format("rocketmq")
        .option("nameServer", namesrv)
        .option("topic", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "100000")
        .option("columns", "body")
        .load()
    )
    departed = to_timestamp(get_json_object(col("body").cast("string"), "$.time_hour"))
    windows = (
        with_delay(messages)
        .groupBy(window(departed, "1 day").alias("time"))
        .agg(count("*").alias("flights"), round(avg("delay"), 1).alias("delay"))
    )
    with TemporaryDirectory() as checkpoint:
        query = (
            windows.writeStream.format("memory")
            .queryName("days")
            .outputMode("complete")
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(STREAM_TIMEOUT_S)
    found = spark.sql("SELECT date(time.start) AS day, flights, delay FROM days ORDER BY day")
    return [row.asDict() for row in found.collect()]


def save_plot(days: list[dict[str, Any]], path: Path) -> bool:
    """Save a plot of flights and delay by day; returns False when matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return False
    figure = Figure(figsize=(10, 4), layout="tight")
    flights = figure.subplots()
    flights.bar([day["day"] for day in days], [day["flights"] for day in days], color="lightgrey")
    flights.set_ylabel("flights a day")
    delay = flights.twinx()
    delay.plot([day["day"] for day in days], [day["delay"] for day in days], color="firebrick")
    delay.set_ylabel("mean departure delay (min)")
    flights.set_title("Flights from New York City, streamed by Spark")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100)
    return True


if __name__ == "__main__":
    _, STORE, NAMESRV, TOPIC, EXPECTED, PLOT = sys.argv
    sys.exit(main(STORE, NAMESRV, TOPIC, int(EXPECTED), Path(PLOT)))
