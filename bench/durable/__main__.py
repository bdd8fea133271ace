"""``python -m durable``: 64 connections with one message of 1 KiB in flight each, on one disk.

Congreve answers when a message is on disk. JetStream and Kafka run twice: with their defaults,
which answer before that, and so that each answer is synced. Each gets its own load tool.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import click
import msgspec
from harness.wire import Wire
from rich.console import Console
from sidebyside import process
from sidebyside.brokers import create_topic, running
from sidebyside.options import DATA, ROOT
from sidebyside.report import write_json

from congreve.console.loadgen import generator
from congreve.console.loadgen.generator import Load

from . import servers
from .servers import Measured

Send = Callable[[float], Measured]
"""Sends at a rate, or as fast as possible with 0."""
LOAD = Load(connections=servers.CONNECTIONS, inflight=1, size=servers.SIZE, topic="bench")
OPEN_INFLIGHT = 64


@contextmanager
def congreve(data: Path, seconds: float, messages: int) -> Iterator[Send]:
    """Our broker with SYNC_FLUSH, and the sends of our generator."""

    def send(rate: float) -> Measured:
        load = msgspec.structs.replace(
            LOAD, rate=rate, duration=seconds, inflight=OPEN_INFLIGHT if rate else 1
        )
        found = generator.run(broker.port, load)
        return Measured(found.rate, found.percentiles_ms(99)[0])

    with running("congreve", data, flush="SYNC_FLUSH") as broker:
        with Wire(broker.server.address) as wire:
            create_topic(wire, LOAD.topic, LOAD.queues)
        yield send


def other(kind: str, strict: bool):
    """A server with its load tool, as congreve()."""

    @contextmanager
    def start(data: Path, seconds: float, messages: int) -> Iterator[Send]:
        shutil.rmtree(data, ignore_errors=True)
        data.mkdir(parents=True)
        server, tool = (
            (servers.jetstream(data, sync_always=strict), servers.send_to_jetstream)
            if kind == "jetstream"
            else (servers.kafka(data, flush_each=strict), servers.send_to_kafka)
        )
        with server as port:
            tool(port, seconds, rate=0, messages=messages // 4)  # what is compiled at run time
            yield lambda rate: tool(port, seconds, rate=rate, messages=messages)
        shutil.rmtree(data, ignore_errors=True)

    return start


CANDIDATES = {
    "Congreve, SYNC_FLUSH": congreve,
    "JetStream, default (syncs each 2 min)": other("jetstream", strict=False),
    "JetStream, sync always": other("jetstream", strict=True),
    "Kafka, default (never syncs itself)": other("kafka", strict=False),
    "Kafka, flush.messages=1": other("kafka", strict=True),
}
BASE = "JetStream, default (syncs each 2 min)"


@click.command()
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True)
@click.option("--seconds", type=click.FloatRange(1), default=10.0, show_default=True)
@click.option("--messages", type=click.IntRange(1_000), default=200_000, show_default=True)
@DATA
@click.option("--results", type=click.Path(path_type=Path), default=ROOT / "bench" / "results")
def main(rounds: int, seconds: float, messages: int, data: Path, results: Path) -> None:
    """Rates in turns, then p99 of each at half of the highest rate of JetStream's default."""
    console = Console(soft_wrap=True)
    rates: dict[str, list[float]] = {name: [] for name in CANDIDATES}
    p99: dict[str, list[float]] = {name: [] for name in CANDIDATES}
    for number in range(rounds):
        for name, start in CANDIDATES.items():
            with start(data / "durable", seconds, messages) as send:
                rates[name].append(send(0).rate)
            console.print(f"round {number + 1} {name}: {rates[name][-1]:,.0f} messages/s")
    half = median(rates[BASE]) / 2
    for number in range(rounds):
        for name, start in CANDIDATES.items():
            if median(rates[name]) < half:
                continue
            with start(data / "durable", seconds, messages) as send:
                p99[name].append(send(half).p99_ms)
            console.print(f"round {number + 1} {name}: p99 {p99[name][-1]:.3f} ms at {half:,.0f}/s")
    table = [
        {
            "server": name,
            "messagesPerSecond": median(rates[name]),
            "toJetStream": median(rates[name]) / median(rates[BASE]),
            "p99MsAtHalfOfJetStream": median(p99[name]) if p99[name] else None,
        }
        for name in CANDIDATES
    ]
    document = {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "commit": process.commit(),
        "machine": process.machine(),
        "table": table,
        "rates": rates,
        "p99Ms": p99,
    }
    console.print_json(msgspec.json.encode(table).decode())
    write_json(results / "durable.json", document)


if __name__ == "__main__":
    main()
