"""``python -m cluster.rolling``: ``congreve cluster roll`` beside producers and ordered consumers.

    PYTHONPATH=bench:tests python -m cluster.rolling --brokers 20

A group of three that elects its master, and so many other brokers, of which some are pairs. A
producer of ours and one of Java 4.9.4 send to all of them, and one each to the group alone; none
retries. Our ordered consumer reads all topics, and Java's the one that Java sends to the group.
Counted are sends that failed, acknowledged messages that are lost, queues out of order, and
messages that came twice. It ends with an error if one of the first three is not zero.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import sys
import tempfile
import time
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

from harness import servers
from harness.drivers import Driver, java_driver
from harness.eventually import eventually
from harness.replication.elected_processes import GROUP, ElectedProcesses
from harness.replication.supervisor import Supervisor
from sidebyside import process
from sidebyside.report import write_json

from congreve.client import ConsumeFrom, PushConsumer, ReceivedMessage
from congreve.client.admin import AdminClient
from congreve.client.transport import instance

from .brokers import RESULTS, SMALL, until
from .streams import Stream

MEMBERS = 3
LEASE_S = 10
QUEUES = 2
A_PAIR = 10
"""Of so many brokers two are a pair."""
LOOK_S = 0.5
READ_S = 300.0
PAUSE_S = 0.01
BY_JAVA = ("java-all", "java-group")
BY_PYTHON = ("python-all", "python-group")


class Rolled:
    """The servers; each of their addresses is restarted once."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.folder = folder
        self.group = ElectedProcesses(folder / "group", MEMBERS, lease_s=LEASE_S)
        self.namesrv = self.group.namesrv.address
        pairs = max(1, options.brokers // A_PAIR)
        names = [f"broker-{number:02}" for number in range(options.brokers - pairs)]
        self.masters = [self._broker(name, {}) for name in names]
        slave = {"brokerId": "1", "brokerRole": "SLAVE"}
        self.slaves = [self._broker(name, slave) for name in names[:pairs]]

    def _broker(self, name: str, settings: dict[str, str]) -> servers.BrokerServer:
        folder = self.folder / f"{name}-{settings.get('brokerId', '0')}"
        return servers.broker(
            *("congreve", folder, self.namesrv),
            broker_name=name,
            settings=SMALL | settings,
            watchdog_millis=0,
        )

    @property
    def brokers(self) -> dict[str, servers.BrokerServer]:
        """All, by address."""
        found = [*self.group.members.values(), *self.slaves, *self.masters]
        return {each.address: each for each in found}

    async def start(self, admin: AdminClient) -> None:
        """Topics of the group alone come first, while there are no others."""
        for number in self.group.members:
            self.group.start(number)
        await self.group.all_in_sync()
        for topic in (BY_JAVA[1], BY_PYTHON[1]):
            await admin.create_topic(topic, queues=QUEUES, cluster=servers.CLUSTER)
        for each in [*self.masters, *self.slaves]:
            each.spawn()

        async def are_registered() -> bool:
            table = (await admin.cluster_info()).broker_addr_table
            at = {address for each in table.values() for address in each.broker_addrs.values()}
            return at == set(self.brokers)

        await until(are_registered)
        for topic in (BY_JAVA[0], BY_PYTHON[0]):
            await admin.create_topic(topic, queues=QUEUES, cluster=servers.CLUSTER)

    async def roll(self, supervisor: Supervisor, route_poll_s: float) -> None:
        """The command, with its progress on standard error."""
        command = ["--restart", supervisor.command, "--transfer", self.group.transfer_command]
        command += ["--route-poll", str(route_poll_s), "--apply", "-n", self.namesrv]
        running = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "congreve", "cluster", "roll", *command)
        )
        if await running.wait():
            raise RuntimeError(f"congreve cluster roll has failed: {running.returncode}")

    def stop(self) -> None:
        """End all but the group."""
        for each in [*self.slaves, *self.masters]:
            each.kill()


