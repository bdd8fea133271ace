"""Faults of an elected group of processes, and what its clients and stores say afterwards."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from harness.drivers import Driver
from harness.eventually import eventually
from harness.link import Direction
from harness.numbered_messages import LOOK_S, SMALL, NumberedMessages, number_of
from harness.replication.elected import has_topic
from harness.replication.elected_processes import WAIT_S, ElectedProcesses
from harness.replication.replicas import log_bytes
from harness.servers import CLUSTER
from harness.shifted_clock import ShiftedClock

from congreve.client import ConsumeFrom, PushConsumer
from congreve.client.admin import AdminClient
from congreve.client.errors import ClientError
from congreve.engine.config import StoreConfig
from congreve.engine.store import MessageStore
from congreve.records.record import decode_record
from congreve.remoting.errors import RemotingError

TOPIC = "Faults"
CONSUMERS = "c"
QUEUES = 4
LEASE_S = 2
PIECE = 64 << 10
LARGE = 60_000
LOST = 5_000
HOUR_S = 3600
MADE = itertools.count()
FULL_DISK = "fill disk of slave"
SETTINGS = {
    "haMaxTimeSlaveNotCatchup": "1000",
    "haSendHeartbeatInterval": "300",
    "haHousekeepingInterval": "2000",
    "defaultTopicQueueNums": str(QUEUES),
    "cleanFileForciblyEnable": "false",  # a full disk keeps its oldest segments: logs are compared
}


Fault = Callable[["ElectedProcesses", "NumberedMessages", int], Awaitable[None]]


class History(NumberedMessages):
    """The answers that a producer got, and what a consumer read."""

    def __init__(self, namesrv: str) -> None:
        super().__init__(namesrv, TOPIC, send_timeout_s=1.0)
        self.read: dict[tuple[int, int], set[int]] = {}  # by queue and queue offset

    async def consume(self) -> None:
        """Read all queues, until it is cancelled."""
        async with PushConsumer(
            self.namesrv,
            group=CONSUMERS,
            topics={TOPIC: "*"},
            consume_from=ConsumeFrom.FIRST_OFFSET,
        ) as consumer:
            async for message in consumer:
                place = message.queue_id, message.queue_offset
                self.read.setdefault(place, set()).add(number_of(message.body))

    async def consume_by_java(self, java: Driver) -> None:
        """The same with RocketMQ's consumer."""
        await asyncio.to_thread(
            *(java.call, "consumerStart"),
            **{"id": CONSUMERS, "group": CONSUMERS, "topic": TOPIC, "namesrv": self.namesrv},
            **{"instances": 1, "hasty": True, "places": True},
        )
        try:
            while True:
                found = await asyncio.to_thread(java.call, "consumerPlaces", id=CONSUMERS)
                for queue_id, offset, number in found["places"]:
                    self.read.setdefault((queue_id, offset), set()).add(number)
                await asyncio.sleep(LOOK_S)
        finally:
            await asyncio.to_thread(java.call, "consumerStop", id=CONSUMERS)

    def check_members(self, stores: list[dict[int, list[int]]]) -> None:
        """Compare it with the queues of the members' stores."""
        longest = max(stores, key=lambda queues: sum(map(len, queues.values())))
        self.check(longest)
        acknowledged = set(self.acknowledged)
        for (queue_id, offset), numbers in self.read.items():
            # A message without an acknowledgement may be read, and cut with its master's log.
            kept = set(longest[queue_id][offset : offset + 1])
            assert numbers & acknowledged <= kept, f"queue {queue_id} at {offset}: {numbers}"


@asynccontextmanager
async def running(
    folder: Path, count: int, stores: Mapping[int, Path], lease_s: int, java: Driver | None
) -> AsyncIterator[tuple[ElectedProcesses, History]]:
    clocks = {number: ShiftedClock(folder / f"clock{number}") for number in range(1, count + 1)}
    group = ElectedProcesses(
        folder, count, lease_s=lease_s, stores=stores, settings=SETTINGS, clocks=clocks
    )
    history = History(group.namesrv.address)
    async with group.running():
        for number in group.members:
            group.start(number)
        sending = history.send() if java is None else history.send_by_java(java)
        tasks = [asyncio.create_task(sending)]
        try:
            await group.all_in_sync()
            await history.acknowledges()
            reading = history.consume() if java is None else history.consume_by_java(java)
            tasks.append(asyncio.create_task(reading))
            await eventually(lambda: history.read, WAIT_S)
            yield group, history
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


