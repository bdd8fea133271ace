"""A group of members, its clients, the faults that hit it, and what must hold meanwhile."""

from __future__ import annotations

import asyncio
import logging
import random
import shutil
import tempfile
import zlib
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, NamedTuple, cast
from unittest.mock import patch

from congreve.broker.election import elected_broker, replication
from congreve.broker.election.coordinator import ElectRequest
from congreve.broker.election.in_sync import InSyncSet
from congreve.engine.read.reader import GetStatus
from congreve.engine.results import PutStatus
from congreve.engine.store import MessageStore
from congreve.records.message.message import Record
from congreve.records.record import decode_record

from .coordination import Watched
from .faults import by_chance
from .member import LOOK_S, Machine, Member, Process, StoreBroker
from .network import Network
from .virtual_time import VirtualLoop

TOPIC = "orders"
QUEUES = 2
ANSWER_S = 3.0
POLL_S, POLL_MAX_S = 0.001, 0.032
"""How often a client looks whether its message is confirmed: at first, and at last."""
BURST = 4
"""Messages that are sent at one time, on average."""
NOTE_S = 1.0
"""How often a member writes what is confirmed, in seconds: more often takes a quarter longer."""
READ_S = 0.5
READ_MAX = 64
CALM_S = 120.0
"""After the last fault, the group must be whole again and acknowledge within so many seconds."""


Plot = Callable[["World"], Coroutine[Any, Any, None]]
"""What happens to a world while its clients work."""


class BrokenPromiseError(AssertionError):
    """Something that must never happen has happened."""


class Rates(NamedTuple):
    """What happens in a simulated minute, on average."""

    appends: float = 240.0
    faults: float = 8.0


class Shape(NamedTuple):
    """What a group is."""

    members: int = 3
    sync_flush: bool = True
    min_in_sync: int = 1

    @classmethod
    def by(cls, chance: random.Random) -> Shape:
        """One by chance."""
        count = chance.choice((2, 3, 3, 3, 5))
        return cls(count, chance.random() < 0.7, chance.choice((1, 1, 2)))


class Outcome(NamedTuple):
    """What one world has seen."""

    seed: int
    minutes: float
    appends: int
    acknowledged: int
    faults: int
    changes: int
    trace: int
    """A number that two runs of one seed share."""


