"""The checker finds each kind of violation."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from wholebroker.checker import Found, Stored, broken, continue_from
from wholebroker.history import ABSENT, History, body_of, number_of
from wholebroker.lives import BrokerRuns

TOPIC = "Shared"
DUE_MS = 5_000
#: The numbers of the messages below, by their outcome.
PLAIN, UNANSWERED, REFUSED, DELAYED, COMMITTED, ROLLED_BACK, DELETED = 1, 2, 3, 4, 5, 6, 7
BATCH = [8, 9, 10]


def full_history() -> History:
    """A history with every kind of request and outcome."""
    history = History()
    history.register("topic", TOPIC).done((4, 4, 6))
    history.register("topic", "Gone").done(ABSENT)
    history.register("group", "G").done((1, 1, 16))
    history.register("config", "key").done("7")
    offset = history.register("offset", TOPIC, "G", 0)
    offset.done(10)
    offset.ask(12)
    for number in (PLAIN, UNANSWERED, REFUSED, DELAYED, *BATCH):
        history.message(TOPIC, number).ask()
    history.message(TOPIC, PLAIN).done((0, 0))
    history.message(TOPIC, REFUSED).refused()
    delayed = history.message(TOPIC, DELAYED)
    delayed.at_once, delayed.not_before_ms = False, DUE_MS
    delayed.done()
    committed, rolled_back = (history.message(TOPIC, number) for number in (COMMITTED, ROLLED_BACK))
    committed.asked = committed.promised = 1
    rolled_back.at_once = False
    deleted = history.message("Gone", DELETED)
    deleted.ask()
    deleted.done((0, 0))
    history.topic_is_deleted("Gone", certain=True)
    history.register("offset", "Gone", "G", 0).ask(5)
    history.batches.append((TOPIC, BATCH))
    return history


def state_with(*numbers: int, late_ms: int = DUE_MS) -> Found:
    """The state of a broker without violations, with these messages in one queue."""
    found = Found(
        values={
            ("topic", TOPIC): (4, 4, 6),
            ("group", "G"): (1, 1, 16),
            ("config", "key"): "7",
            ("offset", TOPIC, "G", 0): 10,
        },
        records={
            TOPIC: [
                Stored(0, at, at * 1000, late_ms, body_of(number))
                for at, number in enumerate(numbers or (PLAIN, DELAYED, COMMITTED))
            ]
        },
    )
    found.sort()
    return found


def with_value(key: tuple[str | int, ...], value: object) -> Found:
    found = state_with()
    found.values[key] = value  # type: ignore[assignment]
    return found


def with_body(body: bytes) -> Found:
    found = state_with()
    found.records[TOPIC][0] = replace(found.records[TOPIC][0], body=body)
    found.by_number = {}
    found.sort()
    return found


def in_gone_topic() -> Found:
    found = state_with()
    found.records["Gone"] = [Stored(0, 0, 9_000, DUE_MS, body_of(DELETED))]
    found.sort()
    return found


FAULTS: dict[str, Found] = {
    "an acknowledged message is gone": state_with(COMMITTED, DELAYED),
    "a message stands at another place": state_with(COMMITTED, PLAIN, DELAYED),
    "a message is there twice": state_with(PLAIN, DELAYED, COMMITTED, PLAIN),
    "an unanswered message is there twice": state_with(
        PLAIN, DELAYED, COMMITTED, UNANSWERED, UNANSWERED
    ),
    "a delayed message is there twice": state_with(PLAIN, DELAYED, COMMITTED, DELAYED),
    "a delayed message is early": state_with(late_ms=DUE_MS - 1),
    "a delayed message never comes": state_with(PLAIN, COMMITTED),
    "a committed message is gone": state_with(PLAIN, DELAYED),
    "a message that was rolled back is there": state_with(PLAIN, DELAYED, COMMITTED, ROLLED_BACK),
    "a refused message is there": state_with(PLAIN, DELAYED, COMMITTED, REFUSED),
    "a batch is there in part": state_with(PLAIN, DELAYED, COMMITTED, *BATCH[:2]),
    "a batch is there without its first": state_with(PLAIN, DELAYED, COMMITTED, *BATCH[1:]),
    "a message that no client sent is there": state_with(PLAIN, DELAYED, COMMITTED, 99),
    "one byte of a message is wrong": with_body(body_of(PLAIN)[:-1] + b"?"),
    "a topic is gone": with_value(("topic", TOPIC), ABSENT),
    "a topic has fewer queues": with_value(("topic", TOPIC), (4, 2, 6)),
    "a deleted topic is back": with_value(("topic", "Gone"), (4, 4, 6)),
    "a message of a deleted topic is back": in_gone_topic(),
    "a group is gone": with_value(("group", "G"), ABSENT),
    "a group has older settings": with_value(("group", "G"), (1, 1, 3)),
    "an offset went back": with_value(("offset", TOPIC, "G", 0), 9),
    "an offset is one that no client committed": with_value(("offset", TOPIC, "G", 0), 11),
    "an offset of a deleted topic is there": with_value(("offset", "Gone", "G", 0), 5),
    "an offset is gone": with_value(("offset", TOPIC, "G", 0), ABSENT),
    "a setting is an older one": with_value(("config", "key"), "6"),
}


def test_the_checker_accepts_a_history_without_faults() -> None:
    assert broken(full_history(), state_with(), final=True) == []
    assert broken(full_history(), state_with(PLAIN, COMMITTED)) == []  # the delayed one may come
    everything = state_with(PLAIN, DELAYED, COMMITTED, UNANSWERED, *BATCH)
    everything.values["offset", TOPIC, "G", 0] = 12
    assert broken(full_history(), everything, final=True) == []


@pytest.mark.parametrize("fault", FAULTS)
def test_the_checker_finds_each_violation(fault: str) -> None:
    assert len(broken(full_history(), FAULTS[fault], final=True)) >= 1


def test_an_unanswered_request_keeps_the_state_that_was_found_first() -> None:
    history = full_history()
    continue_from(history, state_with())
    assert broken(history, state_with(), final=True) == []
    assert broken(history, state_with(PLAIN, DELAYED, COMMITTED, UNANSWERED))  # cannot come later
    assert broken(history, with_value(("offset", TOPIC, "G", 0), 12))
    history = full_history()
    continue_from(history, state_with(PLAIN, DELAYED, COMMITTED, UNANSWERED))
    assert broken(history, state_with())  # nor disappear later


def test_an_offset_left_by_an_interrupted_deletion_is_recognized() -> None:
    history = History()
    offset = history.register("offset", "Dying", "G", 0)
    offset.done(10)
    topic = history.register("topic", "Dying")
    topic.done((1, 1, 6))
    topic.ask(ABSENT)
    history.topic_is_deleted("Dying", certain=False)
    continue_from(history, Found(values={("offset", "Dying", "G", 0): 10}))
    assert (offset.allowed(), topic.allowed()) == ([10], [ABSENT])


def test_a_message_with_other_bytes_has_no_number() -> None:
    assert number_of(body_of(5)) == 5
    for body in (b"", b"x|", body_of(4) + b"x", b"5|" + body_of(6)[2:] + b"x"):
        with pytest.raises(ValueError):
            number_of(body)


Seed = Callable[[Found, Stored], None]


def drop(found: Found, stored: Stored) -> None:
    found.records[TOPIC].remove(stored)


def double(found: Found, stored: Stored) -> None:
    found.records[TOPIC].append(replace(stored, queue_offset=stored.queue_offset + 1))


def damage(found: Found, stored: Stored) -> None:
    at = found.records[TOPIC].index(stored)
    found.records[TOPIC][at] = replace(stored, body=stored.body + b"x")


def lose_value(kind: str) -> Seed:
    def lose_one(found: Found, stored: Stored) -> None:
        del found.values[next(key for key in found.values if key[0] == kind and TOPIC in key)]

    return lose_one


@pytest.mark.crash
def test_the_checker_finds_faults_in_the_answers_of_a_real_broker(tmp_path: Path) -> None:
    """A broker that is not killed has no violations; the checker finds each injected fault."""
    seeds: list[Seed] = [drop, double, damage, lose_value("topic"), lose_value("offset")]
    with BrokerRuns(tmp_path, "mmap", "SYNC_FLUSH", seed=1) as lives:
        lives.use(1.0).join()
        assert broken(lives.history, lives.read()) == []
        acknowledged = next(
            number
            for (topic, number), copies in lives.history.copies.items()
            if topic == TOPIC and copies.promised and copies.at_once
        )
        for seed in seeds:
            found = lives.read()
            seed(found, found.by_number[TOPIC, acknowledged][0])
            found.faults, found.by_number = [], {}
            found.sort()
            assert broken(lives.history, found), seed
