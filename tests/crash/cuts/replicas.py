"""Power cuts of a pair and of an elected group: of one member, or of all at the same instant."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from cuts.disks import Disk, Disks
from cuts.one_broker import Cuts
from cuts.power import cut
from harness import servers
from harness.numbered_messages import NumberedMessages, number_of
from harness.replication.elected_processes import ElectedProcesses
from harness.replication.replicas import await_equal_logs, log_bytes, queued_bodies
from harness.servers import HOST, BrokerServer

TOPIC = "Cuts"
SEGMENT = 1 << 20
LEASE_S = 2
LONGEST_S = 1.0
SETTINGS = {
    "flushDiskType": "SYNC_FLUSH",
    "mappedFileSizeCommitLog": str(SEGMENT),
    "maxHashSlotNum": "1000",
    "maxIndexNum": "4000",
    "haSendHeartbeatInterval": "200",
    "haHousekeepingInterval": "1500",
    "haMaxTimeSlaveNotCatchup": "1000",
    "defaultTopicQueueNums": "4",
    "eventLoopWatchdogMillis": "0",
}


class Members:
    """Brokers by number, each with a disk of its own, and a producer that never stops."""

    def __init__(
        self,
        brokers: Mapping[int, BrokerServer],
        disks: Mapping[int, Disk],
        messages: NumberedMessages,
        are_equal: Callable[[], Awaitable[None]],
    ) -> None:
        self._brokers = brokers
        self._disks = disks
        self._messages = messages
        self._are_equal = are_equal

    async def cut(self, cuts: int, chance: random.Random) -> None:
        """Every other cut hits all members, the others one; then the group is whole again."""
        for number in range(cuts):
            await self._messages.acknowledges()
            await asyncio.sleep(chance.uniform(0, LONGEST_S))
            chosen = list(self._brokers)
            if number % 2:
                chosen = [chance.choice(chosen)]
            await asyncio.to_thread(
                *(cut, [self._brokers[each] for each in chosen]),
                [self._disks[each] for each in chosen],
            )
            for each in chosen:
                self._brokers[each].spawn()
            await self._messages.acknowledges()
            await self._are_equal()

    def found(self, cuts: int) -> Cuts:
        """What is wrong in the logs of the brokers, which have ended."""
        logs = [log_bytes(broker.store) for broker in self._brokers.values()]
        shortest = min(map(len, logs))
        wrong = [] if len({log[:shortest] for log in logs}) == 1 else ["the logs differ"]
        bodies = queued_bodies(max(logs, key=len), TOPIC, SEGMENT)
        queues = [[number_of(body) for body in queue] for queue in bodies.values()]
        wrong += [f"{queue[:9]} is not in order" for queue in queues if queue != sorted(queue)]
        stored = {number for queue in queues for number in queue}
        if len(stored) != sum(map(len, queues)):
            wrong.append("a message is stored twice")
        lost = set(self._messages.acknowledged) - stored
        return Cuts(cuts, len(self._messages.acknowledged), len(lost), wrong)


async def cut_pair(disks: Disks, folder: Path, backend: str, cuts: int, seed: int) -> Cuts:
    """A SYNC_MASTER and its slave."""
    namesrv = servers.namesrv("congreve", folder / "namesrv")
    on = {1: disks.add(), 2: disks.add()}
    roles = {1: {"brokerRole": "SYNC_MASTER", "slaveTimeout": "1000"}, 2: {"brokerRole": "SLAVE"}}
    brokers: dict[int, BrokerServer] = {}
    for number, role in roles.items():
        if brokers:
            role |= {"brokerId": "1", "haMasterAddress": f"{HOST}:{brokers[1].port + 1}"}
        brokers[number] = servers.broker(
            *("congreve", folder / str(number), namesrv.address),
            store=on[number].path / "store",
            settings={**SETTINGS, **role, "ioBackend": backend},
        )
    messages = NumberedMessages(namesrv.address, TOPIC, send_timeout_s=1.5)

    async def both_acknowledge() -> None:
        """What is acknowledged is at both."""

    members = Members(brokers, on, messages, both_acknowledge)
    try:
        for server in (namesrv, *brokers.values()):
            await asyncio.to_thread(server.start)
        async with _sending(messages):
            await members.cut(cuts, random.Random(seed))
        await asyncio.to_thread(await_equal_logs, brokers[1], brokers[2])
    finally:
        for server in (*brokers.values(), namesrv):
            server.kill()
        found = members.found(cuts)
        for disk in on.values():
            disks.remove(disk)
    return found


async def cut_group(disks: Disks, folder: Path, backend: str, cuts: int, seed: int) -> Cuts:
    """Three members of an elected group; one of them may be the master."""
    on = {number: disks.add() for number in (1, 2, 3)}
    group = ElectedProcesses(
        *(folder, len(on)),
        lease_s=LEASE_S,
        stores={number: disk.path / "store" for number, disk in on.items()},
        settings={**SETTINGS, "ioBackend": backend},
    )
    messages = NumberedMessages(group.namesrv.address, TOPIC, send_timeout_s=1.0)
    members = Members(group.members, on, messages, group.all_in_sync)
    async with group.running():
        for number in group.members:
            group.start(number)
        async with _sending(messages):
            await group.all_in_sync()
            await members.cut(cuts, random.Random(seed))
    found = members.found(cuts)
    for disk in on.values():
        disks.remove(disk)
    return found


@asynccontextmanager
async def _sending(messages: NumberedMessages) -> AsyncIterator[None]:
    task = asyncio.create_task(messages.send())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
