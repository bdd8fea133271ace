"""The members of an elected group as processes, with the links between them."""

from __future__ import annotations

import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from congreve.broker.election.coordinator import CoordinatorError, GroupState
from congreve.broker.election.etcd import EtcdCoordinator

from .. import servers
from ..eventually import eventually
from ..link import Link
from ..shifted_clock import ShiftedClock
from .etcd import Etcd

GROUP = "elected"
WAIT_S = 120


class ElectedProcesses:
    """A name server, an etcd and the members; each member reaches etcd over a link of its own.

    The others reach the log of member N over a link, too, whose address is 127.0.1.N.
    """

    def __init__(
        self,
        folder: Path,
        count: int,
        *,
        lease_s: int,
        stores: Mapping[int, Path] | None = None,
        settings: Mapping[str, str] | None = None,
        clocks: Mapping[int, ShiftedClock] | None = None,
    ) -> None:
        """`clocks` are the wall clocks of members, if a test sets them."""
        self.etcd = Etcd(folder / "etcd")
        self.namesrv = servers.namesrv("congreve", folder)
        self.members: dict[int, servers.BrokerServer] = {}
        self.clocks = dict(clocks or {})
        self._lease_s = lease_s
        self.etcd_links: dict[int, Link] = {}
        self.log_links: dict[int, Link] = {}
        for number in range(1, count + 1):
            port = servers.free_port()
            self.etcd_links[number] = Link(self.etcd.port)
            self.log_links[number] = Link(port + 1, f"127.0.1.{number}", port + 1)
            self.members[number] = servers.broker(
                *("congreve", folder / str(number), self.namesrv.address),
                broker_name=GROUP,
                watchdog_millis=0,
                port=port,
                store=(stores or {}).get(number),
                settings={
                    "haMode": "etcd",
                    "etcdEndpoints": f"http://{self.etcd_links[number].address}",
                    "haLeaseSeconds": str(lease_s),
                    "brokerId": str(number),
                    "brokerIP2": f"127.0.1.{number}",
                    "flushDiskType": "SYNC_FLUSH",
                    "mappedFileSizeCommitLog": str(1 << 20),
                    "maxHashSlotNum": "1000",
                    "maxIndexNum": "4000",
                    **(settings or {}),
                },
            )
        for number, clock in self.clocks.items():
            self.members[number].environment.update(clock.environment)
        self.coordinator = EtcdCoordinator(
            [self.etcd.url], servers.CLUSTER, GROUP, timeout_s=lease_s
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Everything but the members is up; they end with it."""
        links = [*self.etcd_links.values(), *self.log_links.values()]
        self.etcd.start()
        self.namesrv.start()
        try:
            for link in links:
                await link.start()
            yield
        finally:
            for member in self.members.values():
                if member.process is not None:
                    member.process.send_signal(signal.SIGCONT)
                    member.kill()
            for link in links:
                await link.stop()
            self.namesrv.kill()
            self.etcd.stop()

    def start(self, number: int) -> None:
        """Start a member, without waiting."""
        self.members[number].spawn()

    @property
    def transfer_command(self) -> str:
        """For a shell that has `BROKER` in its environment: makes another member the master."""
        return (
            f"test $BROKER = {GROUP} && {sys.executable} -m congreve election transfer"
            f" -n {self.namesrv.address} -o haMode=etcd -o etcdEndpoints={self.etcd.url}"
            f" -o brokerName={GROUP} -o brokerClusterName={servers.CLUSTER}"
            f" -o haLeaseSeconds={self._lease_s}"
        )

    async def state(self) -> GroupState:
        """The group's state in etcd; an empty one while it does not answer."""
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

        await eventually(is_there, WAIT_S)
        return found[0]

    async def all_in_sync(self) -> None:
        """Return when all members are in the set."""

        async def are() -> bool:
            state = await self.state()
            return state.in_sync == set(self.members) and state.set_epoch == state.epoch

        await eventually(are, WAIT_S)
