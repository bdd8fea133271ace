"""Members of groups that pop, which settle what they get in several ways, and what they must see.

What was acknowledged never comes again, all else does, and nothing before its time.
"""

from __future__ import annotations

import base64
import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from harness.wire import SEND_MESSAGE_V2, Answer, Wire, record_fields, send_fields

TOPIC = "KilledPops"
UPDATE_GROUP, POP, ACK, CHANGE, BATCH_ACK = 200, 200_050, 200_051, 200_053, 200_151
QUEUES = 4
SENT_A_ROUND = 200
NOT_AT_SLAVES = (10, 11, 12)
"""Answers of a SYNC_MASTER that has stored something alone."""
INVISIBLE_MS = 400
LATER_MS = 150
LAST_S = 60


@dataclass(frozen=True)
class Popped:
    """A message that a member has; `pop` is what its handle and the others of its pop share."""

    number: int
    offset: str
    kind: str
    queue: str
    pop: tuple[str, ...]  # its first offset, time, invisible time and revive queue
    broker: str

    @property
    def is_out(self) -> bool:
        """Whether no other member can have got it."""
        return time.time() * 1000 < int(self.pop[1]) + INVISIBLE_MS

    @property
    def handle(self) -> str:
        return " ".join((*self.pop, self.kind, self.broker, self.queue, self.offset))


class Ledger:
    """What was sent, and what a group got and settled, by number. Its members share it."""

    def __init__(self, group: str, *, ordered: bool) -> None:
        self.group = group
        self.ordered = ordered
        self.sent = 0
        self.acknowledged: set[int] = set()
        self.asked: set[int] = set()  # its acknowledgement was sent
        self.again: list[int] = []  # it came after it was acknowledged
        self.early: list[tuple[int, int, int]] = []  # it came at a time before its due time
        self.came_again = 0
        self.dead_members = 0
        self._popped_ms: dict[int, int] = {}
        self._due_ms: dict[int, int] = {}
        self._lock = threading.Lock()

    @property
    def missing(self) -> set[int]:
        """What has to come still."""
        return set(range(self.sent)) - self.asked - self.acknowledged

    def came(self, number: int, pop_ms: int, due_ms: int) -> None:
        with self._lock:
            if pop_ms < self._popped_ms.get(number, 0):
                return  # another member got it later, and was quicker to say so
            self.came_again += number in self._popped_ms
            if number in self.acknowledged:
                self.again.append(number)
            if pop_ms < (known_ms := self._due_ms.get(number, 0)):
                self.early.append((number, pop_ms, known_ms))
            self._popped_ms[number], self._due_ms[number] = pop_ms, due_ms

    def may_come(self, number: int, due_ms: int = 0) -> None:
        """From a time on, or from now on."""
        with self._lock:
            self._due_ms[number] = due_ms


