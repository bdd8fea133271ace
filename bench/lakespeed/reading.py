"""``PYTHONPATH=bench python -m lakespeed.reading``: what Spark makes of 128-byte messages.

All columns, messages by tag, the sum of sizes: from the table's files by Spark's own Parquet
reader, from the table by `union`, from the store's files (`storePath`),
and from a `snapshot` of the store, whose copying counts. local[2], in turns; compare within a turn.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

import click
from sparkspeed import store
from sparkspeed.processors import seconds_of_children

from congreve.lake.durable import SCHEMA, DurableTopic
from congreve.lake.export import Exporter
from congreve.lake.table import TopicTable, open_catalog
from congreve.spark.session import SETTINGS, UNIX_SOCKETS, local_session
from congreve.spark.snapshot import snapshot
from congreve.spark.union import union

RESULT = Path(__file__).parents[1] / "results" / "lake-reading.json"
PARQUET = "Spark's Parquet reader"
ALL, BY_TAG, SUM = "all columns", "count by tag", "sum of sizes"
WARM_UP = 4
"""Turns before the first one that counts: the JVM compiles the code in some of them."""


def works() -> dict[str, tuple[str, Callable[[Any], object]]]:
    """By name: the columns that a frame needs, and what is done with it."""
    return {
        ALL: ("all", lambda frame: frame.write.format("noop").mode("overwrite").save()),
        BY_TAG: ("tags", lambda frame: frame.groupBy("tags").count().collect()),
        SUM: ("storeSize", lambda frame: frame.groupBy().sum("storeSize").collect()),
    }


def frames(spark: Any, root: Path, warehouse: Path) -> dict[str, Callable[[str], Any]]:
    """By name: a frame with some columns."""
    table = open_catalog(str(warehouse)).load_table(f"rocketmq.{store.TOPIC}")
    paths = [task.file.file_path for task in table.scan().plan_files()]
    where = {"storePath": str(root), "brokerName": store.BROKER, "topic": store.TOPIC}
    lake = {**where, "lake": str(warehouse)}

    def source(options: dict[str, str]) -> Callable[[str], Any]:
        return lambda columns: (
            spark.read.format("rocketmq").options(**options, columns=columns).load()
        )

    return {
        PARQUET: lambda _: spark.read.parquet(*paths),
        "union": lambda columns: union(spark, {**lake, "columns": columns}),
        "storePath": source(where),
        "snapshot": lambda columns: copied(spark, {**where, "columns": columns}, root.parent),
    }


def copied(spark: Any, options: dict[str, str], parent: Path) -> Any:
    """A snapshot in place of the last one."""
    folder = parent / "snapshot"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return snapshot(spark, options, folder)


def cpu_seconds() -> float:
    """Those of this process, and of Spark and its workers."""
    return time.process_time() + seconds_of_children()


@click.command()
@click.option("--messages", default=2_000_000, show_default=True)
@click.option("--turns", default=5, show_default=True)
@click.option(
    "--work",
    "chosen",
    type=click.Choice([*works()]),
    multiple=True,
    default=[*works()],
    help="Repeatable; default: all.",
)
@click.option("--result", type=click.Path(path_type=Path), default=RESULT, show_default=True)
def main(messages: int, turns: int, chosen: tuple[str, ...], result: Path) -> None:
    """Print a row for each kind of work and reader, and write the medians."""
    figures: list[dict[str, object]] = []
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        root, warehouse = scratch / "store", scratch / "lake"
        store.fill(root, messages)
        table = TopicTable(open_catalog(str(warehouse)), f"rocketmq.{store.TOPIC}", SCHEMA, "day")
        Exporter(DurableTopic(root, store.TOPIC, store.BROKER), table).run()
        spark = local_session("lakespeed", settings={**SETTINGS, **UNIX_SOCKETS})
        stack.callback(spark.stop)
        readers = frames(spark, root, warehouse)
        for work in chosen:
            columns, run = works()[work]
            found: dict[str, list[tuple[float, float]]] = {name: [] for name in readers}
            for number in range(WARM_UP + turns):
                for name, frame in readers.items():
                    began, before = time.perf_counter(), cpu_seconds()
                    run(frame(columns))
                    spent = time.perf_counter() - began, cpu_seconds() - before
                    if number >= WARM_UP:
                        found[name].append(spent)
            for name, spent in found.items():
                share = median(p[0] / s[0] for p, s in zip(found[PARQUET], spent, strict=True))
                rate = messages / median(s[0] for s in spent) / 1e6
                cpu = median(s[1] for s in spent) / messages * 1e6
                click.echo(
                    f"{work:14} {name:24} {rate:6.2f} M rows/s {share:5.2f} {cpu:6.2f} us of CPU"
                )
                figures.append(
                    {
                        **{"work": work, "reader": name, "million_rows_a_second": round(rate, 2)},
                        **{"beside_parquet_reader": round(share, 2), "cpu_us": round(cpu, 2)},
                    }
                )
    result.write_text(json.dumps({"messages": messages, "figures": figures}, indent=1) + "\n")


if __name__ == "__main__":
    main()