async def run(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Everything; the figures."""
    rolled = Rolled(options, folder)
    streams = {
        topic: Stream(topic, rolled.namesrv, pause_s=PAUSE_S, timeout_s=options.timeout)
        for topic in (*BY_JAVA, *BY_PYTHON)
    }

    def listener(message: ReceivedMessage) -> None:
        number = int(message.body.partition(b"|")[0])
        streams[message.topic].read(message.queue.broker_name, message.queue_id, number)

    journal = folder / "journal"
    async with AsyncExitStack() as stack:
        stack.callback(rolled.stop)
        await stack.enter_async_context(rolled.group.running())
        admin = await stack.enter_async_context(AdminClient(rolled.namesrv))
        await rolled.start(admin)
        java = _driver(stack, folder / "producers")
        reader = _driver(stack, folder / "consumer")
        consumer = PushConsumer(
            rolled.namesrv,
            group="reads",
            topics=dict.fromkeys(streams, "*"),
            listener=listener,
            orderly=True,
            consume_from=ConsumeFrom.FIRST_OFFSET,
        )
        await stack.enter_async_context(consumer)
        asked = {"namesrv": rolled.namesrv, "topic": BY_JAVA[1], "journal": str(journal)}
        await asyncio.to_thread(lambda: reader.call("orderlyStart", group="reads-java", **asked))
        sending = [
            *(streams[topic].send_by_java(java, options.poll) for topic in BY_JAVA),
            *(streams[topic].send_by_python() for topic in BY_PYTHON),
        ]
        tasks = [asyncio.create_task(each) for each in sending]
        await eventually(lambda: all(each.acknowledged for each in streams.values()), READ_S)
        begun = time.monotonic()
        try:
            with Supervisor(rolled.brokers, folder, variable="ADDRESS") as supervisor:
                await rolled.roll(supervisor, options.route_poll)
                stopped = supervisor.stopped()
        finally:
            for each in streams.values():
                each.end()
            await asyncio.gather(*tasks)
        seconds = time.monotonic() - begun
        by_java = Stream(f"{BY_JAVA[1]}, read by Java", rolled.namesrv, pause_s=0, timeout_s=0)
        by_java.acknowledged = streams[BY_JAVA[1]].acknowledged
        read = [*streams.values(), by_java]
        with suppress(TimeoutError):
            async with asyncio.timeout(READ_S):
                while any(each.lost() for each in streams.values()):
                    await asyncio.sleep(LOOK_S)
                while by_java.acknowledged - _journal(journal):
                    await asyncio.sleep(LOOK_S)
        for line in journal.read_text().splitlines():
            _, queue_id, number = map(int, line.split())
            by_java.read(GROUP, queue_id, number)
    return {
        "seconds": round(seconds),
        "restarts": len(stopped),
        "restartedOnce": sorted(stopped) == sorted(rolled.brokers),
        "streams": [each.figures() for each in read],
    }


def _driver(stack: AsyncExitStack, folder: Path) -> Driver:
    driver = java_driver(folder, "JSON")
    stack.callback(driver.close)
    return driver


def _journal(path: Path) -> set[int]:
    lines = path.read_text().splitlines(keepends=True)
    return {int(line.split()[2]) for line in lines if line.endswith("\n")}


def faults(found: dict[str, Any]) -> list[str]:
    """What must not be."""
    wrong = [] if found["restartedOnce"] else ["a broker has not restarted once"]
    wanted = itertools.product(found["streams"], ("failed", "lost", "queuesOutOfOrder"))
    return wrong + [f"{each['topic']}: {each[key]} {key}" for each, key in wanted if each[key]]


def main(argv: list[str] | None = None) -> int:
    """Run the benchmark; the result is written to `--results`."""
    parser = argparse.ArgumentParser(prog="cluster.rolling", description=__doc__)
    parser.add_argument("--brokers", type=int, default=20, help="beside the group of three")
    parser.add_argument("--route-poll", type=float, default=30.0, help="as roll gets it")
    parser.add_argument("--poll", type=float, default=30.0, help="what the clients do, in seconds")
    parser.add_argument("--timeout", type=float, default=10.0, help="of a send, in seconds")
    parser.add_argument("--results", type=Path, default=RESULTS / "rolling.json")
    options = parser.parse_args(argv)
    with (
        tempfile.TemporaryDirectory() as folder,
        patch.object(instance, "REFRESH_S", options.poll),
    ):
        found = asyncio.run(run(options, Path(folder)))
    document = {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "commit": process.commit(),
        "machine": process.machine(),
        "members": MEMBERS,
        **{name: getattr(options, name) for name in ("brokers", "route_poll", "poll", "timeout")},
        **found,
    }
    write_json(options.results, document)
    wrong = faults(found)
    print(found, wrong, sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
