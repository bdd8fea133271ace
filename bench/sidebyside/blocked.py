"""``python -m sidebyside.blocked``: sends while the broker's event loop is blocked.

    PYTHONPATH=bench:tests python -m sidebyside.blocked

A callback of the loop sleeps for a second, again and again, as a slow handler would. It prints the
latencies beside it and without it, in turns.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path

import click
from harness.wire import Wire

from congreve.broker.broker import Broker
from congreve.broker.config import BrokerConfig
from congreve.console.loadgen import generator
from congreve.console.loadgen.generator import Load, LoadResult
from congreve.engine.config import StoreConfig
from sidebyside.brokers import create_topic

STALL_S = 1.0
BETWEEN_S = 0.05  # the loop runs, so that timers and letters are served
LOAD = Load(connections=8, inflight=1, warmup=1.0, duration=6.0)


async def under_load(broker: Broker, *, stalled: bool) -> LoadResult:
    """One run of the generator, beside a loop that is blocked or one that is idle."""
    running = asyncio.ensure_future(asyncio.to_thread(generator.run, broker.port, LOAD))
    while not running.done():
        if stalled:
            time.sleep(STALL_S)
        await asyncio.sleep(BETWEEN_S)
    return await running


async def measured(folder: Path, lanes: int, rounds: int) -> None:
    """Print the rows of one broker."""
    config = BrokerConfig(
        broker_ip1="127.0.0.1",
        bind_address="127.0.0.1",
        listen_port=0,
        network_threads=lanes,
        store=StoreConfig(root_dir=str(folder), flush_disk_type="ASYNC_FLUSH"),
    )
    async with Broker(config) as broker:
        await asyncio.to_thread(_create_topic, broker.address)
        for _ in range(rounds):
            for stalled in (False, True):
                result = await under_load(broker, stalled=stalled)
                if result.failures:
                    raise SystemExit(f"{result.failures} sends failed: {result.errors}")
                p50, p99, p999, worst = result.percentiles_ms(50, 99, 99.9, 100)
                click.echo(
                    f"{lanes} lanes, the loop {'is blocked' if stalled else 'is idle':10}"
                    f" {result.rate:9,.0f} msg/s  p50 {p50:.2f}  p99 {p99:.2f}  p99.9 {p999:.2f}"
                    f"  max {worst:.2f} ms"
                )


def _create_topic(address: str) -> None:
    with Wire(address) as wire:
        create_topic(wire, LOAD.topic, LOAD.queues)


@click.command()
@click.option("--lanes", default=1, show_default=True, help="networkThreads of the broker.")
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(min=1))
def main(lanes: int, rounds: int) -> None:
    """Sends while the broker's event loop is blocked for a second at a time."""
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(measured(Path(folder), lanes, rounds))


if __name__ == "__main__":
    main()
