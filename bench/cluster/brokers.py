"""``python -m cluster.brokers``: many real brokers on one machine.

    PYTHONPATH=bench:tests python -m cluster.brokers --brokers 177

Brokers with small segments, three name servers, and our clients with a topic on all brokers.
Measured are the time and the processor time until all are registered, their memory, what an idle
broker costs (processor time, and how often its threads wake up), the time from the start of a
consumer, ours and Java's, to its first message and to one from every broker, with the processor
time that the servers need for it, and how long routes need to follow when a ninth of the brokers
is killed and as many are added.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from harness import servers
from harness.drivers import Driver, java_driver
from sidebyside import process
from sidebyside.report import write_json

from congreve.client import (
    ConsumeFrom,
    Message,
    MessageQueue,
    Producer,
    PushConsumer,
    ReceivedMessage,
)
from congreve.client.admin import AdminClient

RESULTS = Path(__file__).parent.parent / "results"
NAME_SERVERS = 3
LOOKS_S = 0.05
STARTS = 5
TOPIC = "everywhere"
QUEUES = 4
SMALL = {
    "mappedFileSizeCommitLog": str(1 << 20),
    "mappedFileSizeConsumeQueue": "6000",
    "maxHashSlotNum": "1000",
    "maxIndexNum": "4000",
    "maxMessageSize": "65536",
}


def wakeups(pid: int) -> Counter[int]:
    """How often each thread of a process has gone to sleep so far, by its place in their order."""
    found: Counter[int] = Counter()
    tasks = sorted(Path(f"/proc/{pid}/task").iterdir(), key=lambda task: int(task.name))
    for place, task in enumerate(tasks):
        for line in (task / "status").read_text().splitlines():
            if line.startswith("voluntary_ctxt_switches"):
                found[place] += int(line.split()[1])
    return found


class Measured:
    """The cluster under measurement; each step gives a row of figures."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.options = options
        self.folder = folder
        self.name_servers = [
            servers.namesrv("congreve", folder / f"namesrv-{number}")
            for number in range(NAME_SERVERS)
        ]
        self.namesrv = ";".join(each.address for each in self.name_servers)
        self.brokers = [self.broker(number) for number in range(options.brokers)]
        self.rows: list[dict[str, Any]] = []

    def broker(self, number: int) -> servers.BrokerServer:
        """One that is not started."""
        name = f"broker-{number:03}"
        folder = self.folder / name
        return servers.broker(
            *("congreve", folder, self.namesrv),
            broker_name=name,
            settings=SMALL,
            watchdog_millis=0,
        )

    def pids(self) -> list[int]:
        """Of the running brokers."""
        return [each.process.pid for each in self.brokers if each.process is not None]

    def cpu_seconds(self) -> float:
        """Of all servers so far."""
        named = [each.process.pid for each in self.name_servers if each.process is not None]
        return sum(map(process.cpu_seconds, [*self.pids(), *named]))

    def note(self, step: str, **figures: object) -> None:
        """Add a row."""
        row = {"step": step, **figures}
        print(json.dumps(row), flush=True)
        self.rows.append(row)

    def stop(self) -> None:
        """End all processes."""
        for each in [*self.brokers, *self.name_servers]:
            each.kill()

    async def registered(self, admin: AdminClient, names: set[str]) -> None:
        """Return when the clients' name server knows these brokers and no others."""
        await until(lambda: _are(admin, names))