class Member:
    """A member of a group, which settles most of what it gets in one of three ways."""

    def __init__(
        self, address: str, ledger: Ledger, seed: int, *, broker: str = "broker-a"
    ) -> None:
        self._address = address
        self._broker = broker
        self._ledger = ledger
        self._chance = random.Random(seed)
        self._wire = Wire(address)
        self._got: set[int] = set()

    def close(self) -> None:
        self._wire.close()

    def run(self, ended: threading.Event | None = None) -> None:
        """Pop until the broker is gone, or it has ended; now and then this member dies, and another
        one comes."""
        try:
            while ended is None or not ended.is_set():
                messages = self.pop()
                if messages and self._chance.random() < 0.1:
                    self._die()
                else:
                    self._settle(messages)
            self._leave()
        except OSError:
            pass
        finally:
            self.close()

    def _leave(self) -> None:
        """The broker hands out at once what the last pops got."""
        for number in self._got:
            self._ledger.may_come(number)
        self._got.clear()
        self.close()

    def _die(self) -> None:
        self._leave()
        self._ledger.dead_members += 1
        self._wire = Wire(self._address)

    def pop(self) -> list[Popped]:
        fields = {
            "consumerGroup": self._ledger.group,
            "topic": TOPIC,
            "queueId": "-1",
            "maxMsgNums": "32",
            "invisibleTime": str(INVISIBLE_MS),
            "pollTime": "200",
            "bornTime": "0",
            "initMode": "0",
            "order": str(self._ledger.ordered).lower(),
        }
        if self._ledger.ordered:  # else an acknowledgement behind another message may be held
            fields["attemptId"] = self._chance.randbytes(8).hex()
        answer = self._wire.call(POP, fields)
        messages = [] if answer.code else list(popped(answer, self._broker))
        pop_ms = int(answer.fields.get("popTime", 0))
        for message in messages:
            self._ledger.came(message.number, pop_ms, pop_ms + INVISIBLE_MS)
            self._got.add(message.number)
        return messages

    def _settle(self, messages: list[Popped]) -> None:
        kept, later, batch = [], [], []
        for message in messages:
            way: Callable[[Popped], object] = self._chance.choices(
                (self.ack, batch.append, later.append, kept.append), (4, 3, 1, 1)
            )[0]
            way(message)
        self._ack_all(batch)
        for message in later:
            self._change(message)

    def ack(self, message: Popped) -> None:
        ledger = self._ledger
        ledger.asked.add(message.number)
        code = self._wire.call(ACK, self._fields(message)).code
        if code == 0:
            ledger.acknowledged.add(message.number)
        elif code not in NOT_AT_SLAVES:
            ledger.asked.discard(message.number)

    def _ack_all(self, messages: list[Popped]) -> None:
        if not messages:
            return
        pops: dict[tuple[str, ...], list[Popped]] = {}
        for message in messages:
            self._ledger.asked.add(message.number)
            pops.setdefault((message.kind, message.queue, *message.pop), []).append(message)
        acks = []
        for (kind, queue, start, pop_ms, invisible_ms, revive), of_pop in pops.items():
            bits = sum(1 << int(message.offset) - int(start) for message in of_pop)
            text = base64.b64encode(bits.to_bytes(bits.bit_length() // 8 + 1, "little")).decode()
            names = {"c": self._ledger.group, "t": TOPIC, "r": kind, "q": int(queue), "b": text}
            numbers = {"so": int(start), "pt": int(pop_ms), "it": int(invisible_ms)}
            acks.append(names | numbers | {"rq": int(revive)})
        body = json.dumps({"brokerName": self._broker, "acks": acks}).encode()
        answer = self._wire.call(BATCH_ACK, {}, body)
        for message in messages:
            # Handles that are over are left out of a batch without a word.
            if answer.code == 0 and message.is_out:
                self._ledger.acknowledged.add(message.number)

    def _change(self, message: Popped) -> None:
        if not message.is_out:
            return
        self._ledger.may_come(message.number)
        fields = self._fields(message) | {"invisibleTime": str(LATER_MS)}
        answer = self._wire.call(CHANGE, fields)
        if answer.code == 0:
            due_ms = int(answer.fields["popTime"]) + int(answer.fields["invisibleTime"])
            self._ledger.may_come(message.number, due_ms)

    def _fields(self, message: Popped) -> dict[str, str]:
        group = self._ledger.group
        return {
            "consumerGroup": group,
            "topic": f"%RETRY%{group}_{TOPIC}" if message.kind == "1" else TOPIC,
            "queueId": message.queue,
            "offset": message.offset,
            "extraInfo": message.handle,
        }


def popped(answer: Answer, broker: str) -> Iterator[Popped]:
    """The messages of an answer, in their order."""
    records = iter(record_fields(answer.body))
    times = [answer.fields[name] for name in ("popTime", "invisibleTime", "reviveQid")]
    starts = {}
    for entry in answer.fields["startOffsetInfo"].split(";"):
        kind, queue, start = entry.split(" ")
        starts[kind, queue] = start
    for entry in answer.fields["msgOffsetInfo"].split(";"):
        kind, queue, offsets = entry.split(" ")
        for offset in offsets.split(","):
            number = int(next(records)["body"])
            yield Popped(number, offset, kind, queue, (starts[kind, queue], *times), broker)


def send(wire: Wire, ledgers: list[Ledger]) -> None:
    first = ledgers[0].sent
    for number in range(first, first + SENT_A_ROUND):
        fields = send_fields(TOPIC, number % QUEUES, {"KEYS": str(number)})
        answer = wire.call(SEND_MESSAGE_V2, fields, str(number).encode())
        assert answer.code in (0, *NOT_AT_SLAVES), (answer.code, answer.remark)
        for ledger in ledgers:
            ledger.sent = number + 1


def make_group(wire: Wire, ledger: Ledger) -> None:
    """A group whose messages do not become dead letters."""
    settings = {"groupName": ledger.group, "retryMaxTimes": 100_000, "consumeEnable": True}
    assert wire.call(UPDATE_GROUP, {}, json.dumps(settings).encode()).code == 0


def settle_rest(address: str, ledger: Ledger, broker: str = "broker-a") -> None:
    """Acknowledge what has not come so far, until nothing comes any more."""
    last = Member(address, ledger, 0, broker=broker)
    until = time.monotonic() + LAST_S
    while ledger.missing and time.monotonic() < until:
        for message in last.pop():
            last.ack(message)
            until = time.monotonic() + LAST_S
    last.close()
