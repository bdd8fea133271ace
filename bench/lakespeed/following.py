"""``PYTHONPATH=bench:tests python -m lakespeed.following``: sends of 128 bytes, 4 x 32 in flight,
with and without `lakeTopics`, in turns; each turn has a broker and a table of its own.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
from pathlib import Path

import click
from harness.wire import Wire
from sidebyside.brokers import create_topic

from congreve.broker.broker import Broker
from congreve.broker.config import BrokerConfig
from congreve.broker.config_parts import LakeConfig
from congreve.console.loadgen import generator
from congreve.console.loadgen.generator import Load, LoadResult
from congreve.engine.config import StoreConfig
from congreve.lake.table import open_catalog

READY_S = 5.0
"""The exporter's imports are over, and it follows."""


async def turn(folder: Path, seconds: float, lag_ms: int, *, followed: bool) -> LoadResult:
    """One run of the generator against a new broker."""
    load = Load(warmup=2.0, duration=seconds)
    config = config_of(folder, load.topic if followed else "", lag_ms)
    async with Broker(config) as broker:
        await asyncio.to_thread(create_load_topic, broker.address, load.queues)
        await asyncio.sleep(READY_S)
        return await asyncio.to_thread(generator.run, broker.port, load)


def config_of(folder: Path, followed: str, lag_ms: int) -> BrokerConfig:
    """A broker that exports the topics `followed`."""
    return BrokerConfig(
        broker_ip1="127.0.0.1",
        bind_address="127.0.0.1",
        listen_port=0,
        lake=LakeConfig(topics=followed, warehouse=str(folder / "lake"), lag_millis=lag_ms),
        store=StoreConfig(root_dir=str(folder / "store"), flush_disk_type="ASYNC_FLUSH"),
    )


def create_load_topic(address: str, queues: int) -> None:
    """Create the topic of the load."""
    with Wire(address) as wire:
        create_topic(wire, Load().topic, queues)


def rows(folder: Path) -> int:
    """The rows in the table; the last commit may have ended with the broker."""
    table = open_catalog(str(folder / "lake")).load_table(f"rocketmq.{Load().topic}")
    snapshot = table.current_snapshot()
    assert snapshot is not None and snapshot.summary is not None
    return int(snapshot.summary["total-records"])


@click.command()
@click.option("--turns", default=3, show_default=True)
@click.option("--seconds", default=6.0, show_default=True)
@click.option("--lag-ms", default=10_000, show_default=True)
def main(turns: int, seconds: float, lag_ms: int) -> None:
    """Print a row for each turn, and the median of the shares."""
    shares = []
    for _ in range(turns):
        rates = []
        for followed in (False, True):
            with tempfile.TemporaryDirectory() as folder:
                result = asyncio.run(turn(Path(folder), seconds, lag_ms, followed=followed))
                p50, p99 = result.percentiles_ms(50, 99)
                added = f"{rows(Path(folder)):10,} rows" if followed else ""
                click.echo(
                    f"{'followed' if followed else 'alone':8} {result.rate:10,.0f} msg/s "
                    f"p50 {p50:.2f} ms  p99 {p99:.2f} ms {added}"
                )
                rates.append(result.rate)
        shares.append(rates[1] / rates[0])
    click.echo(f"share {statistics.median(shares):.2f}")


if __name__ == "__main__":
    main()
