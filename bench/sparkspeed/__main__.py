"""How fast Spark reads: `PYTHONPATH=bench python -m sparkspeed [--messages N] [--store DIR]`.

local[2], one run, a store of 128-byte messages. Prints rows a second, and beside each case what
the same run says of its alternative; ratios within a run are what counts.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

from congreve.spark.session import local_session
from sparkspeed.broker import serving
from sparkspeed.store import BEGIN_MS, TOPIC, fill
from sparkspeed.touched import share_touched

ROUNDS = 3
MINUTE_MS = 60_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=5_000_000)
    parser.add_argument("--store", type=Path, help="kept, and used again where it is there")
    arguments = parser.parse_args()
    with ExitStack() as stack:
        root = arguments.store or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if not (root / "commitlog").is_dir():
            print(f"writing {arguments.messages:,} messages to {root}", flush=True)
            fill(root, arguments.messages)
        spark = local_session("sparkspeed")
        stack.callback(spark.stop)
        run(spark, root, arguments.messages)


def run(spark: Any, root: Path, messages: int) -> None:
    files = {"storePath": str(root)}
    read(spark, files, columns="queueOffset").count()
    everything = timed("storePath, all columns", messages, lambda: drain(read(spark, files)))
    timed(
        "storePath, rocketmq-spark's nine, JSON",
        messages,
        lambda: drain(read(spark, files, columns="rocketmq-spark", propertiesFormat="json")),
    )
    timed(
        "storePath, metadata columns, count by tag",
        messages,
        lambda: read(spark, files, columns="metadata").groupBy("tags").count().collect(),
    )
    timed(
        "storePath, tags and storeTimestamp, count by tag",
        messages,
        lambda: read(spark, files, columns="tags,storeTimestamp").groupBy("tags").count().collect(),
    )
    timed(
        "storePath, queueOffset and storeSize, sum",
        messages,
        lambda: read(spark, files, columns="queueOffset,storeSize").groupBy().sum().collect(),
    )
    filtered = timed(
        "storePath, all, one tag of 100 filtered by Spark",
        messages,
        lambda: drain(read(spark, files).filter("tags = 'Tag7'")),
    )
    pushed = timed(
        "storePath, all, one tag of 100 by option",
        messages,
        lambda: drain(read(spark, files, tags="Tag7")),
    )
    print(f"one tag: {filtered / pushed:.1f} x quicker than filtering in Spark")
    begin = BEGIN_MS + 12 * 60 * MINUTE_MS
    window = {"startingTimestamp": str(begin), "endingTimestamp": str(begin + MINUTE_MS)}
    print(f"one minute of a day touches {share_touched(root, TOPIC, window):.2%} of the bytes")
    for limits in ({}, {"maxTransferCountOnMessageInMemory": "4096"}):
        with serving(root, limits) as name_server:
            name = "a pull of at most " + limits.get("maxTransferCountOnMessageInMemory", "32")
            brokers = {"nameServer": name_server}
            timed(
                f"nameServer, body, {name}",
                messages,
                lambda where=brokers: drain(read(spark, where, columns="body")),
            )
            timed(
                f"nameServer, all columns, {name}",
                messages,
                lambda where=brokers: drain(read(spark, where)),
            )
    print(f"(all columns from files: {messages / everything / 1e6:.2f} M rows/s)")


def read(spark: Any, where: dict[str, str], **options: str) -> Any:
    return spark.read.format("rocketmq").options(topic=TOPIC, **where, **options).load()


def drain(frame: Any) -> None:
    """Every column of every row comes to the JVM and goes nowhere."""
    frame.write.format("noop").mode("overwrite").save()


def timed(name: str, messages: int, work: Callable[[], Any]) -> float:
    """The median of ROUNDS in seconds, printed."""
    times = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    seconds = median(times)
    print(f"{name:58s} {seconds:7.2f} s {messages / seconds / 1e6:7.2f} M rows/s", flush=True)
    return seconds


if __name__ == "__main__":
    main()
