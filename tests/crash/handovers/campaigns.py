"""kill -9 of the old master, or of the new one, while the old one hands clients' requests on.

One producer of ours and, if there is a driver, one of Java's send one message after the other,
each once. What was acknowledged is in the end stored once, in the order in which it was sent to its
queue, and an ordered consumer gets it so. Of what was not acknowledged nothing is known.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from elections.faults import LEASE_S, SETTINGS, numbers
from elections.runs import at_work
from harness.drivers import Driver
from harness.eventually import eventually
from harness.numbered_messages import NumberedMessages, number_of
from harness.replication.elected_processes import WAIT_S, ElectedProcesses

from congreve.broker.election.coordinator import CoordinatorError
from congreve.broker.election.operator import Operator, OperatorError
from congreve.client import ConsumeFrom, PushConsumer, ReceivedMessage

OURS, JAVAS = "ours", "javas"
"""Topics of the two producers."""
VICTIMS = ("old", "new")
LATEST_S = 2.5
"""After the request to transfer; the hand-over begins some tenths of a second later."""
SEND_S = 3.0
JAVA_POLL_MS = 5_000


@dataclass
class Outcome:
    """What a group and its clients came to."""

    kills: Counter[str] = field(default_factory=Counter)
    """By victim."""
    handed_on: int = 0
    """Requests, as far as old masters that were not killed say."""
    waits: int = 0
    """Kills of the only member in the set, for which the group waits."""
    acknowledged: int = 0
    unanswered: int = 0
    """Messages that are stored and were not acknowledged."""
    twice: int = 0
    """Messages that the consumer got again."""
    faults: list[str] = field(default_factory=list)


class Read:
    """What an ordered consumer got of each queue."""

    def __init__(self, namesrv: str, topics: Iterable[str]) -> None:
        self._namesrv = namesrv
        self._topics = tuple(topics)
        self._numbers: defaultdict[tuple[str, int], list[int]] = defaultdict(list)

    async def consume(self) -> None:
        """Until it is cancelled."""
        async with PushConsumer(
            self._namesrv,
            group="in-order",
            topics=dict.fromkeys(self._topics, "*"),
            listener=self._listen,
            orderly=True,
            consume_from=ConsumeFrom.FIRST_OFFSET,
        ):
            await asyncio.Event().wait()

    def _listen(self, message: ReceivedMessage) -> None:
        self._numbers[message.topic, message.queue_id].append(number_of(message.body))

    def queues(self, topic: str) -> dict[int, list[int]]:
        """The first reads of a topic."""
        return {
            queue_id: list(dict.fromkeys(of))
            for (name, queue_id), of in self._numbers.items()
            if name == topic
        }

    @property
    def twice(self) -> int:
        """How many messages came again."""
        return sum(len(of) - len(set(of)) for of in self._numbers.values())


def faults_of(where: str, queues: dict[int, list[int]], acknowledged: Iterable[int]) -> list[str]:
    """What is wrong in a topic's queues."""
    wanted = set(acknowledged)
    stored = [number for queue in queues.values() for number in queue]
    found = []
    if len(set(stored)) < len(stored):
        again = [number for number, count in Counter(stored).items() if count > 1]
        found.append(f"{where}: {len(again)} twice: {again[:9]}")
    if lost := wanted.difference(stored):
        found.append(f"{where}: {len(lost)} lost: {sorted(lost)[:9]}")
    for queue_id, queue in queues.items():
        known = [number for number in queue if number in wanted]
        if known != sorted(known):
            at = next(i for i in range(1, len(known)) if known[i] < known[i - 1])
            found.append(
                f"{where}: the order of queue {queue_id}: {known[max(0, at - 3) : at + 3]}"
            )
    return found


