"""The requests of clients and the broker's answers, to which its state after a kill must conform.

Each topic, group and message number belongs to one client, so no locks are needed.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from itertools import count

ABSENT = None
SUCCESS = 0
UNSURE = (10, 14)  # stored, and not confirmed by the disk

#: The key of a register: ("topic", name), ("group", name), ("offset", topic, group, queue id),
#: ("config", key) or ("kv", namespace, key)
Key = tuple[str | int, ...]
Value = tuple[int, ...] | int | str | None


@dataclass
class Register:
    """One value of the broker's state, and its possible values."""

    settled: Value = ABSENT
    open: list[Value] = field(default_factory=list)  # requested, without an answer so far

    def ask(self, value: Value) -> None:
        self.open.append(value)

    def done(self, value: Value) -> None:
        """The broker answered success: earlier requested values are overwritten."""
        self.settled, self.open = value, []

    def done_as_one_of(self, values: list[Value]) -> None:
        """The broker answered success for one of these values; it is unknown for which."""
        self.settled, *self.open = values

    def refused(self, value: Value) -> None:
        """The broker answered that it rejected the value."""
        self.open.remove(value)

    def allowed(self) -> list[Value]:
        """The values that are allowed after a kill."""
        return [self.settled, *self.open]


@dataclass
class Copies:
    """How often a topic may and must contain one message."""

    body: bytes
    asked: int = 0  # requests that may have stored it: the most copies
    promised: int = 0  # those of them with an answer of success: the fewest copies
    at_once: bool = True  # False: promised copies come later, after a delay or a check
    not_before_ms: int = 0  # the earliest time at which it may have been stored
    place: tuple[int, int] | None = None  # queue id and queue offset
    physical_offset: int = -1

    def ask(self) -> None:
        self.asked += 1

    def done(self, place: tuple[int, int] | None = None, physical_offset: int = -1) -> None:
        self.promised += 1
        self.place, self.physical_offset = place, physical_offset

    def refused(self) -> None:
        self.asked -= 1


class History:
    """All answers to the clients of one broker and its name server."""

    def __init__(self) -> None:
        self.registers: dict[Key, Register] = {}
        self.copies: dict[tuple[str, int], Copies] = {}  # by topic and number
        self.batches: list[tuple[str, list[int]]] = []  # topic, numbers of one unanswered batch
        self.commits: dict[int, bool] = {}  # number of a half message -> whether it is committed
        self.faults: list[str] = []  # faults that clients saw in answers
        self.answers: Counter[tuple[str, int]] = Counter()  # kind of request, code
        self.refusals_hold = (
            True  # False while the disk fails: a refused message may have been stored
        )
        self._numbers = count(1)

    def refuses(self, code: int) -> bool:
        """Whether an answer with this code says that nothing was done."""
        return code not in (SUCCESS, *UNSURE) and self.refusals_hold

    def next_number(self) -> int:
        return next(self._numbers)

    def register(self, *key: str | int) -> Register:
        return self.registers.setdefault(key, Register())

    def message(self, topic: str, number: int) -> Copies:
        """The copies of a message in a topic; of a new message none was requested."""
        known = self.copies.get((topic, number))
        if known is None:
            known = self.copies[topic, number] = Copies(body_of(number))
        return known

    def topic_is_deleted(self, topic: str, *, certain: bool) -> None:
        """A topic is being deleted; `certain` after its messages and offsets were deleted."""
        # Other clients add messages meanwhile; copy() is one step, list(…items()) is not.
        for (name, _), copies in self.copies.copy().items():
            if name == topic:
                copies.promised = 0
                copies.place = None
                copies.asked = 0 if certain else copies.asked
        for key, register in self.registers.copy().items():
            if key[0] == "offset" and key[1] == topic:
                if certain:
                    register.done(ABSENT)
                else:
                    register.ask(ABSENT)


def body_of(number: int) -> bytes:
    """A message's bytes follow from its number, so that each of them can be checked."""
    chance = random.Random(number)
    return b"%d|" % number + chance.randbytes(chance.choice((0, 10, 100, 300, 3000)))


def number_of(body: bytes) -> int:
    """The number of a body that body_of() made; ValueError for other bytes."""
    number = int(body.partition(b"|")[0])
    if body != body_of(number):
        raise ValueError(f"the bytes of message {number} are not those that were sent")
    return number