# Each function returns when the group acknowledges in spite of its fault, or when it could not;
# fault() then repairs the network.


async def kill(group: ElectedProcesses, history: NumberedMessages, victim: int) -> None:
    state = await group.state()
    if state.master is not None and state.master.member == victim:
        await create_and_kill(group, victim)
    group.members[victim].kill()
    await history.acknowledges()
    group.start(victim)


async def create_and_kill(group: ElectedProcesses, master: int) -> None:
    """Kill the master right after it has created a topic; the other members of the set have it."""
    topic, queues = f"Made{next(MADE)}", QUEUES + 1
    async with AdminClient(group.namesrv.address) as admin:
        try:
            await admin.create_topic(topic, queues=queues, cluster=CLUSTER)
        except (ClientError, RemotingError):
            return
        finally:
            group.members[master].kill()
    for member in (await group.state()).in_sync - {master}:
        assert has_topic(group.members[member].store, topic, queues), f"{topic}, member {member}"


async def lose_end(group: ElectedProcesses, history: NumberedMessages, victim: int) -> None:
    """Shorten a slave's log while it is down, and kill the master before the slave is back."""
    before = await group.state()
    assert before.master is not None
    master = before.master.member
    group.members[victim].kill()
    shorten(group.members[victim].store)
    group.members[master].kill()
    group.start(victim)
    if len(group.members) == 2:
        await asyncio.sleep(3 * LEASE_S)
        state = await group.state()
        assert state.master is None or state.master.member != victim, "it lacks messages"
    else:
        await history.acknowledges()
    group.start(master)
    await history.acknowledges()


async def lose_power(group: ElectedProcesses, history: NumberedMessages, victim: int) -> None:
    """All members lose power, and one of them the end of its log."""
    for member in group.members.values():
        member.kill()
    shorten(group.members[victim].store)
    for number in group.members:
        group.start(number)
    await history.acknowledges()


def shorten(store: Path) -> None:
    """Overwrite the last bytes of a log with zeros, as if they had not reached the disk."""
    segments = sorted(file for file in (store / "commitlog").iterdir() if file.name.isdecimal())
    for segment in reversed(segments):
        if end := len(segment.read_bytes().rstrip(b"\0")):
            start = max(end - LOST, 0)
            with segment.open("r+b") as file:
                file.seek(start)
                file.write(bytes(end - start))
            return


async def set_clock_back(group: ElectedProcesses, history: NumberedMessages, victim: int) -> None:
    """Set it back by an hour, start a process that recovers then, and set it forward again."""
    group.clocks[victim].shift(-HOUR_S)
    await history.acknowledges()
    await kill(group, history, victim)
    await group.all_in_sync()
    group.clocks[victim].shift(0)


async def pause(group: ElectedProcesses, history: NumberedMessages, victim: int) -> None:
    process = group.members[victim].process
    assert process is not None
    process.send_signal(signal.SIGSTOP)
    await history.acknowledges()
    process.send_signal(signal.SIGCONT)


def hold_etcd(*ways: Direction) -> Fault:
    async def hold(group: ElectedProcesses, history: NumberedMessages, victim: int) -> None:
        state = await group.state()
        group.etcd_links[victim].hold(*ways)
        if state.master is not None and state.master.member == victim:

            async def has_another_master() -> bool:
                return (await group.state()).epoch > state.epoch

            await eventually(has_another_master, WAIT_S)
        await history.acknowledges()

    return hold


def hold_log(*ways: Direction) -> Fault:
    async def hold(group: ElectedProcesses, history: NumberedMessages, victim: int) -> None:
        group.log_links[victim].hold(*ways)
        await history.acknowledges()

    return hold


async def delay_log(group: ElectedProcesses, history: NumberedMessages, victim: int) -> None:
    group.log_links[victim].delay_s = 0.03
    await history.acknowledges()


async def cut_log(group: ElectedProcesses, history: NumberedMessages, victim: int) -> None:
    for _ in range(3):
        group.log_links[victim].cut()
        await history.acknowledges(5)


