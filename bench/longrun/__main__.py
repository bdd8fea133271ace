"""``python -m longrun``: sends in an open loop with SYNC_FLUSH, in minutes; table and JSON.

The log has 4 GB first. Then, beside the sends: a consumer reads the oldest messages as fast as new
ones come, segments are deleted as fast as new ones are written, metrics are scraped each five
seconds, and checkpoints are written. A server that only answers gets the same load first, so that
a reader sees what the machine itself does to latencies.
"""

from __future__ import annotations

import contextlib
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import click
import msgspec
from harness.servers import free_port
from harness.wire import Wire
from rich.console import Console
from sidebyside import process
from sidebyside.brokers import Running, create_topic, running
from sidebyside.options import DATA, ROOT
from sidebyside.report import write_json

from congreve.console.loadgen import generator
from congreve.console.loadgen.generator import Load, LoadResult

TOPIC = "long"
QUEUES = 8
HIGHEST_S = 10.0
ALONE_S = 60.0
SLOW_MS = 20
SCRAPE_S = 5.0
SAMPLE_S = 10.0
BATCH = 32
SEGMENT_SIZE = 64 << 20
GIBIBYTE = 1 << 30
DELETED_A_ROUND = 10
"""Segments that a round of deletion removes at most, as in RocketMQ."""
SETTINGS = {
    "mappedFileSizeCommitLog": str(SEGMENT_SIZE),
    "deleteWhen": ";".join(f"{hour:02d}" for hour in range(24)),
    "slowRequestMillis": str(SLOW_MS),
}


class Beside:
    """What happens beside sends of `rate` messages a second, and what it saw."""

    def __init__(self, broker: Running, metrics: str, rate: float, seconds: float) -> None:
        self._broker = broker
        self._seconds = seconds
        self._metrics = metrics
        self._rate = rate
        self._done = threading.Event()
        self.memory: list[float] = []
        self.log_bytes: list[int] = []
        self.scrapes = 0
        self.read = 0
        self.deleted: set[str] = set()
        self._seen: set[str] = set()

    @contextlib.contextmanager
    def going(self) -> Iterator[None]:
        """Run until the block ends. A failed part raises there."""
        parts = (
            lambda: self._again(self._scrape, SCRAPE_S),
            lambda: self._again(self._sample, SAMPLE_S),
            lambda: self._again(self._watch_segments, 1.0),
            self._read_oldest,
        )
        with ThreadPoolExecutor(len(parts)) as threads:
            running = [threads.submit(part) for part in parts]
            try:
                yield
            finally:
                self._done.set()
            for part in running:
                part.result()

    def _again(self, call: Callable[[], None], pause: float) -> None:
        while not self._done.wait(pause):
            call()

    def _scrape(self) -> None:
        with urllib.request.urlopen(self._metrics, timeout=30) as answer:
            answer.read()
        self.scrapes += 1

    def _sample(self) -> None:
        self.memory.append(process.memory(self._broker.pid).anonymous)

    def _watch_segments(self) -> None:
        there = segments(self._broker)
        self.deleted |= self._seen - there
        self._seen |= there
        self.log_bytes.append(len(there) * SEGMENT_SIZE)

    def _read_oldest(self) -> None:
        """Pull each queue from its oldest message on, as many messages a second as come.

        The load generator does that: a consumer in Python would take half of a core.
        """
        load = Load(
            mode="pull",
            topic=TOPIC,
            queues=QUEUES,
            connections=QUEUES,
            inflight=1,
            batch=BATCH,
            rate=self._rate / BATCH,
            warmup=0,
            duration=self._seconds,
        )
        self.read = generator.run(self._broker.port, load).all_messages


def segments(broker: Running) -> set[str]:
    """Names of the log's files."""
    return {path.name for path in (broker.server.store / "commitlog").iterdir()}


