"""Faults of an elected group of processes: every acknowledged message is kept, once, in order."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from harness import servers
from harness.etcd import Etcd
from harness.eventually import eventually
from harness.replicas import log_bytes
from harness.servers import BrokerServer

from congreve.broker.election.coordinator import CoordinatorError, GroupState
from congreve.broker.election.etcd import EtcdCoordinator
from congreve.client import Message, Producer
from congreve.client.message import SendStatus
from congreve.engine.config import StoreConfig
from congreve.engine.store import MessageStore
from congreve.errors import CongreveError
from congreve.records.record import decode_record

TOPIC = "Faults"
QUEUES = 4
LEASE_S = 2
GROUP = "elected"


class Processes:
    """The members as processes, one writer, and the answers that it got."""

    def __init__(self, folder: Path, etcd: Etcd, count: int) -> None:
        self.etcd = etcd
        self.namesrv = servers.namesrv("congreve", folder)
        self.members = {
            number: servers.broker(
                *("congreve", folder / str(number), self.namesrv.address),
                broker_name=GROUP,
                watchdog_millis=0,
                settings={
                    "haMode": "etcd",
                    "etcdEndpoints": etcd.url,
                    "haLeaseSeconds": str(LEASE_S),
                    "haMaxTimeSlaveNotCatchup": "1000",
                    "brokerId": str(number),
                    "flushDiskType": "SYNC_FLUSH",
                    "mappedFileSizeCommitLog": str(1 << 20),
                    "maxHashSlotNum": "1000",
                    "maxIndexNum": "4000",
                    "defaultTopicQueueNums": str(QUEUES),
                },
            )
            for number in range(1, count + 1)
        }
        self.coordinator = EtcdCoordinator([etcd.url], servers.CLUSTER, GROUP, timeout_s=LEASE_S)
        self.acknowledged: list[int] = []
        self.sent = 0

    def start(self, number: int) -> None:
        self.members[number].spawn()

    def is_running(self, number: int) -> bool:
        process = self.members[number].process
        return process is not None and process.poll() is None

    async def state(self) -> GroupState:
        try:
            return await self.coordinator.read()
        except CoordinatorError:
            return GroupState()

    async def master(self) -> int:
        """The member with the lease."""
        found: list[int] = []

        async def is_there() -> bool:
            master = (await self.state()).master
            found[:] = [] if master is None else [master.member]
            return bool(found)

        await eventually(is_there)
        return found[0]

    async def all_in_sync(self) -> None:
        async def are() -> bool:
            return (await self.state()).in_sync == set(self.members)

        await eventually(are, 120)

    async def acknowledges(self, more: int = 20) -> None:
        """Return when that many more messages are acknowledged."""
        wanted = len(self.acknowledged) + more
        await eventually(lambda: len(self.acknowledged) >= wanted, 120)

    async def write(self) -> None:
        """Send one message after the other, each once, for ever."""
        async with Producer(
            self.namesrv.address, group="p", retries=0, send_timeout_s=1.0
        ) as producer:
            while True:
                number, self.sent = self.sent, self.sent + 1
                body = b"%d," % number + bytes(number * 37 % 900)
                try:
                    result = await producer.send(Message(topic=TOPIC, body=body))
                except CongreveError:
                    await asyncio.sleep(0.02)
                    continue
                if result.status is SendStatus.SEND_OK:
                    self.acknowledged.append(number)


@asynccontextmanager
async def running(folder: Path, count: int) -> AsyncIterator[Processes]:
    etcd = Etcd(folder / "etcd")
    etcd.start()
    group = Processes(folder, etcd, count)
    group.namesrv.start()
    try:
        for number in group.members:
            group.start(number)
        writer = asyncio.create_task(group.write())
        await group.all_in_sync()
        await group.acknowledges()
        yield group
        writer.cancel()
        await asyncio.gather(writer, return_exceptions=True)
    finally:
        for member in group.members.values():
            if member.process is not None:
                member.process.send_signal(signal.SIGCONT)
                member.kill()
        group.namesrv.kill()
        etcd.stop()


async def fault(group: Processes, kind: str) -> None:
    """One fault, and the way back: all members are in the set again."""
    master = await group.master()
    victim = master if kind.endswith("master") else next(n for n in group.members if n != master)
    member: BrokerServer = group.members[victim]
    process = member.process
    assert process is not None
    if kind.startswith("kill"):
        member.kill()
        await group.acknowledges()
        group.start(victim)
    elif kind.startswith("pause"):
        process.send_signal(signal.SIGSTOP)
        await group.acknowledges()
        process.send_signal(signal.SIGCONT)
    elif kind == "pause etcd":
        group.etcd.pause()
        await asyncio.sleep(LEASE_S * random.choice((0.5, 2)))  # shorter and longer than a lease
        group.etcd.resume()
    else:
        group.etcd.stop()
        await asyncio.sleep(LEASE_S)
        group.etcd.start()
    await group.acknowledges()
    await group.all_in_sync()


def numbers(store: Path) -> dict[int, list[int]]:
    """What each queue of the topic has, from the store of a stopped broker."""
    config = StoreConfig(
        root_dir=str(store),
        mapped_file_size_commit_log=1 << 20,
        max_hash_slot_num=1000,
        max_index_num=4000,
    )
    found: dict[int, list[int]] = {}
    with MessageStore(config) as opened:
        for queue_id in range(QUEUES):
            queue = opened.queues.get(TOPIC, queue_id)
            places = [opened.place_of(queue, offset) for offset in range(queue.min, queue.max)]
            records = [None if place is None else opened.read(place) for place in places]
            assert None not in records
            bodies = [decode_record(each).body for each in records if each is not None]
            found[queue_id] = [int(body.partition(b",")[0]) for body in bodies]
    return found


async def run_faults(folder: Path, kinds: list[str], count: int) -> None:
    async with running(folder, count) as group:
        for kind in kinds:
            await fault(group, kind)
    logs = {number: log_bytes(member.store) for number, member in group.members.items()}
    stores = [numbers(member.store) for member in group.members.values()]
    longest = max(stores, key=lambda queues: sum(map(len, queues.values())))
    stored = [number for queue in longest.values() for number in queue]
    assert len(set(stored)) == len(stored), "a message is stored twice"
    lost = set(group.acknowledged) - set(stored)
    assert not lost, f"{len(lost)} acknowledged messages are lost: {sorted(lost)[:9]}"
    assert all(queue == sorted(queue) for queue in longest.values()), "the order has changed"
    shortest = min(map(len, logs.values()))
    assert len({log[:shortest] for log in logs.values()}) == 1, "the logs differ"


@pytest.mark.crash
async def test_a_killed_master_and_a_stale_master_lose_no_message(tmp_path: Path) -> None:
    """#6662 and #7689: a paused master that comes back, and one that was killed at full rate."""
    await run_faults(tmp_path, ["kill master", "pause master"], 2)


@pytest.mark.crash
async def test_many_faults_lose_no_message(
    tmp_path: Path, kill_rounds: int, campaign: Callable[[str, int], None]
) -> None:
    """60 faults with `make soak`; none in a short run, which has the test above."""
    rounds = kill_rounds * 60 // 1000 - 3
    if rounds <= 0:
        pytest.skip("only with many rounds")
    kinds = ["kill master", "kill slave", "pause master", "pause slave", "pause etcd", "kill etcd"]
    choose = random.Random(1)
    for round_number, size in enumerate((2, 3)):
        chosen = [choose.choice(kinds) for _ in range(-(-rounds // 2))]
        await run_faults(tmp_path / str(round_number), chosen, size)
    campaign("faults of an elected group", rounds)
