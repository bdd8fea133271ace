"""``python -m longrun``: sends in an open loop with SYNC_FLUSH, in minutes; table and JSON.

Beside the sends run: a reader of the oldest messages of the log, a scrape of the metrics each five
seconds, the deletion of expired segments, and checkpoints. A server that only answers gets the
same load first, so that a reader sees what the machine itself does to latencies.
"""

from __future__ import annotations

import contextlib
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec
from harness.servers import free_port
from harness.wire import PULL_MESSAGE, Wire, pull_fields
from rich.console import Console
from sidebyside import process
from sidebyside.brokers import create_topic, running
from sidebyside.options import DATA, ROOT
from sidebyside.report import write_json

from congreve.console.loadgen import generator
from congreve.console.loadgen.generator import Load, LoadResult

TOPIC = "long"
QUEUES = 8
HIGHEST_S = 10.0
SLOW_MS = 20
SCRAPE_S = 5.0
SAMPLE_S = 10.0
GET_MIN_OFFSET = 31
SETTINGS = {
    "mappedFileSizeCommitLog": str(64 << 20),
    "fileReservedTime": "0",
    "deleteWhen": ";".join(f"{hour:02d}" for hour in range(24)),
    "slowRequestMillis": str(SLOW_MS),
}


class Beside:
    """What happens beside the sends, and what it saw."""

    def __init__(self, broker, metrics: str) -> None:
        self._broker = broker
        self._metrics = metrics
        self._done = threading.Event()
        self.memory: list[float] = []
        self.scrapes = 0
        self.read = 0
        self.deleted: set[str] = set()
        self._seen: set[str] = set()

    @contextlib.contextmanager
    def going(self) -> Iterator[None]:
        """Run until the block ends."""
        threads = [
            threading.Thread(target=self._again, args=(call, pause))
            for call, pause in (
                (self._scrape, SCRAPE_S),
                (self._sample, SAMPLE_S),
                (self._watch_segments, 1.0),
                (self._read_oldest, 0.0),
            )
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._done.set()
            for thread in threads:
                thread.join()

    def _again(self, call, pause: float) -> None:
        while not self._done.is_set():
            call()
            self._done.wait(pause)

    def _scrape(self) -> None:
        with urllib.request.urlopen(self._metrics, timeout=30) as answer:
            answer.read()
        self.scrapes += 1

    def _sample(self) -> None:
        self.memory.append(process.memory(self._broker.pid).anonymous)

    def _watch_segments(self) -> None:
        there = {path.name for path in (self._broker.server.store / "commitlog").iterdir()}
        self.deleted |= self._seen - there
        self._seen |= there

    def _read_oldest(self) -> None:
        """Pull the first messages that the log still has, for a second."""
        with Wire(self._broker.server.address) as wire:
            place = {"topic": TOPIC, "queueId": "0"}
            offset = int(wire.call(GET_MIN_OFFSET, place).fields["offset"])
            until = time.monotonic() + 1.0
            while time.monotonic() < until and not self._done.is_set():
                answer = wire.call(PULL_MESSAGE, pull_fields(TOPIC, 0, offset, 32))
                if answer.code != 0:
                    return
                offset = int(answer.fields["nextBeginOffset"])
                self.read += 1


def highest_rate(port: int, load: Load) -> float:
    """Sends a second in a closed loop."""
    load = msgspec.structs.replace(load, rate=0, warmup=1, duration=HIGHEST_S)
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
@DATA
@click.option("--results", type=click.Path(path_type=Path), default=ROOT / "bench" / "results")
def main(minutes: float, rate: float, share: float, data: Path, results: Path) -> None:
    """Send at RATE a second, or at SHARE of the broker's highest rate where that is less."""
    console = Console(soft_wrap=True)
    load = Load(topic=TOPIC, queues=QUEUES, connections=64, inflight=64, warmup=5)
    metrics_port = free_port()
    settings = {**SETTINGS, "metricsPort": str(metrics_port)}
    with running("congreve", data, flush="SYNC_FLUSH", own=settings) as broker:
        with Wire(broker.server.address) as wire:
            create_topic(wire, TOPIC, QUEUES)
        highest = highest_rate(broker.port, load)
        load = msgspec.structs.replace(load, rate=min(rate, highest * share), duration=60 * minutes)
        with generator.sink() as (port, _):
            alone = generator.run(port, msgspec.structs.replace(load, duration=60.0))
        beside = Beside(broker, f"http://127.0.0.1:{metrics_port}/metrics")
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
        "segmentsDeleted": len(beside.deleted),
        "scrapes": beside.scrapes,
        "pullsOfTheOldest": beside.read,
        "slowRequests": slow,
    }
    console.print_json(msgspec.json.encode(document).decode())
    write_json(results / "longrun.json", document)


if __name__ == "__main__":
    main()
