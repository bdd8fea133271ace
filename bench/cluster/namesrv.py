"""``python -m cluster.namesrv``: a name server of many brokers with many topics.

    PYTHONPATH=bench:tests python -m cluster.namesrv --brokers 300 --topics 10000

Simulated brokers register over a connection each, with the frames of real ones, while another
process asks for routes each 5 ms. Measured are the time and the processor time of registrations,
of a period without changes, of a restart of the name server and of the deaths of a tenth of the
brokers, and the memory of an entry (a topic on a broker). `--own`: each broker has its own topics.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy
from harness import servers
from harness.wire import Wire
from sidebyside import process
from sidebyside.report import write_json

from congreve.remoting.messages.bodies import TopicRouteData
from congreve.remoting.messages.codes import RequestCode

from .simulated import Bodies, Brokers, query, topic

RESULTS = Path(__file__).parent.parent / "results"
LOOKS_S = 0.2
SAMPLE = 50


def levels(values: list[float]) -> dict[str, float]:
    """p50, p99 and the longest."""
    p50, p99 = numpy.percentile(values, [50, 99], method="higher")
    return {"p50": round(float(p50), 2), "p99": round(float(p99), 2), "max": round(max(values), 2)}


class Measured:
    """One name server under measurement; each step gives a row of figures."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.options = options
        self.server = servers.namesrv(options.server, folder)
        self.rows: list[dict[str, Any]] = []
        owner = 0 if options.own else None
        step = max(1, options.topics // SAMPLE)
        self.asked = [topic(owner, number) for number in range(0, options.topics, step)]
        self.pool = ProcessPoolExecutor(1)

    def begin(self) -> None:
        """Start the name server."""
        self.server.start()

    @property
    def pid(self) -> int:
        """The process id of the name server."""
        assert self.server.process is not None
        return self.server.process.pid

    async def step(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        """Time one step, with queries beside it."""
        loop = asyncio.get_running_loop()
        before, since = self.pid, time.perf_counter()
        cpu = process.cpu_seconds(before)
        asked = loop.run_in_executor(
            self.pool, query, self.server.address, before, self.asked, self.options.seconds
        )
        await work()
        taken = time.perf_counter() - since
        used = process.cpu_seconds(self.pid) - (cpu if self.pid == before else 0.0)
        queries = await asked
        beside = [answer for answer in queries if answer.at_s <= max(taken, 1.0)]
        row = {
            "step": name,
            "seconds": round(taken, 2),
            "cpuSeconds": round(used, 2),
            "cpuMillisOfBroker": round(used * 1e3 / self.options.brokers, 2),
            "memoryMiB": round(process.memory(self.pid).anonymous, 1),
            "queries": len(beside),
            "queryMillis": levels([answer.waited for answer in beside]),
        }
        if self.pid == before:
            row["queryMillisWithCores"] = levels([answer.with_cores for answer in beside])
        print(json.dumps(row), flush=True)
        self.rows.append(row)

    def brokers_of(self, name: str) -> int:
        """How many brokers the route of a topic has."""
        with Wire(self.server.address) as wire:
            answer = wire.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": name})
        return 0 if answer.code else len(TopicRouteData.decode(answer.body).broker_datas)


async def run(measured: Measured) -> None:
    """All steps, in order."""
    options = measured.options
    bodies = Bodies(options.topics, own=options.own, in_parts=not options.java_brokers)
    brokers = Brokers(options.brokers, bodies, measured.server.address, java=options.java_brokers)
    expected = 1 if options.own else options.brokers
    dead = range(options.brokers // 10)
    last = options.topics - 1

    async def restart() -> None:
        await asyncio.to_thread(measured.server.kill)
        await asyncio.to_thread(measured.begin)
        await brokers.register()

    async def deaths() -> None:
        await brokers.die(dead)
        name = topic(dead[-1] if options.own else None, last)
        while measured.brokers_of(name) != (0 if options.own else expected - len(dead)):
            await asyncio.sleep(LOOKS_S)

    await measured.step("register", brokers.register)
    assert measured.brokers_of(measured.asked[-1]) == expected
    await measured.step("unchanged", brokers.repeat)
    await measured.step("restart", restart)
    assert measured.brokers_of(measured.asked[-1]) == expected
    await measured.step("deaths", deaths)
    await brokers.close()


def main(argv: list[str] | None = None) -> int:
    """Run the benchmark; the result is written to `--results`."""
    parser = argparse.ArgumentParser(prog="cluster.namesrv", description=__doc__)
    parser.add_argument("--brokers", type=int, default=300)
    parser.add_argument("--topics", type=int, default=10_000, help="of each broker")
    parser.add_argument("--own", action="store_true", help="each broker has its own topics")
    parser.add_argument("--server", choices=("congreve", "java"), default="congreve")
    parser.add_argument("--java-brokers", action="store_true", help="send as RocketMQ's do")
    parser.add_argument("--seconds", type=float, default=40.0, help="of queries in each step")
    parser.add_argument("--results", type=Path, default=RESULTS / "namesrv.json")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        measured = Measured(options, Path(folder))
        try:
            measured.begin()
            asyncio.run(run(measured))
        finally:
            measured.pool.shutdown()
            measured.server.kill()
    document = {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "commit": process.commit(),
        "machine": process.machine(),
        **{name: getattr(options, name) for name in ("brokers", "topics", "own", "server")},
        "javaBrokers": options.java_brokers,
        "steps": measured.rows,
    }
    write_json(options.results, document)
    return 0


if __name__ == "__main__":
    sys.exit(main())
