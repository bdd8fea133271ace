"""Compares a broker's state after a kill with the answers that its clients got before."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from wholebroker.history import ABSENT, Copies, History, Key, Value, number_of

SHOWN = 40


@dataclass(frozen=True)
class Stored:
    """One record, as a consumer gets it."""

    queue_id: int
    queue_offset: int
    physical_offset: int
    store_timestamp: int
    body: bytes


@dataclass
class Found:
    """A broker's state, read by requests; `records` by topic, each queue in order."""

    values: dict[Key, Value] = field(default_factory=dict)
    records: dict[str, list[Stored]] = field(default_factory=dict)
    by_number: dict[tuple[str, int], list[Stored]] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def sort(self) -> None:
        """Fill `by_number` from `records`; record bytes that no client sent as a fault."""
        found: dict[tuple[str, int], list[Stored]] = defaultdict(list)
        for topic, records in self.records.items():
            for record in records:
                try:
                    found[topic, number_of(record.body)].append(record)
                except ValueError as error:
                    self.faults.append(f"{topic} {_place(record)}: {error}")
        self.by_number = dict(found)


def broken(history: History, found: Found, *, final: bool = False) -> list[str]:
    """The violations, as text; `final` after all later deliveries have happened."""
    wrong = [*history.faults, *found.faults]
    wrong += _gaps(found)
    for key, register in history.registers.items():
        value = found.values.get(key, ABSENT)
        if value not in register.allowed():
            wrong.append(f"{key} is {value}, of {register.allowed()} (the first was answered)")
        if value is not ABSENT and _is_of_a_deleted_topic(key, history, found):
            wrong.append(f"{key} is {value}, and its topic was deleted")
    for (topic, number), copies in history.copies.items():
        there = found.by_number.get((topic, number), [])
        wrong += [f"{topic} {number}: {fault}" for fault in _faults(copies, there, final)]
    for topic, number in found.by_number.keys() - history.copies.keys():
        wrong.append(f"{topic} {number}: it is there, and no request asked for it")
    for topic, numbers in history.batches:
        there = [number for number in numbers if found.by_number.get((topic, number))]
        if there and there != numbers:
            wrong.append(f"{topic}: of a batch of {numbers} only {there} are there")
    return wrong


def _is_of_a_deleted_topic(key: Key, history: History, found: Found) -> bool:
    """Whether an unfinished deletion left this offset: a new topic would begin there."""
    if key[0] != "offset":
        return False
    topic = ("topic", str(key[1]))
    return topic in history.registers and found.values.get(topic, ABSENT) is ABSENT


def _faults(copies: Copies, there: list[Stored], final: bool) -> list[str]:
    wrong = []
    if len(there) > copies.asked:
        wrong.append(f"{len(there)} copies, at most {copies.asked} were asked for")
    if len(there) < copies.promised and (copies.at_once or final):
        wrong.append(f"{len(there)} copies, {copies.promised} were promised")
    if copies.place is not None and copies.promised:
        places = [(record.queue_id, record.queue_offset) for record in there]
        if there and copies.place not in places:
            wrong.append(f"promised at {copies.place}, there at {places}")
    for record in there:
        if record.store_timestamp < copies.not_before_ms:
            early = copies.not_before_ms - record.store_timestamp
            wrong.append(f"stored {early} ms before its time")
        if record.body != copies.body:
            wrong.append("its bytes are not those that were sent")
    return wrong


def _gaps(found: Found) -> list[str]:
    wrong = []
    for topic, records in found.records.items():
        queues: dict[int, list[int]] = defaultdict(list)
        for record in records:
            queues[record.queue_id].append(record.queue_offset)
        for queue_id, offsets in queues.items():
            if offsets != list(range(len(offsets))):
                wrong.append(f"{topic} queue {queue_id} has the offsets {offsets[:5]}...")
    return wrong


def continue_from(history: History, found: Found) -> None:
    """Continue with the state that was found: unanswered requests may have been done or not."""
    for key, register in list(history.registers.items()):
        gone = key[0] == "topic" and found.values.get(key, ABSENT) is ABSENT
        if gone and register.settled is not ABSENT:
            history.topic_is_deleted(str(key[1]), certain=True)
    for key, register in history.registers.items():
        register.done(found.values.get(key, ABSENT))
    for key, copies in history.copies.items():
        there = found.by_number.get(key, [])
        if copies.at_once:
            copies.asked = copies.promised = len(there)
        else:
            copies.promised = max(copies.promised, len(there))
        if len(there) == 1:
            copies.place = there[0].queue_id, there[0].queue_offset
            copies.physical_offset = there[0].physical_offset
    history.batches.clear()
    history.faults.clear()


def _place(record: Stored) -> str:
    return f"queue {record.queue_id} offset {record.queue_offset}"


def listed(wrong: list[str]) -> str:
    """For an assertion."""
    more = [f"and {len(wrong) - SHOWN} more"] if len(wrong) > SHOWN else []
    return "\n".join([f"{len(wrong)} broken promises:", *wrong[:SHOWN], *more])
