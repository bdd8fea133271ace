"""kill -9 of one broker, of a pair, and of an elected group, in the middle of pops.

What was acknowledged never comes again, also from the next master; all else does, and nothing
before its time.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from harness import servers
from harness.eventually import eventually
from harness.replication.elected_processes import GROUP, WAIT_S, ElectedProcesses
from harness.replication.replicas import await_equal_logs
from harness.wire import Wire

from .popping_members import QUEUES, TOPIC, Ledger, Member, make_group, send, settle_rest
from .pulling_member import PullingMember

LEASE_S = 2
SWITCHES = 4
"""Most turns of pops or pulls between two kills."""
POLLING_INFO = 200_055
NO_PERMISSION = 16
"""The answer of a slave."""
SETTINGS = {
    "mappedFileSizeCommitLog": str(1 << 20),
    "mappedFileSizeConsumeQueue": str(20 * 2000),
    "flushDiskType": "SYNC_FLUSH",
    "flushConsumerOffsetInterval": "100",
    "defaultTopicQueueNums": str(QUEUES),
}
REPLICATION = {
    "haMaxTimeSlaveNotCatchup": "1000",
    "haSendHeartbeatInterval": "300",
    "haHousekeepingInterval": "2000",
}
TO_BE_A_MASTER = {"brokerRole": "ASYNC_MASTER", "brokerId": "0"}


@dataclass
class Outcome:
    """What became of the messages of two groups, one of which pops in order."""

    kills: int
    ledgers: list[Ledger]
    timely: bool = True  # nothing comes before its time

    @property
    def faults(self) -> list[str]:
        """What must not be."""
        found = []
        for ledger in self.ledgers:
            lists = {"acknowledged, and came again": ledger.again, "lost": sorted(ledger.missing)}
            if self.timely:
                lists["too early"] = list(ledger.early)
            found += [f"{ledger.group}: {what}: {of}" for what, of in lists.items() if of]
            if not ledger.acknowledged:
                found.append(f"{ledger.group}: nothing was acknowledged")
        return found


def new_ledgers() -> list[Ledger]:
    return [Ledger("popping", ordered=False), Ledger("in-order", ordered=True)]


def popping(
    address: str, ledgers: list[Ledger], seed: int, ended: threading.Event, broker: str
) -> list[threading.Thread]:
    """Two started members of each group."""
    members = [
        threading.Thread(
            target=Member(address, ledger, 10 * seed + number, broker=broker).run, args=[ended]
        )
        for number, ledger in enumerate(2 * ledgers)
    ]
    for member in members:
        member.start()
    return members


def send_all(address: str, ledgers: list[Ledger]) -> None:
    with Wire(address) as wire:
        for ledger in ledgers:
            make_group(wire, ledger)
        send(wire, ledgers)


def one_broker(folder: Path, backend: str, seeds: range) -> Outcome:
    """A broker that is killed once with each seed."""
    namesrv = servers.namesrv("congreve", folder / "namesrv")
    settings = SETTINGS | {"ioBackend": backend}
    broker = servers.broker("congreve", folder / "broker", namesrv.address, settings=settings)
    ledgers = new_ledgers()
    namesrv.start()
    try:
        for seed in seeds:
            broker.start()
            send_all(broker.address, ledgers)
            ended = threading.Event()
            members = popping(broker.address, ledgers, seed, ended, broker.broker_name)
            time.sleep(random.Random(seed).uniform(0.1, 0.8))
            broker.kill()
            for member in members:
                member.join()
        broker.start()
        for ledger in ledgers:
            settle_rest(broker.address, ledger)
        assert broker.stop() in (0, 143), broker.tail()
    finally:
        broker.kill()
        namesrv.kill()
    return Outcome(len(seeds), ledgers)


def pair(folder: Path, backend: str, seeds: range) -> Outcome:
    """A SYNC_MASTER and its slave, either of which is killed; in the end the slave's store is that
    of a master."""
    namesrv = servers.namesrv("congreve", folder / "namesrv")
    settings = SETTINGS | REPLICATION | {"ioBackend": backend}
    roles = {
        "master": {"brokerRole": "SYNC_MASTER"},
        "slave": {"brokerRole": "SLAVE", "brokerId": "1"},
    }
    master, slave = (
        servers.broker("congreve", folder / name, namesrv.address, settings=settings | role)
        for name, role in roles.items()
    )
    ledgers = new_ledgers()
    for server in (namesrv, master, slave):
        server.start()
    try:
        for seed in seeds:
            chance = random.Random(seed)
            send_all(master.address, ledgers)
            ended = threading.Event()
            members = popping(master.address, ledgers, seed, ended, master.broker_name)
            time.sleep(chance.uniform(0.1, 0.8))
            victim = chance.choice((master, slave))
            victim.kill()
            if victim is slave:
                time.sleep(chance.uniform(0.1, 0.8))
                ended.set()
            for member in members:
                member.join()
            victim.start()
        await_equal_logs(master, slave)
        master.kill()
        slave.kill()
        with slave.config.open("a") as config:
            config.writelines(f"{key}={value}\n" for key, value in TO_BE_A_MASTER.items())
        slave.start()
        for ledger in ledgers:
            settle_rest(slave.address, ledger)
        assert slave.stop() in (0, 143), slave.tail()
    finally:
        for server in (slave, master, namesrv):
            server.kill()
    return Outcome(len(seeds), ledgers)


def switching(folder: Path, backend: str, seeds: range) -> Outcome:
    """A broker, killed once with each seed; the members of the group pop, or pull, by turns."""
    namesrv = servers.namesrv("congreve", folder / "namesrv")
    settings = SETTINGS | {"ioBackend": backend}
    broker = servers.broker("congreve", folder / "broker", namesrv.address, settings=settings)
    ledgers = [Ledger("switching", ordered=False)]
    namesrv.start()
    try:
        for seed in seeds:
            chance = random.Random(seed)
            broker.start()
            turns = chance.randrange(1, SWITCHES + 1)
            for turn in range(turns):
                send_all(broker.address, ledgers)
                ended = threading.Event()
                if chance.random() < 0.5:
                    pulls = PullingMember(broker.address, ledgers[0], chance)
                    members = [threading.Thread(target=pulls.run, args=[ended])]
                    members[0].start()
                else:
                    name = broker.broker_name
                    members = popping(broker.address, ledgers, 100 * seed + turn, ended, name)
                time.sleep(chance.uniform(0.1, 0.6))
                if turn < turns - 1:
                    ended.set()
                else:
                    broker.kill()
                for member in members:
                    member.join()
        broker.start()
        settle_rest(broker.address, ledgers[0])
        assert broker.stop() in (0, 143), broker.tail()
    finally:
        broker.kill()
        namesrv.kill()
    return Outcome(len(seeds), ledgers)


async def group(folder: Path, backend: str, seeds: range) -> Outcome:
    """Two members of an elected group, either of which is killed.

    A pop is answered before slaves have it, so that what was just taken may come from the next
    master at once.
    """
    settings = SETTINGS | REPLICATION | {"ioBackend": backend}
    elected = ElectedProcesses(folder, 2, lease_s=LEASE_S, settings=settings)
    ledgers = new_ledgers()
    async with elected.running():
        for number in elected.members:
            elected.start(number)
        for seed in seeds:
            await _one_kill(elected, ledgers, seed)
        await elected.all_in_sync()
        address = elected.members[await _master_of(elected)].address
        for ledger in ledgers:
            await asyncio.to_thread(settle_rest, address, ledger, GROUP)
    return Outcome(len(seeds), ledgers, timely=False)


async def _one_kill(elected: ElectedProcesses, ledgers: list[Ledger], seed: int) -> None:
    chance = random.Random(seed)
    await elected.all_in_sync()
    master = await _master_of(elected)
    address = elected.members[master].address
    await asyncio.to_thread(send_all, address, ledgers)
    ended = threading.Event()
    members = popping(address, ledgers, seed, ended, GROUP)
    await asyncio.sleep(chance.uniform(0.1, 0.8))
    victim = chance.choice([*elected.members, master])
    await asyncio.to_thread(elected.members[victim].kill)
    if victim != master:
        await asyncio.sleep(chance.uniform(0.1, 0.8))
        ended.set()
    for member in members:
        await asyncio.to_thread(member.join)
    if victim == master:
        assert await _master_of(elected) != master
    elected.start(victim)


async def _master_of(elected: ElectedProcesses) -> int:
    """The master, once it serves pops."""
    found: list[int] = []

    async def serves() -> bool:
        found[:] = [await elected.master()]
        fields = {"consumerGroup": "popping", "topic": TOPIC, "queueId": "0"}
        try:
            with Wire(elected.members[found[0]].address, 5.0) as wire:
                answer = await asyncio.to_thread(wire.call, POLLING_INFO, fields)
        except OSError:
            return False
        return answer.code != NO_PERMISSION

    await eventually(serves, WAIT_S)
    return found[0]
