"""Measures how fast Spark reads: `PYTHONPATH=bench python -m sparkspeed [--messages N] [--store
DIR]`.

local[2], one run, a store of 128-byte messages. Prints rows per second, and beside each case its
alternative in the same run; compare ratios within a run. Figures go to bench/results/spark.json and
spark.png.
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

from congreve.records.columns.arrow import TYPES
from congreve.spark.session import SETTINGS, UNIX_SOCKETS, local_session
from sparkspeed.broker import serving
from sparkspeed.bytes_read import share_read
from sparkspeed.ceiling import RepeatedSource
from sparkspeed.processors import seconds_of_children
from sparkspeed.report import Figure, write_json, write_plot
from sparkspeed.rowreader import RowSource
from sparkspeed.same import digest, own_frame
from sparkspeed.store import BEGIN_MS, BROKER, QUEUES, TOPIC, fill

RESULTS = Path(__file__).parents[1] / "results"
ROUNDS = 3
WARM_UP_S = 10
"""Warm-up rounds before each case: the JVM compiles the code in some ten rounds. The brokers of
`sidebyside` have such a warm-up, too."""
AGAIN = "one batch again and again"
MINUTE_MS = 60_000
ROWS_SLOWLY = 20_000
"""Messages of each queue for readers that would take minutes for all."""


def main() -> None:
    """Run all cases and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=5_000_000)
    parser.add_argument("--store", type=Path, help="kept, and used again where it is there")
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    with ExitStack() as stack:
        root = arguments.store or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if not (root / "commitlog").is_dir():
            print(f"writing {arguments.messages:,} messages to {root}", flush=True)
            fill(root, arguments.messages)
        spark = local_session("sparkspeed", settings={**SETTINGS, **UNIX_SOCKETS})
        stack.callback(spark.stop)
        for source in (RowSource, RepeatedSource):
            spark.dataSource.register(source)
        bench = Bench(spark, root, arguments.messages)
        bench.files()
        bench.filters()
        bench.brokers()
        write_json(arguments.results / "spark.json", bench.figures, arguments.messages)
        write_plot(arguments.results / "spark.png", bench.figures)


