"""``python -m crossedpair``: a machine of a crossed pair is killed again and again.

    PYTHONPATH=bench:tests python -m crossedpair --kills 20

Each round kills -9 one of the two machines (name server, master, and the slave of the other one) at
a random moment, while producers of RocketMQ's Java client, of its Go client and of ours send to a
topic that both masters have. Each producer is new in each round, has the settings that its library
gives it, and sends one message after the other. All processes run on this machine. Needs a JDK,
Maven and Go.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from election import waits
from harness import build
from harness.cluster import Machine, await_route, crossed_pair, stores
from harness.drivers import Driver, java_driver
from harness.eventually import eventually
from harness.numbered_messages import Attempt, attempt_for_ever, reported
from harness.replication.replicas import await_equal_stores

from congreve.client import Producer
from congreve.client.admin import AdminClient

TOPIC = "Pairs"
CLUSTER = "DefaultCluster"
QUEUES = 4
WINDOW_S = 6.0
"""Longer than a send waits for its answer: 3 s in all three clients."""
PYTHON = "Python"
CLIENTS: dict[str, dict[str, object]] = {
    "Java": {},
    "Java, 8 threads": {"threads": 8},
    "Java, sendLatencyFaultEnable": {"latencyFault": True},
    "Go": {},
}


class Load:
    """A producer of each kind."""

    def __init__(self, namesrv: str, java: Driver, go: Driver, pause_ms: int) -> None:
        self._namesrv = namesrv
        self._pause_ms = pause_ms
        self._drivers = {name: go if name == "Go" else java for name in CLIENTS}
        self._python: list[Attempt] = []

    async def during(self, wait_s: float, kill: Machine) -> tuple[float, dict[str, list[Attempt]]]:
        """Kill the machine after that time; when, in ms, and the attempts of each client."""
        async with Producer(self._namesrv, group="p") as producer:
            sending = asyncio.create_task(
                attempt_for_ever(producer, TOPIC, self._python, pause_s=self._pause_ms / 1000)
            )
            for name, settings in CLIENTS.items():
                await self._call("attemptsStart", name, pauseMs=self._pause_ms, **settings)
            await asyncio.sleep(wait_s)
            killed = time.time() * 1000
            await asyncio.to_thread(kill.kill)
            await asyncio.sleep(WINDOW_S)
            sending.cancel()
        found = {name: await self._call("attemptsStop", name) for name in CLIENTS}
        python, self._python = self._python, []
        return killed, {PYTHON: python, **found}

    async def _call(self, do: str, name: str, **more: object) -> list[Attempt]:
        answer = await asyncio.to_thread(
            *(self._drivers[name].call, do), id=name, namesrv=self._namesrv, topic=TOPIC, **more
        )
        return reported(answer) if do == "attemptsStop" else []


def figures(name: str, attempts: Sequence[Attempt], killed: float) -> dict[str, float]:
    """What the kill did to a client: seconds, and a number of messages.

    Raises RuntimeError if the client did not know both masters before.
    """
    acknowledged = [each for each in attempts if each.broker]
    before = [each for each in acknowledged if each.ended_ms < killed]
    after = [each.ended_ms for each in acknowledged if each.ended_ms >= killed]
    disturbed = [each for each in attempts if each.ended_ms >= killed]
    if len({each.broker for each in before}) < 2 or not after:
        raise RuntimeError(f"{name}: {len(before)} sends before the kill, {len(after)} after it")
    ends = [before[-1].ended_ms, *after]
    pauses = [later - earlier for earlier, later in itertools.pairwise(ends)]
    next_one = min(each.ended_ms for each in acknowledged if each.began_ms >= killed)
    return {
        f"{name}: next acknowledgement": (next_one - killed) / 1000,
        f"{name}: longest pause": max(pauses) / 1000,
        f"{name}: longest send": max(each.ended_ms - each.began_ms for each in disturbed) / 1000,
        f"{name}: failed sends": sum(not each.broker for each in disturbed),
    }


async def one_kill(machines: list[Machine], victim: int, load: Load) -> dict[str, float]:
    """Kill one machine, and bring it back; the figures of all clients."""
    killed, attempts = await load.during(random.uniform(1, 2), machines[victim])
    row: dict[str, float] = {}
    for name, each in attempts.items():
        row |= figures(name, each, killed)
    await asyncio.to_thread(machines[victim].start)
    await asyncio.to_thread(catch_up, machines)
    return row


def catch_up(machines: list[Machine]) -> None:
    """Wait until both machines have everything, and both name servers know all brokers."""
    for one, other in (machines, machines[::-1]):
        await_equal_stores(*stores(one, other))
        await_route(one, machines, TOPIC)


async def measure(options: argparse.Namespace, folder: Path) -> list[dict[str, float]]:
    """All kills; a line of JSON for each."""
    machines = crossed_pair(folder, ["mappedFileSizeCommitLog=16777216"])
    drivers: list[Driver] = []
    rows: list[dict[str, float]] = []
    try:
        for machine in machines:
            await asyncio.to_thread(machine.start)
        both = ";".join(machine.namesrv for machine in machines)
        async with AdminClient(both) as admin:

            async def is_at_both() -> bool:
                made = await admin.create_topic(TOPIC, queues=QUEUES, cluster=CLUSTER)
                return len(made) == len(machines)

            # A name server learns of the other machine's master some seconds after its start.
            await eventually(is_at_both)
        await asyncio.to_thread(catch_up, machines)
        drivers = [java_driver(folder, "JSON"), Driver([str(build.go_driver())], folder, "go")]
        load = Load(both, drivers[0], drivers[1], options.pause_ms)
        for turn in range(options.kills):
            row = await one_kill(machines, turn % len(machines), load)
            rows.append(row)
            print(json.dumps({key: round(value, 3) for key, value in row.items()}))
            sys.stdout.flush()
    finally:
        for driver in drivers:
            driver.kill()
        for machine in machines:
            machine.kill()
    return rows


def main() -> None:
    """Print a line for each kill, then the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--pause-ms", type=int, default=0, help="between a client's sends")
    parser.add_argument("--results", type=Path, help="a JSON file for the table and all kills")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = asyncio.run(measure(options, Path(folder)))
    waits.report(rows, options.results, pauseMs=options.pause_ms)


if __name__ == "__main__":
    main()
