"""``PYTHONPATH=bench:tests python -m lakespeed.lag``: the time from the storage of a message to its
visibility in the table, while a broker with `lakeTopics` gets `--rate` messages of 128 bytes in
each second. The result is added to `results/lake-lag.json`.

The lag of a commit is that of its oldest message: the time of the snapshot less the least store
time of the files that it added.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import click
from pyiceberg.manifest import ManifestEntryStatus
from pyiceberg.table import Table

from congreve.broker.broker import Broker
from congreve.console.loadgen import generator
from congreve.console.loadgen.generator import Load
from congreve.lake.table import open_catalog
from lakespeed.following import READY_S, config_of, create_load_topic

RESULT = Path(__file__).parents[1] / "results" / "lake-lag.json"


async def run(folder: Path, rate: int, seconds: int, lag_ms: int, nice: int | None) -> float:
    """Send, and wait until the table has all messages; returns the rate that was reached."""
    load = Load(warmup=0.0, count=rate)
    async with Broker(config_of(folder, load.topic, lag_ms)) as broker:
        await asyncio.to_thread(create_load_topic, broker.address, load.queues)
        await asyncio.sleep(READY_S)
        if nice is not None:
            os.setpriority(os.PRIO_PROCESS, broker._beside.lake.pid, nice)
        begun = time.monotonic()
        for number in range(seconds):
            await asyncio.to_thread(generator.run, broker.port, load)
            await asyncio.sleep(max(0.0, begun + number + 1 - time.monotonic()))
        reached = rate * seconds / (time.monotonic() - begun)
        await asyncio.sleep(2 * lag_ms / 1000)
    return reached


def table_of(folder: Path) -> Table:
    """The table of the load's topic."""
    return open_catalog(str(folder / "lake")).load_table(f"rocketmq.{Load().topic}")


def lags(table: Table) -> Iterator[tuple[float, int]]:
    """The lag of each commit in seconds, and its messages."""
    field = table.schema().find_field("storeTimestamp").field_id
    for snapshot in table.snapshots():
        added = [
            entry.data_file
            for manifest in snapshot.manifests(table.io)
            if manifest.added_snapshot_id == snapshot.snapshot_id
            for entry in manifest.fetch_manifest_entry(table.io)
            if entry.status == ManifestEntryStatus.ADDED
        ]
        if added:
            oldest = min(int.from_bytes(file.lower_bounds[field], "little") for file in added)
            yield (
                snapshot.timestamp_ms / 1000 - oldest / 1e6,
                sum(file.record_count for file in added),
            )


@click.command()
@click.option("--rate", default=100_000, show_default=True, help="Messages a second.")
@click.option("--seconds", default=60, show_default=True)
@click.option("--lag-ms", default=10_000, show_default=True, help="lakeLagMillis.")
@click.option("--nice", type=int, help="Of the exporter, for a machine with other work.")
@click.option("--result", type=click.Path(path_type=Path), default=RESULT)
def main(rate: int, seconds: int, lag_ms: int, nice: int | None, result: Path) -> None:
    """Print the lags of all commits, and add them to the result."""
    with tempfile.TemporaryDirectory() as folder:
        reached = asyncio.run(run(Path(folder), rate, seconds, lag_ms, nice))
        found = list(lags(table_of(Path(folder))))
    for lag, rows in found:
        click.echo(f"{rows:12,} rows, the oldest {lag:6.1f} s before its commit")
    times = [lag for lag, _ in found]
    click.echo(
        f"{reached:,.0f} msg/s, lakeLagMillis={lag_ms}: median {statistics.median(times):.1f} s, "
        f"longest {max(times):.1f} s, {len(times)} commits, {sum(n for _, n in found):,} rows"
    )
    known = json.loads(result.read_text()) if result.exists() else []
    known.append(
        {
            **{"lakeLagMillis": lag_ms, "rate": round(reached), "load": os.getloadavg()[0]},
            **{"nice": nice, "commits": [[round(lag, 1), rows] for lag, rows in found]},
        }
    )
    result.write_text(json.dumps(known, indent=1) + "\n")


if __name__ == "__main__":
    main()