async def _are(admin: AdminClient, names: set[str]) -> bool:
    return set((await admin.cluster_info()).broker_addr_table) == names


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Look again and again until it holds."""
    while not await condition():
        await asyncio.sleep(LOOKS_S)


async def start(measured: Measured, admin: AdminClient) -> None:
    """All brokers at the same time."""
    since = time.perf_counter()
    for each in measured.brokers:
        each.spawn()
    await measured.registered(admin, {each.broker_name for each in measured.brokers})
    taken = time.perf_counter() - since
    used = [process.cpu_seconds(pid) for pid in measured.pids()]
    measured.note(
        "start",
        seconds=round(taken, 1),
        cpuSecondsOfBroker=round(statistics.mean(used), 2),
    )


async def rest(measured: Measured) -> None:
    """Nothing but heartbeats."""
    pids, seconds = measured.pids(), measured.options.seconds
    await asyncio.sleep(measured.options.settle)
    cpu = sum(map(process.cpu_seconds, pids))
    woken: Counter[int] = Counter()
    for pid in pids:
        woken.subtract(wakeups(pid))
    await asyncio.sleep(seconds)
    for pid in pids:
        woken.update(wakeups(pid))
    used = sum(map(process.cpu_seconds, pids)) - cpu
    memory = [process.memory(pid).anonymous for pid in pids]
    measured.note(
        "idle",
        cpuMillisOfBrokerASecond=round(used * 1e3 / len(pids) / seconds, 2),
        wakeupsOfBrokerASecond=round(sum(woken.values()) / len(pids) / seconds, 1),
        byThread=[round(woken[place] / len(pids) / seconds, 2) for place in sorted(woken)],
        anonymousMiBOfBroker=round(statistics.mean(memory), 1),
    )


async def first_messages(measured: Measured, admin: AdminClient) -> None:
    """Starts of consumers of the topic, each with a group of its own."""
    await admin.create_topic(TOPIC, queues=QUEUES, cluster=servers.CLUSTER)
    names = {each.broker_name for each in measured.brokers}
    since = time.perf_counter()
    async with Producer(measured.namesrv, group="p") as producer:
        for name in sorted(names):
            message = Message(topic=TOPIC, body=b"m")
            await producer.send(message, queue=MessageQueue(TOPIC, name, 0))
    measured.note("sends, one to each", seconds=round(time.perf_counter() - since, 2))
    await _starts(measured, "python", lambda group: _own_start(measured, names, group))
    driver = java_driver(measured.folder / "client", "JSON")
    try:
        await _starts(measured, "java", lambda group: _java_start(driver, measured, names, group))
    finally:
        driver.close()


async def _starts(
    measured: Measured, client: str, start: Callable[[str], Awaitable[list[float]]]
) -> None:
    """`start` gives the seconds from a consumer's start to a message of each broker."""
    found, used = [], []
    for number in range(STARTS + 1):
        before = measured.cpu_seconds()
        found.append(await start(f"{client}-{number}"))
        used.append(measured.cpu_seconds() - before)
    del found[0], used[0]  # the JVM compiles then
    measured.note(
        f"consumer, {client}",
        firstMessageSeconds=round(statistics.median(min(each) for each in found), 2),
        messageOfEachSeconds=round(statistics.median(max(each) for each in found), 2),
        serversCpuSeconds=round(statistics.median(used), 2),
    )


async def _own_start(measured: Measured, names: set[str], group: str) -> list[float]:
    seen: dict[str, float] = {}
    all_seen = asyncio.Event()

    async def listener(message: ReceivedMessage) -> None:
        seen.setdefault(message.queue.broker_name, time.perf_counter())
        if seen.keys() >= names:
            all_seen.set()

    begun = time.perf_counter()
    consumer = PushConsumer(
        measured.namesrv,
        group=group,
        topics={TOPIC: "*"},
        listener=listener,
        consume_from=ConsumeFrom.FIRST_OFFSET,
    )
    async with consumer:
        await all_seen.wait()
    return [at - begun for at in seen.values()]


async def _java_start(
    driver: Driver, measured: Measured, names: set[str], group: str
) -> list[float]:
    found = await asyncio.to_thread(
        driver.call,
        "firstMessages",
        namesrv=measured.namesrv,
        topic=TOPIC,
        group=group,
        brokers=len(names),
    )
    return [ms / 1e3 for ms in found["afterMs"]]


async def change(measured: Measured, admin: AdminClient) -> None:
    """Kill some brokers at random, and add as many new ones."""
    count = max(1, len(measured.brokers) // 9)
    names = {each.broker_name for each in measured.brokers}
    for each in random.Random(1).sample(measured.brokers, count):
        each.kill()
        measured.brokers.remove(each)
        names.discard(each.broker_name)
    since = time.perf_counter()
    await measured.registered(admin, names)
    gone_s = time.perf_counter() - since
    added = [measured.broker(measured.options.brokers + number) for number in range(count)]
    measured.brokers += added
    since = time.perf_counter()
    for each in added:
        each.spawn()
    await measured.registered(admin, names | {each.broker_name for each in added})
    measured.note(
        "change",
        brokers=count,
        goneSeconds=round(gone_s, 2),
        addedSeconds=round(time.perf_counter() - since, 1),
    )


async def run(measured: Measured) -> None:
    """All steps, in order."""
    for each in measured.name_servers:
        each.start()
    async with AdminClient(measured.namesrv) as admin:
        await start(measured, admin)
        await rest(measured)
        await first_messages(measured, admin)
        await change(measured, admin)


def main(argv: list[str] | None = None) -> int:
    """Run the benchmark; the result is written to `--results`."""
    parser = argparse.ArgumentParser(prog="cluster.brokers", description=__doc__)
    parser.add_argument("--brokers", type=int, default=177)
    parser.add_argument("--settle", type=float, default=10.0, help="seconds before the rest")
    parser.add_argument("--seconds", type=float, default=20.0, help="of the rest")
    parser.add_argument("--results", type=Path, default=RESULTS / "brokers.json")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        measured = Measured(options, Path(folder))
        try:
            asyncio.run(run(measured))
        finally:
            measured.stop()
    document = {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "commit": process.commit(),
        "machine": process.machine(),
        "brokers": options.brokers,
        "steps": measured.rows,
    }
    write_json(options.results, document)
    return 0


if __name__ == "__main__":
    sys.exit(main())
