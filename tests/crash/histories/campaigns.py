"""Histories of one broker and of an elected group, each of a topic of its own under some faults."""

from __future__ import annotations

import asyncio
import random
import shutil
import signal
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from cuts.disks import Disk, Disks
from cuts.power import cut
from harness import servers
from harness.eventually import eventually
from harness.link import Link
from harness.replication.elected_processes import GROUP, WAIT_S, ElectedProcesses
from histories.recorder import QUEUES, Recorder

from congreve.base.errors import CongreveError
from congreve.client.admin import AdminClient

LEASE_S = 2
PAUSED_S = 1.0
LONGER_THAN_SILENCE_S = 2.5
MEMBERS = 4
SETTINGS = {
    "flushDiskType": "SYNC_FLUSH",
    "mappedFileSizeCommitLog": str(1 << 20),
    "maxHashSlotNum": "1000",
    "maxIndexNum": "4000",
    "haSendHeartbeatInterval": "300",
    "haHousekeepingInterval": "2000",
    "haMaxTimeSlaveNotCatchup": "1000",
    "eventLoopWatchdogMillis": "0",
}
FAULTS_OF_A_HISTORY = 2

Fault = Callable[[], Awaitable[None]]


class OneBroker:
    """A broker that is killed, paused, and stopped.

    A power cut would take messages that were read before they were on disk, and acknowledged.
    """

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self._namesrv = servers.namesrv("congreve", folder)
        self._chance = chance
        self._broker = servers.broker(
            *("congreve", folder / "broker", self._namesrv.address), settings=SETTINGS
        )

    async def histories(self, count: int, folder: Path) -> list[Path]:
        """Record so many; returns their files."""
        faults: list[Fault] = [self._kill, self._stop, self._pause]
        try:
            for server in (self._namesrv, self._broker):
                await asyncio.to_thread(server.start)
            return [
                await recorded(
                    self._namesrv.address,
                    self._broker.broker_name,
                    folder / f"broker-{number}",
                    self._chance.choices(faults, k=FAULTS_OF_A_HISTORY),
                    commits=True,
                )
                for number in range(count)
            ]
        finally:
            for server in (self._broker, self._namesrv):
                server.kill()

    async def _kill(self) -> None:
        self._broker.kill()
        await asyncio.to_thread(self._broker.start)

    async def _stop(self) -> None:
        await asyncio.to_thread(self._broker.stop)
        await asyncio.to_thread(self._broker.start)

    async def _pause(self) -> None:
        await pause(self._broker)