class Bench:
    """The cases; `figures` holds the results."""

    def __init__(self, spark: Any, root: Path, messages: int) -> None:
        self._spark = spark
        self._messages = messages
        self._root = root
        self._files = {"storePath": str(root), "brokerName": BROKER}
        self.figures: list[Figure] = []
        # Spark's first query takes seconds, and the first read fills the page cache.
        drain(self._read(self._files))

    def files(self) -> None:
        """Rows and aggregates from the store's files, beside the ceiling of Spark itself."""
        self._rate("storePath, all columns", lambda: drain(self._read(self._files)), aim=3)
        self._rate(f"{AGAIN}, all columns", lambda: drain(self._again("all")))
        self._rate(f"{AGAIN}, tags", lambda: drain(self._again("tags")))
        for name, options in (
            ("body", {"columns": "body"}),
            ("rocketmq-spark's nine", {"columns": "rocketmq-spark", "propertiesFormat": "json"}),
        ):
            frame = self._read(self._files, **options)
            self._rate(f"storePath, {name}", lambda frame=frame: drain(frame))
        for columns in ("tags", "metadata"):
            frame = self._read(self._files, columns=columns)
            again = self._again(columns)
            self._rate(
                f"storePath, {columns}, count by tag", lambda frame=frame: by_tag(frame), aim=6
            )
            self._rate(f"{AGAIN}, {columns}, count by tag", lambda frame=again: by_tag(frame))
        frame = self._read(self._files, columns="tags", maxPartitions="2")
        self._rate("storePath, tags, count by tag, maxPartitions=2", lambda: by_tag(frame), aim=6)
        self._rate("storePath, queueOffset and storeSize, sum", self._sum)

    def filters(self) -> None:
        """One tag of a hundred, one minute of a day."""
        everything = self._read(self._files).filter("tags = 'Tag7'")
        filtered = self._rate("storePath, one tag, filtered by Spark", lambda: drain(everything))
        only = self._read(self._files, tags="Tag7")
        pushed = self._rate("storePath, one tag, by option", lambda: drain(only))
        self._note(Figure("one tag by option beside Spark's filter", filtered / pushed, "x", 5))
        begin = BEGIN_MS + 12 * 60 * MINUTE_MS
        window = {"startingTimestamp": str(begin), "endingTimestamp": str(begin + MINUTE_MS)}
        share = 100 * share_read(self._root, TOPIC, window)
        self._note(Figure("bytes read for one minute of a day", share, "%", 2, least=False))

    def brokers(self) -> None:
        """The same rows over the protocol, beside a reader of single rows."""
        with serving(self._root, {"maxTransferCountOnMessageInMemory": "4096"}) as address:
            served = {"nameServer": address}
            self._same(served)
            for columns, aim in (("body", 1.0), ("rocketmq-spark", None), ("all", 1.0)):
                frame = self._read(served, columns=columns)
                quick = self._rate(f"nameServer, {columns}", lambda frame=frame: drain(frame), aim)
                if columns != "all":
                    self._rows_slowly(address, columns, self._messages / quick)
        with serving(self._root, {}) as address:
            frame = self._read({"nameServer": address}, columns="body")
            self._rate("nameServer, body, pulls of at most 32", lambda: drain(frame))

    def _same(self, served: dict[str, str]) -> None:
        """Check that Spark's own frame, files and brokers give the same rows."""
        own = own_frame(self._spark, self._messages)
        files, brokers = self._read(self._files), self._read(served)
        expected = digest(own, own.columns)
        same = expected == digest(files, own.columns)
        same = same and digest(files, list(TYPES)) == digest(brokers, list(TYPES))
        self._note(Figure(f"{expected[0]:,} rows are the same by all three ways", same, "", 1))

    def _rows_slowly(self, address: str, columns: str, quick: float) -> None:
        for batch in ("32", "4096"):
            options = {"columns": columns, "pullBatchSize": batch, "rows": str(ROWS_SLOWLY)}
            frame = self._read({"nameServer": address}, source="rows", **options)
            name = f"row at a time, {columns}, pulls of {batch}"
            rows = min(ROWS_SLOWLY * QUEUES, self._messages)
            slow = rows / self._rate(name, lambda frame=frame: drain(frame), rows=rows)
            aim = 10 if batch == "32" else None
            self._note(Figure(f"nameServer beside {name}", quick / slow, "x", aim))

    def _sum(self) -> None:
        self._read(self._files, columns="queueOffset,storeSize").groupBy().sum().collect()

    def _again(self, columns: str) -> Any:
        """The ceiling of Spark for these columns: one batch is returned repeatedly, without
        reading."""
        rows = str(self._messages)
        return self._read(self._files, source="repeated", columns=columns, rows=rows)

    def _read(self, where: dict[str, str], *, source: str = "rocketmq", **options: str) -> Any:
        return self._spark.read.format(source).options(topic=TOPIC, **where, **options).load()

    def _rate(
        self, name: str, work: Callable[[], Any], aim: float | None = None, rows: int | None = None
    ) -> float:
        """The median time of ROUNDS in seconds, after the warm-up."""
        rows = rows or self._messages
        times, spent = [], []
        warm = time.perf_counter() + WARM_UP_S
        while time.perf_counter() < warm:
            work()
        for _ in range(ROUNDS):
            started, before = time.perf_counter(), seconds_of_children()
            work()
            times.append(time.perf_counter() - started)
            spent.append(seconds_of_children() - before)
        cpu_us = median(spent) * 1e6 / rows
        self._note(Figure(name, rows / median(times) / 1e6, aim=aim, cpu_us=cpu_us))
        return median(times)

    def _note(self, figure: Figure) -> None:
        self.figures.append(figure)
        aim = "" if figure.aim is None else f" (to be reached: {figure.aim:g})"
        cpu = "" if figure.cpu_us is None else f" {figure.cpu_us:6.2f} us of CPU a row"
        print(f"{figure.work:62s} {figure.value:8.2f} {figure.unit}{cpu}{aim}", flush=True)


def drain(frame: Any) -> None:
    """Pass every column of every row to the JVM and drop it."""
    frame.write.format("noop").mode("overwrite").save()


def by_tag(frame: Any) -> None:
    """Count messages by tag."""
    frame.groupBy("tags").count().collect()


if __name__ == "__main__":
    main()