async def run(
    folder: Path, size: int, kills: int, seed: int, java: Driver | None, *, least: int = 1
) -> Outcome:
    """So many kills in a new group of so many members, `least` of which stay in sync. With two, a
    group of three never waits for the one that was killed."""
    chance, outcome = random.Random(seed), Outcome()
    settings = SETTINGS | {"minInSyncReplicas": str(least)}
    group = ElectedProcesses(folder, size, lease_s=LEASE_S, settings=settings)
    address = group.namesrv.address
    sent = [NumberedMessages(address, OURS, send_timeout_s=SEND_S)]
    sending = [sent[0].send()]
    if java is not None:
        sent.append(NumberedMessages(address, JAVAS, send_timeout_s=SEND_S))
        sending.append(sent[1].send_by_java(java, poll_ms=JAVA_POLL_MS))
    read = Read(address, [each.topic for each in sent])
    async with group.running():
        for number in group.members:
            group.start(number)
        await group.all_in_sync()
        async with at_work(*sending, read.consume()):
            for each in sent:
                await each.acknowledges()
            while outcome.kills.total() < kills and not outcome.faults:
                await _one_kill(group, sent, chance, outcome)
            if outcome.waits and least > 1:
                outcome.faults.append(f"{outcome.waits} times only the victim was in sync")
        async with at_work(read.consume()):
            with suppress(TimeoutError):
                await eventually(lambda: not any(_lacks(read, each) for each in sent), WAIT_S)
    outcome.twice = read.twice
    for member in group.members.values():
        outcome.handed_on += sum(map(_handed_on, member.folder.glob("*.log")))
    for each in sent:
        stored = [numbers(member.store, each.topic) for member in group.members.values()]
        queues = max(stored, key=lambda found: sum(map(len, found.values())))
        outcome.faults += faults_of(f"{each.topic}, stored", queues, each.acknowledged)
        outcome.faults += faults_of(
            f"{each.topic}, read", read.queues(each.topic), each.acknowledged
        )
        outcome.acknowledged += len(each.acknowledged)
        outcome.unanswered += sum(map(len, queues.values())) - len(each.acknowledged)
    return outcome


def _lacks(read: Read, sent: NumberedMessages) -> set[int]:
    return set(sent.acknowledged).difference(*read.queues(sent.topic).values())


async def _one_kill(
    group: ElectedProcesses, sent: list[NumberedMessages], chance: random.Random, outcome: Outcome
) -> None:
    await group.all_in_sync()
    old = await group.master()
    new = chance.choice([number for number in group.members if number != old])
    transfer = asyncio.create_task(_transfer(group, new))
    delay_s, name = chance.uniform(0, LATEST_S), chance.choice(VICTIMS)
    await asyncio.sleep(delay_s)
    victim = {"old": old, "new": new}[name]
    await asyncio.to_thread(group.members[victim].kill)
    outcome.kills[name] += 1
    await transfer
    await asyncio.sleep(LEASE_S)
    others = (await group.state()).in_sync - {victim}
    if not others:  # only the victim has all that is acknowledged: the group waits for it
        outcome.waits += 1
        group.start(victim)
    for each in sent:
        try:
            await each.acknowledges()
        except TimeoutError:
            outcome.faults.append(f"{each.topic}: nothing is acknowledged after {WAIT_S} s")
    for number, member in group.members.items():
        code = None if member.process is None else member.process.poll()
        if code is not None:
            outcome.faults.append(f"member {number} has ended by itself: {code}, {member.tail()}")
    if outcome.faults:
        outcome.faults.append(
            f"the {name} master was killed {delay_s:.2f} s after the transfer from {old} to {new}:"
            f" {await group.state()}"
        )
    if others:
        group.start(victim)


async def _transfer(group: ElectedProcesses, member: int) -> None:
    """A master that is killed does not carry it out."""
    operator = Operator(group.coordinator, "test", ttl_s=LEASE_S, timeout_s=2 * LEASE_S)
    with suppress(OperatorError, CoordinatorError):
        await operator.transfer(member)


def _handed_on(log: Path) -> int:
    return sum(map(int, re.findall(r"(\d+) requests were handed on", log.read_text())))