def fill(broker: Running, load: Load, behind: int) -> int:
    """Store messages until the log is as large as the consumer shall be behind; bytes of one."""
    count = 0
    while (stored := len(segments(broker)) * SEGMENT_SIZE) < behind + 2 * SEGMENT_SIZE:
        more = msgspec.structs.replace(load, rate=0, warmup=0, count=1_000_000)
        count += generator.run(broker.port, more).all_messages
    return stored // count


def highest_rate(port: int, load: Load, seconds: float) -> float:
    """Sends a second in a closed loop."""
    load = msgspec.structs.replace(load, rate=0, warmup=1, duration=min(seconds, HIGHEST_S))
    return generator.run(port, load).rate


def figures(found: LoadResult) -> dict[str, float]:
    """Latencies in ms from when a send was due."""
    levels = (50.0, 99.0, 99.9, 99.99, 100.0)
    return dict(
        zip(("p50", "p99", "p99.9", "p99.99", "max"), found.percentiles_ms(*levels), strict=True)
    )


@click.command()
@click.option("--minutes", type=click.FloatRange(0.05), default=30.0, show_default=True)
@click.option("--rate", type=click.FloatRange(1), default=100_000.0, show_default=True)
@click.option("--share", type=click.FloatRange(0.05, 1), default=0.6, show_default=True)
@click.option("--behind", type=click.FloatRange(0), default=4.0, show_default=True, help="GiB.")
@DATA
@click.option("--results", type=click.Path(path_type=Path), default=ROOT / "bench" / "results")
def main(
    minutes: float, rate: float, share: float, behind: float, data: Path, results: Path
) -> None:
    """Send at RATE a second, or at SHARE of the broker's highest rate where that is less, while a
    consumer is BEHIND."""
    console = Console(soft_wrap=True)
    load = Load(topic=TOPIC, queues=QUEUES, connections=64, inflight=64, warmup=5)
    metrics_port = free_port()
    settings = {**SETTINGS, "metricsPort": str(metrics_port)}
    with running("congreve", data, flush="SYNC_FLUSH", own=settings) as broker:
        with Wire(broker.server.address) as wire:
            create_topic(wire, TOPIC, QUEUES)
        size = fill(broker, load, int(behind * GIBIBYTE))
        seconds = 60 * minutes
        highest = highest_rate(broker.port, load, seconds)
        load = msgspec.structs.replace(load, rate=min(rate, highest * share), duration=seconds)
        with generator.sink() as (port, _):
            short = msgspec.structs.replace(load, duration=min(seconds, ALONE_S))
            alone = generator.run(port, short)
        pause_ms = 1000 * DELETED_A_ROUND * SEGMENT_SIZE / (size * load.rate)
        broker.restart(fileReservedTime="0", cleanResourceInterval=str(int(pause_ms)))
        beside = Beside(broker, f"http://127.0.0.1:{metrics_port}/metrics", load.rate, seconds)
        before = process.cpu_seconds(broker.pid)
        with beside.going():
            sent = generator.run(broker.port, load)
        spent = process.cpu_seconds(broker.pid) - before
        log = broker.server.log.read_text(errors="replace")
    slow = [line for line in log.splitlines() if "took" in line and "ms" in line]
    document: dict[str, object] = {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "commit": process.commit(),
        "machine": process.machine(),
        "minutes": minutes,
        "highestRate": highest,
        "rate": load.rate,
        "messages": sent.messages,
        "failures": sent.failures,
        "broker": figures(sent),
        "onlyAnswers": figures(alone),
        "cpuUsAMessage": spent * 1e6 / max(1, sent.all_messages),
        "memoryMiB": beside.memory,
        "logMiB": {name: f(beside.log_bytes) >> 20 for name, f in (("least", min), ("most", max))},
        "segmentsDeleted": len(beside.deleted),
        "scrapes": beside.scrapes,
        "readByTheConsumer": beside.read,
        "slowRequests": slow,
    }
    console.print_json(msgspec.json.encode(document).decode())
    write_json(results / "longrun.json", document)
    sent.write_histogram(results / "longrun.hgrm")


if __name__ == "__main__":
    main()
