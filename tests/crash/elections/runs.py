"""Runs of an elected group: a kill, a cut, and a member whose log is shortened, in any order.

Meanwhile one group of consumers reads without an end, another one stops and continues at its stored
offsets, and pulls ask each member. An offset of a queue that was acknowledged or shown never has
another message at any member; consumers get all that was acknowledged.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import traceback
from collections.abc import AsyncIterator, Collection, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from elections.faults import FAULTS, LEASE_S, QUEUES, SETTINGS, TOPIC, fault, numbers
from harness.eventually import eventually
from harness.numbered_messages import LOOK_S, NumberedMessages, number_of
from harness.replication.elected_processes import WAIT_S, ElectedProcesses
from harness.replication.replicas import log_bytes
from harness.wire import PULL_MESSAGE, Wire, pull_fields, record_bodies

from congreve.client import ConsumeFrom, PushConsumer

ANSWER_S = 2.0
PULLED = 32
CUTS = [kind for kind in FAULTS if kind.startswith(("hold", "cut"))]
SHORTENED = [kind for kind in FAULTS if "lose" in kind]
KILLS = ["kill master", "kill slave"]


@dataclass
class Outcome:
    """What a group and its clients came to."""

    runs: int = 0
    switches: int = 0
    acknowledged: int = 0
    shown: int = 0
    """Offsets that a consumer or a pull saw."""
    faults: list[str] = field(default_factory=list)


class Watched(NumberedMessages):
    """The messages of a producer, and what all clients saw of them."""

    def __init__(self, namesrv: str) -> None:
        super().__init__(namesrv, TOPIC, send_timeout_s=1.0)
        self.consumed: dict[str, set[int]] = {"goes on": set(), "starts again": set()}

    async def consume(self, group: str) -> None:
        """Read all queues, until it is cancelled; continues at stored offsets."""
        async with PushConsumer(
            self.namesrv,
            group=group.replace(" ", "-"),
            topics={TOPIC: "*"},
            consume_from=ConsumeFrom.FIRST_OFFSET,
        ) as consumer:
            async for message in consumer:
                number = number_of(message.body)
                self.see(message.queue_id, message.queue_offset, number)
                self.consumed[group].add(number)

    async def consume_and_start_again(self, chance: random.Random) -> None:
        """The same with consumers that live for some seconds."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(chance.uniform(2, 8)):
                    await self.consume("starts again")

    async def pull(self, address: str, chance: random.Random) -> None:
        """Pull from a member, master or slave, again and again what it has shown."""
        offsets = [0] * QUEUES
        while True:
            with suppress(OSError):
                offsets = await asyncio.to_thread(self._pull_once, address, offsets)
            offsets = [max(0, each - chance.randrange(PULLED)) for each in offsets]
            await asyncio.sleep(LOOK_S)

    def _pull_once(self, address: str, offsets: list[int]) -> list[int]:
        with Wire(address, timeout_s=ANSWER_S) as wire:
            return [self._pull_of(wire, *each) for each in enumerate(offsets)]

    def _pull_of(self, wire: Wire, queue_id: int, offset: int) -> int:
        """The next offset."""
        answer = wire.call(PULL_MESSAGE, pull_fields(TOPIC, queue_id, offset, PULLED))
        if answer.code == 0:
            for at, body in record_bodies(answer.body):
                self.see(queue_id, at, number_of(body))
                offset = at + 1
        return offset

    async def are_consumed(self, wanted: Collection[int]) -> list[str]:
        """What a group of consumers never gets."""
        with suppress(TimeoutError):
            await eventually(
                lambda: all(each.issuperset(wanted) for each in self.consumed.values()), WAIT_S
            )
        lacks = {group: set(wanted) - each for group, each in self.consumed.items()}
        return [
            f"skipped by the group that {group}: {len(lack)}, {sorted(lack)[:9]}"
            for group, lack in lacks.items()
            if lack
        ]

    def contradictions(self) -> list[str]:
        """Offsets with two meanings."""
        two = {place: found for place, found in self.seen.items() if len(found) > 1}
        return [f"two meanings of {len(two)} offsets: {list(two.items())[:9]}"] if two else []


@asynccontextmanager
async def at_work(*work: Coroutine[object, object, None]) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(each) for each in work]
    try:
        yield
        ended = [each for each in tasks if each.done()]
        assert not ended, f"a client has ended: {ended}"
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def run(folder: Path, size: int, runs: int, seed: int) -> Outcome:
    """Run a new group of so many members so often."""
    chance = random.Random(seed)
    settings = SETTINGS | {"slaveReadEnable": "true", "flushConsumerOffsetInterval": "200"}
    group = ElectedProcesses(folder, size, lease_s=LEASE_S, settings=settings)
    watched, outcome = Watched(group.namesrv.address), Outcome()
    async with group.running():
        for number in group.members:
            group.start(number)
        async with at_work(
            watched.send(),
            watched.consume("goes on"),
            watched.consume_and_start_again(chance),
            *(watched.pull(member.address, chance) for member in group.members.values()),
        ):
            await group.all_in_sync()
            await watched.acknowledges()
            epoch = (await group.state()).epoch
            while outcome.runs < runs and not outcome.faults:
                kinds = [chance.choice(kinds) for kinds in (KILLS, CUTS, SHORTENED)]
                chance.shuffle(kinds)
                for kind in kinds:
                    await asyncio.sleep(chance.uniform(0, 0.5))
                    await fault(group, watched, kind)
                outcome.runs += 1
                outcome.faults = await watched.are_consumed(set(watched.acknowledged))
                outcome.faults += watched.contradictions()
            outcome.switches = (await group.state()).epoch - epoch
    outcome.acknowledged, outcome.shown = len(watched.acknowledged), len(watched.seen)
    outcome.faults += of_stores(group, watched)
    return outcome


def run_and_remove(folder: Path, size: int, runs: int, seed: int) -> Outcome:
    """The same in a process of its own; the stores stay only if something was wrong."""
    folder.mkdir(parents=True)
    try:
        outcome = asyncio.run(run(folder, size, runs, seed))
    except (AssertionError, TimeoutError) as error:
        traceback.print_exc()
        return Outcome(faults=[f"{type(error).__name__}: {error}"])
    if not outcome.faults:
        shutil.rmtree(folder)
    return outcome


def of_stores(group: ElectedProcesses, watched: Watched) -> list[str]:
    """What is wrong in the stores of members that have ended: all acknowledged messages are in the
    longest, each once, in order, where they were seen; the others are its beginning."""
    stores = [member.store for member in group.members.values()]
    queues = max(map(numbers, stores), key=lambda each: sum(map(len, each.values())))
    for queue_id, found in queues.items():
        for offset, number in enumerate(found):
            watched.see(queue_id, offset, number)
    faults = watched.contradictions()
    try:
        watched.check(queues)
    except AssertionError as error:
        faults.append(str(error))
    logs = [log_bytes(store) for store in stores]
    if len({log[: min(map(len, logs))] for log in logs}) > 1:
        faults.append("the logs differ")
    return faults
