"""``PYTHONPATH=bench:tests python -m lakespeed.consuming``: a Java 4.9.4 push consumer that reads a
topic of 128-byte messages from the first offset on, with orderly listeners: from a log that has all
messages, and from a broker whose log has the last ones and whose table has the others. In turns.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import click
from harness import servers
from harness.drivers import Driver
from sparkspeed import store

import congreve
from congreve.client.admin import AdminClient
from congreve.engine.state.exported import ExportedFile
from congreve.lake.durable import SCHEMA, DurableTopic
from congreve.lake.export import Exporter
from congreve.lake.table import TopicTable, open_catalog
from congreve.node import Node

RESULT = Path(__file__).parents[1] / "results" / "lake-consuming.json"
SEGMENT = 16 << 20
FROM_LOG, ACROSS_SEAM = "the log", "table and log"
TIMEOUT_MS = 600_000
COMMON = {
    "brokerName": store.BROKER,
    "mappedFileSizeCommitLog": SEGMENT,
    "messageIndexEnable": "false",
    "flushDiskType": "ASYNC_FLUSH",
    "fileReservedTime": 1_000_000,
    "deleteCommitLogFilesInterval": 0,
}


def export(root: Path, warehouse: Path) -> None:
    """Fill the table, and note in the store what it has."""
    table = TopicTable(open_catalog(str(warehouse)), f"rocketmq.{store.TOPIC}", SCHEMA, "day")
    exporter = Exporter(DurableTopic(root, store.TOPIC, store.BROKER), table)
    exporter.run()
    noted = ExportedFile(str(root / "congreve"))
    noted.replace({store.TOPIC: exporter.exported()})


@contextmanager
def serving(folder: Path, **settings: object) -> Iterator[Node]:
    """A broker on the store in a folder, with the topic."""
    with congreve.serve(folder, **COMMON, **settings) as node:

        async def create() -> None:
            async with AdminClient(node.address) as admin:
                await admin.create_topic(store.TOPIC, queues=store.QUEUES)

        asyncio.run(create())
        yield node


def remove_segments(node: Node) -> float:
    """Let retention remove what the table has; returns the share of the log that is left."""
    log, deadline = node.broker.store.log, time.monotonic() + 120
    while log.max_offset - log.min_offset > 2 * SEGMENT:
        assert time.monotonic() < deadline, f"the log still begins at {log.min_offset}"
        node.broker.store.clean_expired()
        time.sleep(0.1)
    return (log.max_offset - log.min_offset) / log.max_offset


def turn(driver: Driver, node: Node, messages: int, number: int) -> dict[str, float]:
    """Messages a second, and CPU of this process (the broker) for each of them in us."""
    before = time.process_time()
    seen = driver.call(
        "consume",
        namesrv=node.address,
        topic=store.TOPIC,
        group=f"readers-{number}",
        count=messages,
        timeoutMs=TIMEOUT_MS,
    )
    assert seen["all"] and not seen["wrong"], seen
    cpu = time.process_time() - before
    return {"rate": messages / seen["seconds"], "cpu_us": cpu / messages * 1e6}


@click.command()
@click.option("--messages", default=600_000, show_default=True)
@click.option("--turns", default=3, show_default=True)
@click.option("--result", type=click.Path(path_type=Path), default=RESULT, show_default=True)
def main(messages: int, turns: int, result: Path) -> None:
    """Print a row for each turn, and write the medians."""
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        store.fill(scratch / "log" / "store", messages, segment_bytes=SEGMENT)
        shutil.copytree(scratch / "log", scratch / "seam")
        warehouse = scratch / "lake"
        export(scratch / "seam" / "store", warehouse)
        beyond = {"lakeTopics": store.TOPIC, "lakeWarehouse": warehouse, "lakeRetention": "true"}
        nodes = {
            FROM_LOG: stack.enter_context(serving(scratch / "log")),
            ACROSS_SEAM: stack.enter_context(
                serving(scratch / "seam", lakeReservedTime=0, lakeLagMillis=60_000, **beyond)
            ),
        }
        left = remove_segments(nodes[ACROSS_SEAM])
        click.echo(f"{messages:,} messages, of which the log has {left:.0%} and the table the rest")
        command = servers.java_command(scratch / "home", 768, jvm=("-Xms768m", "-XX:+UseG1GC"))
        driver = Driver([*command, "congreve.interop.Driver"], scratch, "java-client")
        stack.callback(driver.close)
        found: dict[str, list[dict[str, float]]] = {name: [] for name in nodes}
        for number in range(turns + 1):  # the first one warms the JVM up
            for name, node in nodes.items():
                one = turn(driver, node, messages, number)
                click.echo(f"{name:14} {one['rate']:10,.0f} msg/s {one['cpu_us']:6.2f} us of CPU")
                if number:
                    found[name].append(one)
    medians = {
        name: {key: round(statistics.median(one[key] for one in ones), 2) for key in ones[0]}
        for name, ones in found.items()
    }
    result.write_text(json.dumps({"messages": messages, "log_share": left, **medians}, indent=1))


if __name__ == "__main__":
    main()