class Pair:
    """A SYNC_MASTER and its slave, which are killed, paused, and cut off from each other."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self._namesrv = servers.namesrv("congreve", folder)
        self._chance = chance
        roles = {"master": {"brokerRole": "SYNC_MASTER", "slaveTimeout": "1000"}, "slave": {}}
        self._master, self._slave = (
            servers.broker(
                *("congreve", folder / name, self._namesrv.address), settings={**SETTINGS, **role}
            )
            for name, role in roles.items()
        )
        self._link = Link(self._master.port + 1)

    async def histories(self, count: int, folder: Path) -> list[Path]:
        """Record so many; returns their files."""
        faults: list[Fault] = [self._kill, self._pause, self._cut, self._cut_off]
        try:
            for server in (self._namesrv, self._master):
                await asyncio.to_thread(server.start)
            await self._link.start()
            role = {"brokerRole": "SLAVE", "brokerId": "1", "haMasterAddress": self._link.address}
            with self._slave.config.open("a") as config:
                config.writelines(f"{key}={value}\n" for key, value in role.items())
            await asyncio.to_thread(self._slave.start)
            return [
                await recorded(
                    self._namesrv.address,
                    self._master.broker_name,
                    folder / f"pair-{number}",
                    self._chance.choices(faults, k=FAULTS_OF_A_HISTORY),
                    commits=False,
                )
                for number in range(count)
            ]
        finally:
            for server in (self._slave, self._master, self._namesrv):
                server.kill()
            await self._link.stop()

    async def _kill(self) -> None:
        victim = self._chance.choice((self._master, self._slave))
        victim.kill()
        await asyncio.to_thread(victim.start)

    async def _pause(self) -> None:
        victim = self._chance.choice((self._master, self._slave))
        await pause(victim, self._chance.choice((PAUSED_S, LONGER_THAN_SILENCE_S)))

    async def _cut(self) -> None:
        self._link.cut()

    async def _cut_off(self) -> None:
        self._link.hold()
        await asyncio.sleep(LONGER_THAN_SILENCE_S)
        self._link.release()


class Group:
    """Three members; a fourth one comes and goes, and any one is replaced by an empty store."""

    def __init__(self, folder: Path, disks: Mapping[int, Disk], chance: random.Random) -> None:
        self._disks = disks
        self._chance = chance
        self._group = ElectedProcesses(
            *(folder, MEMBERS),
            lease_s=LEASE_S,
            stores={number: disk.path / "store" for number, disk in disks.items()},
            settings=SETTINGS,
        )
        self._up: set[int] = set()

    async def histories(self, count: int, folder: Path) -> list[Path]:
        """Record so many; returns their files."""
        faults: list[Fault] = [
            *(self._kill, self._pause, self._cut_off, self._add_or_remove, self._replace),
            *([self._lose_power, self._lose_all_power] if self._disks else []),
        ]
        async with self._group.running():
            for number in range(1, MEMBERS):
                self._start(number)
            await self._all_in_sync()
            return [
                await recorded(
                    self._group.namesrv.address,
                    GROUP,
                    folder / f"group-{number}",
                    self._chance.choices(faults, k=FAULTS_OF_A_HISTORY),
                    commits=False,
                    afterwards=self._all_in_sync,
                )
                for number in range(count)
            ]

    def _start(self, number: int) -> None:
        self._group.start(number)
        self._up.add(number)

    def _any(self) -> int:
        return self._chance.choice(sorted(self._up))

    async def _all_in_sync(self) -> None:
        """Return when the members that are up are the set."""

        async def are() -> bool:
            state = await self._group.state()
            return state.in_sync == self._up and state.set_epoch == state.epoch

        await eventually(are, WAIT_S)

    async def _kill(self) -> None:
        victim = self._any()
        self._group.members[victim].kill()
        await asyncio.sleep(self._chance.choice((0, 2 * LEASE_S)))
        self._start(victim)

    async def _pause(self) -> None:
        await pause(self._group.members[self._any()], self._chance.choice((1, 2 * LEASE_S)))

    async def _cut_off(self) -> None:
        """From etcd, or from the other members."""
        links = self._chance.choice((self._group.etcd_links, self._group.log_links))
        link = links[self._any()]
        link.hold()
        await asyncio.sleep(2 * LEASE_S)
        link.release()

    async def _add_or_remove(self) -> None:
        if MEMBERS in self._up:
            await asyncio.to_thread(self._group.members[MEMBERS].stop)
            self._up.remove(MEMBERS)
        else:
            self._start(MEMBERS)

    async def _replace(self) -> None:
        """Stop a member, and start it with an empty store once it has left the set."""
        victim = self._any()
        await asyncio.to_thread(self._group.members[victim].stop)
        self._up.remove(victim)
        await self._all_in_sync()
        shutil.rmtree(self._group.members[victim].store)
        self._start(victim)

    async def _lose_power(self) -> None:
        await self._lose_power_of([self._any()])

    async def _lose_all_power(self) -> None:
        await self._lose_power_of(sorted(self._up))

    async def _lose_power_of(self, victims: list[int]) -> None:
        members = [self._group.members[victim] for victim in victims]
        await asyncio.to_thread(cut, members, [self._disks[victim] for victim in victims])
        for victim in victims:
            self._start(victim)


async def pause(server: servers.Server, seconds: float = PAUSED_S) -> None:
    """Stop a process for some time."""
    assert server.process is not None
    server.process.send_signal(signal.SIGSTOP)
    await asyncio.sleep(seconds)
    server.process.send_signal(signal.SIGCONT)


async def recorded(
    namesrv: str,
    broker_name: str,
    file: Path,
    faults: list[Fault],
    *,
    commits: bool,
    afterwards: Fault | None = None,
) -> Path:
    """A history of clients under the faults; `afterwards` returns when the servers are repaired."""
    topic = file.name
    await created(namesrv, topic)
    recorder = Recorder(namesrv, broker_name, topic, commits=commits)
    async with recorder.running():
        await recorder.acknowledges()
        for fault in faults:
            await fault()
            await recorder.acknowledges()
            if afterwards is not None:
                await afterwards()
    recorder.save(file)
    return file


async def created(namesrv: str, topic: str) -> None:
    """Create the topic, however often it takes."""
    async with AdminClient(namesrv) as admin:

        async def is_created() -> bool:
            try:
                await admin.create_topic(topic, queues=QUEUES, cluster=servers.CLUSTER)
            except CongreveError:
                return False
            return True

        await eventually(is_created, WAIT_S)


def disks_of(disks: Disks | None) -> dict[int, Disk]:
    """A disk for each member of a group; none where none can be made."""
    return {} if disks is None else {number: disks.add() for number in range(1, MEMBERS + 1)}
