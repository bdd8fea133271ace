"""``python -m election``: the master of an elected group is killed again and again.

    PYTHONPATH=bench:tests python -m election --kills 60

Each round kills -9 the master at a random moment, and measures the time until the name server names
the next one, and until the first message that a client sends after the kill to the same queue is
acknowledged. It also shows how old the consumer offsets of the new master are. All processes run on
this machine; two members, one etcd. Needs etcd, a JDK and Maven.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from pathlib import Path

from harness.drivers import Driver, java_driver
from harness.eventually import eventually
from harness.numbered_messages import Attempt, attempt_for_ever, reported
from harness.replication.elected_processes import GROUP, ElectedProcesses

from congreve.base.errors import CongreveError
from congreve.client import Producer
from congreve.client.admin import AdminClient
from congreve.client.message import MessageQueue
from congreve.remoting.messages.codes import RequestCode

from . import waits

TOPIC = "Switches"
GROUP_OF_CONSUMERS = "offsets"
WAIT_S = 120.0
POLLS = {"java, polls each second": 1_000, "java, default": None}


class Clients:
    """One producer of ours and two of RocketMQ; each sends to queue 0 until the end of the run."""

    def __init__(self, namesrv: str, java: Driver) -> None:
        self._namesrv = namesrv
        self._java = java
        self._attempts: dict[str, list[Attempt]] = {name: [] for name in ("python", *POLLS)}
        self.commits = asyncio.Event()
        """Cleared while no offset may be committed."""
        self.committed_s = 0.0

    async def send_by_java(self) -> None:
        """Send with both Java producers, until it is cancelled."""
        for name, poll_ms in POLLS.items():
            more = {} if poll_ms is None else {"pollMs": poll_ms}
            self._java.call(
                *("attemptsStart",),
                **{"id": name, "topic": TOPIC, "broker": GROUP, "namesrv": self._namesrv},
                **{"retries": 0, "timeoutMs": 1_000, "pauseMs": 10, **more},
            )
        while True:
            for name in POLLS:
                answer = await asyncio.to_thread(self._java.call, "attemptsTake", id=name)
                self._attempts[name] += reported(answer)
            await asyncio.sleep(0.02)

    async def send(self) -> None:
        """Send with the Python client until the end of the run."""
        async with Producer(self._namesrv, group="p", send_timeout_s=1.0) as producer:
            await attempt_for_ever(
                *(producer, TOPIC, self._attempts["python"]),
                pause_s=0.005,
                queue=MessageQueue(TOPIC, GROUP, 0),
            )

    async def commit(self) -> None:
        """Commit an offset of a group every 20 ms: the time in ms."""
        async with AdminClient(self._namesrv) as admin:
            while True:
                await self.commits.wait()
                now = int(time.time() * 1000)
                fields = offset_fields(commitOffset=str(now))
                try:
                    address = (await admin.masters("InteropCluster"))[GROUP]
                    await admin.demand(address, RequestCode.UPDATE_CONSUMER_OFFSET, fields)
                    self.committed_s = now / 1000
                except (CongreveError, KeyError):
                    pass
                await asyncio.sleep(0.02)

    async def first_after(self, at: float, with_default: bool) -> dict[str, float]:
        """Seconds from `at` until each client's first acknowledged send that began later."""
        names = ["python", *(name for name, poll_ms in POLLS.items() if poll_ms or with_default)]
        found: dict[str, float] = {}

        def all_acknowledge() -> bool:
            for name, attempts in self._attempts.items():
                ends = (one.ended_ms for one in attempts if one.broker and one.began_ms > at * 1000)
                if (end := next(ends, None)) is not None:
                    found.setdefault(name, end / 1000 - at)
                attempts.clear()
            return found.keys() >= set(names)

        await eventually(all_acknowledge, WAIT_S)
        return {name: found[name] for name in names}


def offset_fields(**more: str) -> dict[str, str]:
    """The fields of a request for the consumer offset of queue 0."""
    return {"consumerGroup": GROUP_OF_CONSUMERS, "topic": TOPIC, "queueId": "0", **more}


async def promoted(admin: AdminClient, old: str) -> str:
    """Wait until the name server names another master; its address."""
    found: list[str] = []

    async def is_named() -> bool:
        table = (await admin.cluster_info()).broker_addr_table
        address = table[GROUP].broker_addrs.get(0, old) if GROUP in table else old
        found[:] = [address]
        return address != old

    await eventually(is_named, WAIT_S)
    return found[0]


async def one_kill(
    group: ElectedProcesses, clients: Clients, admin: AdminClient, with_default: bool
) -> dict[str, float]:
    """Kill the master; seconds by what was waited for."""
    await group.all_in_sync()
    number = await group.master()
    await clients.first_after(time.time(), with_default)
    await asyncio.sleep(random.uniform(0, 2))
    clients.commits.clear()
    await asyncio.sleep(0.1)
    killed = time.time()
    group.members[number].kill()
    waiting = asyncio.create_task(clients.first_after(killed, with_default))
    address = await promoted(admin, group.members[number].address)
    row = {"promoted": time.time() - killed}
    answer = await admin.demand(address, RequestCode.QUERY_CONSUMER_OFFSET, offset_fields())
    row["age of offsets"] = clients.committed_s - int(answer.ext_fields["offset"]) / 1000
    clients.commits.set()
    row |= await waiting
    group.start(number)
    return row


async def measure(options: argparse.Namespace, folder: Path) -> list[dict[str, float]]:
    """All kills; a line of JSON for each."""
    group = ElectedProcesses(folder, 2, lease_s=options.lease)
    rows: list[dict[str, float]] = []
    async with group.running():
        for number in group.members:
            group.start(number)
        await group.all_in_sync()
        java = java_driver(folder, "JSON")
        clients = Clients(group.namesrv.address, java)
        try:
            async with (
                asyncio.TaskGroup() as tasks,
                AdminClient(group.namesrv.address) as admin,
            ):
                await admin.create_topic(TOPIC, queues=1, cluster="InteropCluster")
                works = (clients.send, clients.send_by_java, clients.commit)
                running = [tasks.create_task(work()) for work in works]
                clients.commits.set()
                for turn in range(options.kills):
                    row = await one_kill(group, clients, admin, turn < options.default_kills)
                    rows.append(row)
                    print(json.dumps({key: round(value, 3) for key, value in row.items()}))
                    sys.stdout.flush()
                for task in running:
                    task.cancel()
        finally:
            java.kill()
    return rows


def main() -> None:
    """Print a line for each kill, then the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--lease", type=int, default=3, help="haLeaseSeconds")
    parser.add_argument(
        "--default-kills", type=int, default=10, help="kills that wait for Java with its defaults"
    )
    parser.add_argument("--results", type=Path, help="a JSON file for the table and all kills")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = asyncio.run(measure(options, Path(folder)))
    waits.report(rows, options.results, leaseSeconds=options.lease)


if __name__ == "__main__":
    main()
