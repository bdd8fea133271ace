"""One member: a disk, and the processes that run on it one after the other.

Real are the store, the election, the fence, both ends of replication and all that they write. Not
there are the ports for clients, the tables of topics and groups, and threads.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

from congreve.base.clock import Clock
from congreve.broker.broker import Broker
from congreve.broker.config import BrokerConfig
from congreve.broker.election.elected_broker import ElectedBroker
from congreve.broker.election.fence import Fence
from congreve.broker.election.master_link import ElectedSlave, EpochFollower
from congreve.broker.election.replication import ElectionReplication, Role
from congreve.broker.election.slave_link import AutoSwitchService
from congreve.broker.managers import Managers
from congreve.broker.replication.ha_connector import HaConnector
from congreve.broker.replication.log_follower import LogFollower
from congreve.broker.replication.master_requests import MasterRequests
from congreve.broker.replication.settings import ReplicationSettings
from congreve.broker.replication.slave_loop import SlaveLoop
from congreve.engine.config import StoreConfig
from congreve.engine.queue.consume_queue import ConsumeQueue
from congreve.engine.store import MessageStore
from congreve.io_backends.fault.stepped import SteppedBackend
from congreve.remoting.loop.event_fd import EventFd

from .coordination import SimulatedCoordinator, Watched
from .network import Link, NamedSocket, Network, Pipe
from .virtual_time import VirtualLoop

SECTOR = 512
DISK_S = 0.002
STEP_S = 0.5
"""How often a slave looks whether a heartbeat is due, in seconds."""
LOOK_S = 0.2
"""How often a master looks at its set and its disk, and tells slaves what is confirmed, in seconds.

A broker looks more often; most of the time of a simulation would go there."""
SEGMENT_BYTES = 256 << 10


class Machine:
    """What the processes of a member share: its disk, its clock, its network."""

    def __init__(
        self, number: int, folder: Path, loop: VirtualLoop, network: Network, watched: Watched
    ) -> None:
        self.number = number
        self.folder = folder
        self.loop = loop
        self.network = network
        self.watched = watched
        self.chance = random.Random(network.chance.random())
        self.clock_drift = 1.0 + 0.02 * (self.chance.random() - 0.5)
        self.disk_fails = False

    def time(self) -> float:
        """The member's monotonic clock, which runs a little too fast or too slow."""
        return self.loop.time() * self.clock_drift

    @property
    def ha_address(self) -> str:
        """Where the member's slaves connect."""
        return f"127.0.0.1:{self.number + 1}"


class Process:
    """One life of a member."""

    def __init__(self, machine: Machine, config: BrokerConfig) -> None:
        self.machine = machine
        self.alive = True
        self.progress: set[Callable[[], None]] = set()
        """Called when the disk has written something."""
        self.coordinator = SimulatedCoordinator(machine.watched, machine.number)
        self.elected = ElectedBroker(
            config,
            coordinator=self.coordinator,
            clock=machine.time,
            make_broker=cast("Callable[..., Broker]", partial(StoreBroker, self)),
            make_replication=partial(SimulatedReplication, self),
            make_store=self.make_store,
        )
        self.on_master: Callable[[MessageStore], None] = lambda store: None
        """Called with the store of a master before it takes messages."""

    def make_store(self, config: StoreConfig) -> MessageStore:
        """A store whose disk this simulation moves."""
        clock: Clock = self.machine.loop.clock
        return MessageStore(
            config,
            clock=clock,
            backend=SteppedBackend(),
            disk_use=lambda folder: 0.1,
            threads=False,
        )

    @property
    def store(self) -> MessageStore | None:
        """The open store, None while the role changes."""
        broker = self.elected.broker
        return None if broker is None else broker.store

    @property
    def fence(self) -> Fence | None:
        """A master's fence."""
        broker = self.elected.broker
        if broker is None or not isinstance(broker.replication, ElectionReplication):
            return None
        return broker.replication.fence

    def look_at_disk(self, store: MessageStore) -> None:
        """Let the disk write what the store has asked for, soon."""
        backend = store.backend
        assert isinstance(backend, SteppedBackend)
        if backend.waits:
            delay = DISK_S * self.machine.chance.random()
            self.machine.loop.call_later(delay, self._write, backend)

    def _write(self, backend: SteppedBackend) -> None:
        if self.machine.disk_fails:
            backend.fail_with(5)
        elif backend.waits:
            backend.sync()
            for each in list(self.progress):
                each()