async def fill_disk(group: ElectedProcesses, history: NumberedMessages, victim: int) -> None:
    """Fill the slave's disk until it leaves the set; then free its space again."""
    folder = group.members[victim].store
    ballast = folder / "ballast"
    descriptor = os.open(ballast, os.O_CREAT | os.O_WRONLY)
    with suppress(OSError):  # in pieces, until there is no space for one more
        for start in itertools.count(0, PIECE):
            os.posix_fallocate(descriptor, start, PIECE)
    os.close(descriptor)
    history.largest = LARGE

    epoch = (await group.state()).epoch

    async def is_left_out() -> bool:
        state = await group.state()
        return victim not in state.in_sync or state.epoch > epoch

    await eventually(is_left_out, WAIT_S)
    history.largest = SMALL
    if await group.master() == victim:  # after a switch, on a slow machine
        ballast.unlink()
    await history.acknowledges()
    ballast.unlink(missing_ok=True)


async def pause_etcd(group: ElectedProcesses, history: NumberedMessages, victim: int) -> None:
    group.etcd.pause()
    await asyncio.sleep(LEASE_S * random.choice((0.5, 2)))  # shorter and longer than a lease
    group.etcd.resume()


async def kill_etcd(group: ElectedProcesses, history: NumberedMessages, victim: int) -> None:
    group.etcd.stop()
    await asyncio.sleep(LEASE_S)
    group.etcd.start()


FAULTS: dict[str, Fault] = {
    "kill master": kill,
    "kill slave": kill,
    "set clock of master back": set_clock_back,
    "set clock of slave back": set_clock_back,
    "lose end of slave's log": lose_end,
    "lose power, and end of slave's log": lose_power,
    "lose power, and end of master's log": lose_power,
    "pause master": pause,
    "pause slave": pause,
    "hold etcd of master": hold_etcd(),
    "hold requests of master to etcd": hold_etcd(Direction.THERE),
    "hold answers of etcd to master": hold_etcd(Direction.BACK),
    "hold etcd of slave": hold_etcd(),
    "hold log of master": hold_log(),
    "hold reports to master": hold_log(Direction.THERE),
    "hold what comes from master": hold_log(Direction.BACK),
    "delay log of master": delay_log,
    "cut log of master": cut_log,
    FULL_DISK: fill_disk,
    "pause etcd": pause_etcd,
    "kill etcd": kill_etcd,
}


async def fault(group: ElectedProcesses, history: NumberedMessages, kind: str) -> None:
    """Inject one fault, then wait until all members are in the set again."""
    master = await group.master()
    slave = next(number for number in group.members if number != master)
    victim = slave if "slave" in kind else master
    await FAULTS[kind](group, history, victim)
    group.etcd_links[victim].release()
    group.log_links[victim].release()
    await history.acknowledges()
    await group.all_in_sync()


def config_of(store: Path) -> StoreConfig:
    return StoreConfig(
        root_dir=str(store),
        mapped_file_size_commit_log=1 << 20,
        max_hash_slot_num=1000,
        max_index_num=4000,
    )


def numbers(store: Path, topic: str = TOPIC) -> dict[int, list[int]]:
    """The numbers in each queue of a topic, from the store of a stopped broker."""
    found: dict[int, list[int]] = {}
    with MessageStore(config_of(store)) as opened:
        for queue_id in range(QUEUES):
            queue = opened.queues.get(topic, queue_id)
            places = [opened.place_of(queue, offset) for offset in range(queue.min, queue.max)]
            records = [None if place is None else opened.read(place) for place in places]
            assert None not in records
            bodies = [decode_record(each).body for each in records if each is not None]
            found[queue_id] = [number_of(body) for body in bodies]
    return found


async def run_faults(
    folder: Path,
    kinds: list[str],
    count: int,
    stores: Mapping[int, Path] | None = None,
    lease_s: int = LEASE_S,
    java: Driver | None = None,
) -> None:
    """With a Java driver, RocketMQ's clients send and read."""
    async with running(folder, count, stores or {}, lease_s, java) as (group, history):
        for kind in kinds:
            await fault(group, history, kind)
    logs = {number: log_bytes(member.store) for number, member in group.members.items()}
    history.check_members([numbers(member.store) for member in group.members.values()])
    shortest = min(map(len, logs.values()))
    assert len({log[:shortest] for log in logs.values()}) == 1, "the logs differ"
