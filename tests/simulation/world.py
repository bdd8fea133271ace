"""A group of members, its clients, the faults that hit it, and what must hold meanwhile."""

from __future__ import annotations

import asyncio
import logging
import random
import shutil
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

from congreve.broker.election import elected_broker
from congreve.broker.election.coordinator import ElectRequest
from congreve.broker.election.in_sync import InSyncSet
from congreve.engine.read.reader import GetStatus
from congreve.engine.results import PutStatus
from congreve.engine.store import MessageStore
from congreve.records.message.message import Record
from congreve.records.record import decode_record

from .coordination import Watched
from .faults import FAULTS
from .member import LOOK_S, Machine, Member
from .network import Network
from .virtual_time import VirtualLoop

TOPIC = "orders"
QUEUES = 2
ANSWER_S = 3.0
POLL_S, POLL_MAX_S = 0.001, 0.032
"""How often a client looks whether its message is confirmed: at first, and at last."""
BURST = 4
"""Messages that are sent at one time, on average."""
WINDOW_S = 0.1
"""How soon behind them most faults come."""
READ_S = 0.5
READ_MAX = 64
CALM_S = 120.0
"""After the last fault, the group must be whole again and acknowledge within so many seconds."""


class BrokenPromiseError(AssertionError):
    """Something that must never happen has happened."""


class Rates(NamedTuple):
    """What happens in a simulated minute, on average."""

    appends: float = 240.0
    faults: float = 8.0


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

    def __init__(self, seed: int, loop: VirtualLoop, folder: Path, rates: Rates) -> None:
        self.chance = random.Random(seed)
        self.seed = seed
        self.loop = loop
        self.rates = rates
        self.network = Network(loop, random.Random(self.chance.random()))
        self.watched = Watched(loop, random.Random(self.chance.random()))
        count = self.chance.choice((2, 3, 3, 3, 5))
        self.sync_flush = self.chance.random() < 0.7
        settings = {
            "flushDiskType": "SYNC_FLUSH" if self.sync_flush else "ASYNC_FLUSH",
            "minInSyncReplicas": str(self.chance.choice((1, 1, 2))),
        }
        self.members = {
            number: Member(Machine(number, folder, loop, self.network, self.watched), settings)
            for number in range(10, 10 + 10 * count, 10)
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
        self.ends = False
        """Whether no further fault comes."""
        self.trace = 0
        self._burst = asyncio.Event()
        self._jobs: set[asyncio.Task[None]] = set()
        self._broken: BaseException | None = None

    # --- a life of the group

    async def run(self, minutes: float) -> Outcome:
        """Let it live for so long, then be calm. Raises BrokenPromiseError."""
        for member in self.members.values():
            member.start(self.check_master)
        end = self.loop.time() + minutes * 60
        self._begin(self._produce(end))
        self._begin(self._consume(end))
        while self.loop.time() < end:
            await asyncio.sleep(self.chance.expovariate(self.rates.faults / 60))
            self._raise_broken()
            if self.chance.random() < 0.7:  # while messages are on their way
                await asyncio.wait([self.loop.create_task(self._burst.wait())], timeout=10.0)
                await asyncio.sleep(WINDOW_S * self.chance.random())
            fault = self.chance.choice(FAULTS)
            self.faults += 1
            self._note(fault.__name__)
            self._begin(fault(self))
        self.ends = True
        while self._jobs:
            await asyncio.wait(self._jobs, timeout=CALM_S)
            self._raise_broken()
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

    def _begin(self, work: object) -> None:
        task: asyncio.Task[None] = self.loop.create_task(work)  # type: ignore[arg-type]
        self._jobs.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._jobs.discard(task)
        if not task.cancelled() and self._broken is None:
            self._broken = task.exception()

    def _raise_broken(self) -> None:
        if self._broken is not None:
            raise self._broken

    def _note(self, what: object) -> None:
        self.trace = zlib.crc32(f"{what} {self.loop.time():.6f}".encode(), self.trace)

    # --- clients

    async def _produce(self, end: float) -> None:
        sending: set[asyncio.Task[None]] = set()
        while self.loop.time() < end:
            await asyncio.sleep(self.chance.expovariate(self.rates.appends / 60 / BURST))
            for _ in range(self.chance.randint(1, 2 * BURST - 1)):
                task = self.loop.create_task(self._send())
                sending.add(task)
                task.add_done_callback(sending.discard)
            self._burst.set()
            self._burst.clear()
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
        self.appends += 1
        number, queue = self.appends, self.chance.randrange(QUEUES)
        body = b"%d" % number
        done = store.put(Record(topic=TOPIC, queue_id=queue, body=body))
        if done.status != PutStatus.PUT_OK:
            return
        process.look_at_disk(store)
        broker = process.elected.broker
        assert broker is not None
        confirm, until = broker.replication.confirm, self.loop.time() + ANSWER_S
        pause = POLL_S
        while self.loop.time() < until:
            if not process.alive or process.elected.broker is not broker:
                return
            if confirm.current() >= done.end and confirm.may_wait(done.end):
                self._acknowledge(
                    number, (queue, done.queue_offset, done.physical_offset), fence.term
                )
                return
            await asyncio.sleep(pause)
            pause = min(2 * pause, POLL_MAX_S)

    def _acknowledge(self, number: int, place: tuple[int, int, int], term: InSyncSet) -> None:
        epoch, member = term.master.epoch, term.master.member
        if self.masters.setdefault(epoch, member) != member:
            raise BrokenPromiseError(f"{member} and {self.masters[epoch]} acknowledge in {epoch}")
        self.acknowledged[number] = place
        self._note(number)
        queue, offset, _ = place
        if offset < len(self.seen[queue]) and self.seen[queue][offset] != number:
            raise BrokenPromiseError(
                f"{number} is acknowledged at {queue}/{offset}, where readers saw"
                f" {self.seen[queue][offset]}"
            )

    async def _consume(self, end: float) -> None:
        while self.loop.time() < end:
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
        self._raise_broken()
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


def simulate(seed: int, minutes: float, rates: Rates | None = None) -> Outcome:
    """The life of one group. Raises BrokenPromiseError."""
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="simulation-", dir=memory if memory.is_dir() else None))
    logging.getLogger("congreve").setLevel(logging.CRITICAL)
    make: Callable[[], VirtualLoop] = VirtualLoop
    try:
        with (
            patch.object(elected_broker, "TEND_S", LOOK_S),
            asyncio.Runner(loop_factory=make) as runner,
        ):
            loop = runner.get_loop()
            assert isinstance(loop, VirtualLoop)
            world = World(seed, loop, folder, rates or Rates())
            return runner.run(world.run(minutes))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