class Member:
    """A member that starts, stops, crashes and loses its power."""

    def __init__(
        self,
        machine: Machine,
        settings: dict[str, str],
        failed: Callable[[BaseException], None],
    ) -> None:
        """`failed` gets the error of a start."""
        self.failed = failed
        self.machine = machine
        self.number = machine.number
        self.process: Process | None = None
        self._settings = settings
        self._disks = 0
        self._starting: asyncio.Task[None] | None = None
        self._ending: set[asyncio.Task[None]] = set()

    @property
    def is_master(self) -> bool:
        """Whether it believes so."""
        return self.process is not None and self.process.elected.is_master

    @property
    def disk(self) -> Path:
        """The folder of the store now."""
        return self.machine.folder / f"{self.number}-{self._disks}"

    def start(self, on_master: Callable[[MessageStore], None]) -> None:
        """Start the process."""
        assert self.process is None
        config = BrokerConfig().changed(
            {
                "brokerName": "g",
                "brokerIP1": "127.0.0.1",
                "brokerIP2": "127.0.0.1",
                "haMode": "etcd",
                "haLeaseSeconds": "3",
                "brokerId": str(self.number),
                "listenPort": str(self.number),
                "haListenPort": str(self.number + 1),
                "haMaxTimeSlaveNotCatchup": "2000",
                "haSendHeartbeatInterval": "1000",
                "haHousekeepingInterval": "5000",
                "storePathRootDir": str(self.disk),
                "mappedFileSizeCommitLog": str(SEGMENT_BYTES),
                "mappedFileSizeConsumeQueue": "20000",
                "maxMessageSize": "65536",
                "messageIndexEnable": "false",
                "ioBackend": "mmap",
                **self._settings,
            }
        )
        self.process = Process(self.machine, config)
        self.process.on_master = on_master
        self._starting = self.machine.loop.create_task(self.process.elected.start())
        self._starting.add_done_callback(self._started)

    async def stop(self) -> None:
        """Stop cleanly."""
        process, self.process = self.process, None
        if process is not None:
            await self._settle()
            await process.elected.stop()
            process.alive = False

    def crash(self, *, loses_power: bool = False, loses_bytes: int = 0) -> None:
        """End the process now.

        With its power, what was not on the disk goes, sector by sector. With `loses_bytes` the end
        of its log goes, too.
        """
        process, self.process = self.process, None
        if process is None:
            return
        process.alive = False
        process.coordinator.detached = True
        durable = 0 if process.store is None else process.store.backend.durable_offset
        old = self.disk
        self._disks += 1
        if old.exists():
            shutil.copytree(old, self.disk, ignore=shutil.ignore_patterns("*.prepared"))
            if loses_power and process.store is not None:
                self._forget(durable, process.store.log.max_offset)
            if loses_bytes and process.store is not None:
                end = process.store.log.max_offset
                self._zero(max(end - loses_bytes, 0), end)
        self.machine.network.reset(self.number)
        task = self.machine.loop.create_task(self._bury(process, self._starting, old))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def lose_disk(self) -> None:
        """Continue with an empty disk; the process has ended."""
        assert self.process is None
        self._disks += 1

    async def buried(self) -> None:
        """Wait until nothing of earlier processes runs."""
        if self._ending:
            await asyncio.wait(self._ending)

    def _started(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.failed(error)

    async def _settle(self) -> None:
        starting, self._starting = self._starting, None
        if starting is not None:
            await starting

    async def _bury(
        self, process: Process, starting: asyncio.Task[None] | None, folder: Path
    ) -> None:
        """Close what a process that has crashed had open; nothing of it reaches another member."""
        if starting is not None:
            starting.cancel()
            await asyncio.wait([starting])
        await process.elected.stop()
        shutil.rmtree(folder, ignore_errors=True)

    def _forget(self, durable: int, end: int) -> None:
        for begin in range(durable - durable % SECTOR, end, SECTOR):
            if self.machine.chance.random() < 0.5:
                self._zero(max(begin, durable), min(begin + SECTOR, end))

    def _zero(self, begin: int, end: int) -> None:
        """Zero bytes of the log's files."""
        while begin < end:
            segment = begin - begin % SEGMENT_BYTES
            until = min(end, segment + SEGMENT_BYTES)
            path = self.disk / "commitlog" / f"{segment:020d}"
            if path.exists():
                with path.open("r+b") as file:
                    file.seek(begin - segment)
                    file.write(bytes(until - begin))
            begin = until


class Clients:
    """Instead of the ports: what clients have sent, and wait for."""

    def __init__(self) -> None:
        self.held = False
        """Whether requests wait for the next master."""
        self.unanswered = 0

    def adopt(self, peer: socket.socket, client: tuple[str, int]) -> None:
        """No connection is handed on here."""
        raise ConnectionRefusedError(f"{client} has no connection")

    async def hold(self) -> None:
        """Take no further request."""
        self.held = True

    async def leave(self) -> None:
        """There is no server to leave."""


class StoreBroker:
    """The part of a Broker that an election decides about: a store and its replication."""

    def __init__(
        self,
        process: Process,
        config: BrokerConfig,
        *,
        replication: Callable[..., ElectionReplication],
        **_: Any,
    ) -> None:
        self.config = config
        self._process = process
        self.store = process.make_store(config.store)
        loop = process.machine.loop
        self.managers = Managers(config, self.store, loop.clock, loop.time)
        self.replication = replication(config, self.managers, _ignore)
        self.ports = Clients()

    async def start(self) -> None:
        """Open the store, and take the role (Broker.start)."""
        try:
            self.store.start()
            self.replication.take_role()
            if not self.config.is_slave:
                self._process.on_master(self.store)
            await self.replication.start()
        except BaseException:
            await self.stop()
            raise
        self._process.look_at_disk(self.store)

    async def stop(self) -> None:
        """Close both (Broker.stop)."""
        await self.replication.stop()
        self.store.close()


class SimulatedReplication(ElectionReplication):
    """Replication over the simulated network; members' tables are not copied."""

    def __init__(self, process: Process, role: Role, *rest: Any) -> None:
        super().__init__(role, *rest)
        self.service_type = partial(SimulatedService, process)
        self.slave_type = partial(SimulatedSlave, process)

    async def start(self) -> None:
        """Begin; nothing looks for tables or repairs, of which there are none."""
        await super().start()
        if self._repair_link is not None and self._synchronize is not None:
            await self._repair_link.stop()
            self._synchronize.stop()

    def _requests(self) -> MasterRequests | None:
        return None

    async def copy_tables(self) -> bool:
        """There are none."""
        return True


class SimulatedService(AutoSwitchService):
    """A HA port whose thread is the simulation's loop."""

    tick_s = LOOK_S

    def __init__(self, process: Process, store: MessageStore, *rest: Any, **settings: Any) -> None:
        super().__init__(store, *rest, **settings)
        self._process = process
        self._virtual = process.machine.loop
        self._now = process.machine.loop.time
        self._ticking: asyncio.TimerHandle | None = None

    def listen(self, host: str, port: int) -> None:
        """Listen in the simulated network."""
        machine = self._process.machine
        machine.network.listen(machine.ha_address, machine.number, self._connected)

    def stop(self) -> None:
        """Close everything."""
        machine = self._process.machine
        machine.network.unlisten(machine.ha_address, self._connected)
        if self._slaves is not None and self._wake is not None:
            assert self._ticking is not None
            self._ticking.cancel()
            self._virtual.remove_reader(self._wake.descriptor)
            self._close_all(self._slaves)
            self._slaves = None
        super().stop()

    def _connected(self, link: Link) -> None:
        link.to_far.arrived = self._step
        self._take(link.far, self._strangers.enter(link.name, link.far.close))

    def _start_thread(self) -> SlaveLoop:
        self._wake = EventFd()
        slaves = SlaveLoop(
            self._store.log,
            None,
            wake=self._wake.descriptor,
            sync_flush=self._settings.sync_flush,
        )
        self._virtual.add_reader(self._wake.descriptor, self._step)
        self._ticking = self._virtual.call_later(self.tick_s, self._tick)
        return slaves

    def _tick(self) -> None:
        self._ticking = self._virtual.call_later(self.tick_s, self._tick)
        self._step()

    def _step(self) -> None:
        if self._slaves is not None and not self._stopping:
            self._turn(self._slaves, 0.0)


class SimulatedConnector(HaConnector):
    """Connects in the simulated network."""

    def __init__(self, process: Process) -> None:
        super().__init__(lambda: None, None)
        self._process = process
        self.pipe: Pipe | None = None
        """What brings bytes to the newest connection."""

    async def connect(self, address: str) -> NamedSocket:
        """A connection to the HA port."""
        if not self._process.alive:
            raise ConnectionRefusedError("this process has ended")
        machine = self._process.machine
        peer, self.pipe = await machine.network.connect(machine.number, address)
        return peer


class SimulatedSlave(ElectedSlave):
    """A slave whose thread is the simulation's loop."""

    def __init__(self, process: Process, *rest: Any, **settings: Any) -> None:
        self._process = process
        super().__init__(*rest, **settings)
        self._connector: SimulatedConnector = SimulatedConnector(process)

    def _new_follower(
        self,
        settings: ReplicationSettings,
        arrived: Callable[[set[ConsumeQueue]], None],
    ) -> LogFollower:
        return EpochFollower(
            *(self._store, settings, arrived, self._epochs, self._complete, self._show),
            clock=self._process.machine.loop.time_ns,
        )

    async def _begin_where(self, master: MasterRequests) -> None:
        """No segment expires here: all logs begin at 0."""

    async def _receive(self, peer: socket.socket, start: int) -> None:
        follower, process, woken = self._follower, self._process, asyncio.Event()
        pipe = self._connector.pipe
        assert pipe is not None
        if not follower.begin(peer, start):
            return
        pipe.arrived = woken.set
        process.progress.add(woken.set)
        try:
            while True:
                follower.step()
                process.look_at_disk(self._store)
                try:
                    async with asyncio.timeout(STEP_S):
                        await woken.wait()
                except TimeoutError:
                    pass
                woken.clear()
        finally:
            process.progress.discard(woken.set)
            pipe.arrived = _nothing
            follower.end()


def _ignore(queue: ConsumeQueue) -> None:
    pass


def _nothing() -> None:
    pass