class World:
    """One group under virtual time."""

    def __init__(
        self, seed: int, loop: VirtualLoop, folder: Path, rates: Rates, shape: Shape | None
    ) -> None:
        """Without a `shape` the seed chooses one."""
        self.chance = random.Random(seed)
        self.seed = seed
        self.loop = loop
        self.rates = rates
        self.network = Network(loop, random.Random(self.chance.random()))
        self.watched = Watched(loop, random.Random(self.chance.random()))
        self.shape = shape = shape or Shape.by(self.chance)
        settings = {
            "flushDiskType": "SYNC_FLUSH" if shape.sync_flush else "ASYNC_FLUSH",
            "minInSyncReplicas": str(shape.min_in_sync),
        }
        self.members = {
            number: Member(
                Machine(number, folder, loop, self.network, self.watched), settings, self._break
            )
            for number in range(10, 10 + 10 * shape.members, 10)
        }
        self.appends = 0
        self.faults = 0
        self.acknowledged: dict[int, tuple[int, int, int]] = {}
        """Messages by number: queue, queue offset and physical offset."""
        self.seen: list[list[int]] = [[] for _ in range(QUEUES)]
        """The messages that readers saw at each offset of each queue."""
        self.masters: dict[int, int] = {}
        """Who acknowledged in each epoch."""
        self.has_lost_end = False
        """Whether a member has lost the end of its log, and has not caught up yet."""
        self.until = 0.0
        """When clients stop."""
        self.ends = False
        """Whether no further fault comes."""
        self.trace = 0
        self.burst = asyncio.Event()
        """Set for a moment when messages were sent."""
        self._jobs: set[asyncio.Task[None]] = set()
        self._broken: BaseException | None = None

    # --- a life of the group

    async def run(self, minutes: float, plot: Plot) -> Outcome:
        """Let it live for so long, and for as long as the plot goes on; then be calm.

        Raises BrokenPromiseError.
        """
        for member in self.members.values():
            member.start(self.check_master)
        self.until = self.loop.time() + minutes * 60
        self.begin(self._produce())
        self.begin(self._consume())
        await plot(self)
        self.ends = True
        while self._jobs:
            await asyncio.wait(self._jobs, timeout=CALM_S)
            self.raise_broken()
        await self._calm()
        for member in self.members.values():
            await member.stop()
            await member.buried()
        return Outcome(
            self.seed,
            self.loop.time() / 60,
            self.appends,
            len(self.acknowledged),
            self.faults,
            self.watched.changes,
            self.trace,
        )

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Let this go on beside; what it breaks ends the world."""
        task = self.loop.create_task(work)
        self._jobs.add(task)
        task.add_done_callback(self._ended)

    def _break(self, error: BaseException) -> None:
        self._broken = self._broken or error

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._jobs.discard(task)
        if not task.cancelled() and self._broken is None:
            self._broken = task.exception()

    def raise_broken(self) -> None:
        """Raise what was broken meanwhile."""
        if self._broken is not None:
            raise self._broken

    def note(self, what: object) -> None:
        """Let the trace depend on this."""
        self.trace = zlib.crc32(f"{what} {self.loop.time():.6f}".encode(), self.trace)

    # --- clients

    async def _produce(self) -> None:
        sending: set[asyncio.Task[None]] = set()
        while self.loop.time() < self.until:
            await asyncio.sleep(self.chance.expovariate(self.rates.appends / 60 / BURST))
            for _ in range(self.chance.randint(1, 2 * BURST - 1)):
                task = self.loop.create_task(self._send())
                sending.add(task)
                task.add_done_callback(sending.discard)
            self.burst.set()
            self.burst.clear()
        await asyncio.gather(*sending)

    async def _send(self) -> None:
        """One message to a member that takes it; acknowledged, or its fate is unknown."""
        masters = [each for each in self.members.values() if each.is_master]
        if not masters:
            return
        process = self.chance.choice(masters).process
        store, fence = (None, None) if process is None else (process.store, process.fence)
        if process is None or store is None or fence is None:
            return
        broker = cast("StoreBroker", process.elected.broker)
        if broker.ports.held:
            return
        self.appends += 1
        number, queue = self.appends, self.chance.randrange(QUEUES)
        done = store.put(Record(topic=TOPIC, queue_id=queue, body=b"%d" % number))
        if done.status != PutStatus.PUT_OK:
            return
        process.look_at_disk(store)
        broker.ports.unanswered += 1
        if await self._is_confirmed(process, broker, done.end):
            self._acknowledge(number, (queue, done.queue_offset, done.physical_offset), fence.term)
        broker.ports.unanswered -= 1

    async def _is_confirmed(self, process: Process, broker: StoreBroker, end: int) -> bool:
        """Wait until the client has its answer; False if it comes to know nothing."""
        confirm, until, pause = broker.replication.confirm, self.loop.time() + ANSWER_S, POLL_S
        while self.loop.time() < until:
            if not process.alive or process.store is not broker.store:
                return False
            if confirm.current() >= end and confirm.may_wait(end):
                return True
            await asyncio.sleep(pause)
            pause = min(2 * pause, POLL_MAX_S)
        return False

    def _acknowledge(self, number: int, place: tuple[int, int, int], term: InSyncSet) -> None:
        epoch, member = term.master.epoch, term.master.member
        if self.masters.setdefault(epoch, member) != member:
            raise BrokenPromiseError(f"{member} and {self.masters[epoch]} acknowledge in {epoch}")
        self.acknowledged[number] = place
        self.note(number)
        queue, offset, _ = place
        if offset < len(self.seen[queue]) and self.seen[queue][offset] != number:
            raise BrokenPromiseError(
                f"{number} is acknowledged at {queue}/{offset}, where readers saw"
                f" {self.seen[queue][offset]}"
            )

    async def _consume(self) -> None:
        while self.loop.time() < self.until:
            await asyncio.sleep(READ_S * self.chance.random() * 2)
            there = [each for each in self.members.values() if each.process is not None]
            if there:
                process = self.chance.choice(there).process
                store = None if process is None else process.store
                if store is not None and store.recovery is not None:
                    self._read(store, back=5)

    def _read(self, store: MessageStore, back: int) -> None:
        """Read what the member shows, and compare it with what others have shown there."""
        for queue, seen in enumerate(self.seen):
            offset = max(len(seen) - back, 0)
            while True:
                found = store.get(TOPIC, queue, offset, READ_MAX)
                if found.status != GetStatus.FOUND:
                    break
                for number in _numbers(found.buffers):
                    if offset == len(seen):
                        seen.append(number)
                    elif seen[offset] != number:
                        raise BrokenPromiseError(
                            f"{queue}/{offset} is {number}, and was {seen[offset]}"
                        )
                    offset += 1

    # --- promises

    def check_master(self, store: MessageStore) -> None:
        """A master must have everything that is acknowledged."""
        newest = list(self.acknowledged.items())[-200:]
        for number, (queue, offset, place) in newest:
            record = store.read(place)
            there = None if record is None else decode_record(record)
            if there is None or there.body != b"%d" % number:
                error = BrokenPromiseError(
                    f"a master is elected without {number}, acknowledged at {queue}/{offset}"
                )
                self._broken = self._broken or error

    async def _calm(self) -> None:
        """Without faults the group must be whole soon, and have everything once, in order."""
        self.network.cut.clear()
        self.network.slow.clear()
        self.watched.cut.clear()
        self.watched.lost_answers = 0.0
        for member in self.members.values():
            member.machine.disk_fails = False
            if member.process is None:
                member.start(self.check_master)
        until = self.loop.time() + CALM_S
        await self._until(until, self._is_whole)
        before = len(self.acknowledged)
        while len(self.acknowledged) == before:
            await self._send()
            await asyncio.sleep(0.1)
            self._check(until)
        await self._until(until, self._is_whole)
        self._compare()

    async def _until(self, until: float, holds: Callable[[], bool]) -> None:
        while not holds():
            await asyncio.sleep(0.25)
            self._check(until)

    def _check(self, until: float) -> None:
        self.raise_broken()
        if self.loop.time() > until:
            raise BrokenPromiseError(f"not whole {CALM_S:g} s after all faults: {self._describe()}")

    def is_in_sync(self, member: Member) -> bool:
        """Whether this member has the master's whole log, and is in the set."""
        masters = [each.process for each in self.members.values() if each.is_master]
        master, process = masters[0] if len(masters) == 1 else None, member.process
        if master is None or process is None or master.store is None or process.store is None:
            return False
        return (
            member.number in self.watched.service.read().in_sync
            and process.store.log.shown_end == master.store.log.max_offset
        )

    def _is_whole(self) -> bool:
        return all(map(self.is_in_sync, self.members.values()))

    def _describe(self) -> str:
        state = self.watched.service.read()
        ends = {
            number: None
            if (process := member.process) is None or process.store is None
            else (process.store.log.max_offset, process.elected._why)
            for number, member in self.members.items()
        }
        return f"{state}; {ends}"

    def _compare(self) -> None:
        logs = {}
        for number, member in self.members.items():
            assert member.process is not None and member.process.store is not None
            store = member.process.store
            self._read(store, back=1 << 30)
            logs[number] = b"".join(
                bytes(memoryview(segment)[: segment.written]) for segment in store.log.segments
            )
        shortest = min(map(len, logs.values()))
        if len({log[:shortest] for log in logs.values()}) > 1:
            raise BrokenPromiseError("the logs differ")
        for number, (queue, offset, _) in self.acknowledged.items():
            if offset >= len(self.seen[queue]) or self.seen[queue][offset] != number:
                raise BrokenPromiseError(f"{number}, acknowledged at {queue}/{offset}, is lost")
        for queue, seen in enumerate(self.seen):
            if len(set(seen)) < len(seen):
                raise BrokenPromiseError(f"queue {queue} has a message twice")

    # --- what an operator does

    def transfer(self, member: int) -> None:
        """Ask for this member as master."""
        self.watched.service.ask(ElectRequest(member, "operator", False))
        self.watched.changed()


def _numbers(buffers: list[bytes | memoryview]) -> list[int]:
    found = []
    data = b"".join(buffers)
    while data:
        size = int.from_bytes(data[:4], "big")
        found.append(int(decode_record(data[:size]).body))
        data = data[size:]
    return found


def simulate(
    seed: int,
    minutes: float,
    rates: Rates | None = None,
    *,
    plot: Plot = by_chance,
    shape: Shape | None = None,
) -> Outcome:
    """The life of one group. Raises BrokenPromiseError."""
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="simulation-", dir=memory if memory.is_dir() else None))
    logging.getLogger("congreve").setLevel(logging.CRITICAL)
    make: Callable[[], VirtualLoop] = VirtualLoop
    try:
        with (
            patch.object(elected_broker, "TEND_S", LOOK_S),
            patch.object(replication, "LOOK_S", LOOK_S),
            patch.object(replication, "NOTE_S", NOTE_S),
            asyncio.Runner(loop_factory=make) as runner,
        ):
            loop = runner.get_loop()
            assert isinstance(loop, VirtualLoop)
            world = World(seed, loop, folder, rates or Rates(), shape)
            return runner.run(world.run(minutes, plot))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
