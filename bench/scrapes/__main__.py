"""``python -m scrapes``: the time of a scrape of many queues and groups, and its cost for sends.

    PYTHONPATH=bench:tests python -m scrapes > bench/results/scrapes/scrapes.json

Sends of 100 bytes, one at a time with SYNC_FLUSH, are measured with a scrape each second and
without, in turns. The broker, its name server and the load generator are processes of their own.
The memory is that of a broker before it has topics, with a metrics port and without.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from consolepages.__main__ import cpu_s, fill, resident
from harness import servers

from congreve.console.loadgen.generator import Load, run

CLUSTER = "DefaultCluster"
PERCENTILES = (50.0, 99.0, 99.9)


class Scraper:
    """Requests /metrics each second in a thread, and keeps the times."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.seconds: list[float] = []
        self.lines = 0

    def scrape(self) -> None:
        """One scrape."""
        connection = http.client.HTTPConnection(servers.HOST, self._port, timeout=60)
        begin = time.perf_counter()
        connection.request("GET", "/metrics")
        text = connection.getresponse().read()
        self.seconds.append(time.perf_counter() - begin)
        self.lines = text.count(b"\n")
        connection.close()

    @contextmanager
    def each_second(self) -> Iterator[None]:
        """Scrape beside the work of the `with` block."""
        ended = threading.Event()

        def work() -> None:
            while not ended.wait(1.0):
                self.scrape()

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


@contextmanager
def broker_of(namesrv: str, folder: Path, **settings: str) -> Iterator[servers.BrokerServer]:
    """A broker with SYNC_FLUSH and its own store."""
    settings = {"brokerClusterName": CLUSTER, "flushDiskType": "SYNC_FLUSH", **settings}
    broker = servers.broker("congreve", folder, namesrv, settings=settings, watchdog_millis=0)
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()


def idle_mib(namesrv: str, folder: Path, **settings: str) -> float:
    """The resident memory of a broker that has just started."""
    with broker_of(namesrv, folder, **settings) as broker:
        time.sleep(2)
        assert broker.process is not None
        return round(resident(broker.process), 1)


def percentiles_ms(port: int, seconds: float) -> dict[str, float]:
    """Latencies of sends one at a time."""
    load = Load(connections=1, inflight=1, size=100, topic="topic-0001", duration=seconds, warmup=1)
    found = run(port, load).percentiles_ms(*PERCENTILES)
    return {f"p{level:g}": value for level, value in zip(PERCENTILES, found, strict=True)}


def measured(
    broker: servers.BrokerServer, metrics: int, rounds: int, seconds: float
) -> dict[str, object]:
    """Scrapes alone, then sends with scrapes and without."""
    assert broker.process is not None
    alone, beside = Scraper(metrics), Scraper(metrics)
    for _ in range(3):
        alone.scrape()
    alone.seconds.clear()
    before = cpu_s(broker.process)
    for _ in range(20):
        alone.scrape()
    cpu_ms = (cpu_s(broker.process) - before) * 1000 / 20
    turns: dict[str, list[dict[str, float]]] = {"without": [], "with": []}
    for _ in range(rounds):
        turns["without"].append(percentiles_ms(broker.port, seconds))
        with beside.each_second():
            turns["with"].append(percentiles_ms(broker.port, seconds))
    return {
        "lines": alone.lines,
        "scrape alone, ms": [round(1000 * each, 1) for each in sorted(alone.seconds)],
        "scrape alone, CPU ms": round(cpu_ms, 1),
        "scrape beside sends, median ms": round(1000 * median(beside.seconds), 1),
        "sends, ms": turns,
        "medians of p99.9, ms": {
            name: round(median(each["p99.9"] for each in found), 3) for name, found in turns.items()
        },
    }


def main() -> None:
    """Measure, and print JSON."""
    parser = argparse.ArgumentParser(prog="scrapes", description=__doc__)
    parser.add_argument("--topics", type=int, default=2_500, help="each has four queues")
    parser.add_argument("--groups", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=4.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as data:
        folder = Path(data)
        namesrv = servers.namesrv("congreve", folder / "namesrv")
        namesrv.start()
        try:
            metrics = servers.free_port()
            settings = {"metricsPort": str(metrics)}
            found: dict[str, object] = {
                "idle MiB": idle_mib(namesrv.address, folder / "idle"),
                "idle MiB with metrics": idle_mib(namesrv.address, folder / "watched", **settings),
            }
            with broker_of(namesrv.address, folder / "full", **settings) as broker:
                asyncio.run(fill(namesrv.address, options.topics, options.groups))
                found |= measured(broker, metrics, options.rounds, options.seconds)
            print(json.dumps(found, indent=1))
        finally:
            namesrv.kill()


if __name__ == "__main__":
    main()
