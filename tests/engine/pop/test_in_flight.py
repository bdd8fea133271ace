"""Windows and their journal, against a plain model."""

from __future__ import annotations

import base64
import time
from random import Random

import numpy
import pytest
from harness.slowness import limit_s
from hypothesis import given, settings
from hypothesis import strategies as st

from congreve.engine.errors import PopFullError, PopJournalError
from congreve.engine.pop.in_flight import InFlight, PopWindow
from congreve.engine.pop.limits import PopLimits
from congreve.engine.pop.results import Answer

from .model import Key, Model, state_of

KEYS: list[Key] = [("g", "topic", 0), ("g", "topic", 1), ("h", "t\u00f6pic", 0), ("h", "", 2)]
FOREVER = (1 << 63) - 1


def offsets_of(*offsets: int) -> numpy.ndarray:
    return numpy.array(offsets, numpy.int64)


def due_of(pops: InFlight, now: int, most: int) -> list[tuple[PopWindow, list[int]]]:
    return [(window, row) for window, rows in pops.due(now, most) for row in rows.tolist()]


class Run:
    """Random operations on windows and model at the same time."""

    def __init__(self, data: st.DataObject) -> None:
        self.draw = data.draw
        self.pops, self.model = InFlight(PopLimits()), Model()
        self.now = 1_000
        self.bodies: list[bytes] = []
        self.snapshots: list[tuple[int, bytes]] = []
        self.parts: list[bytes] | None = None
        """Of a snapshot that is not complete."""

    def window(self, key: Key) -> PopWindow:
        window = self.pops.find(*key)
        assert (window is not None) == (key in self.model.windows)
        if window is None:
            begin = self.draw(st.integers(0, 1_000))
            window = self.pops.window(*key, begin)
            window.take(offsets_of(), begin, 0, 0)
            self.model.reset(key, begin)
        return window

    def step(self) -> None:
        key = self.draw(st.sampled_from(KEYS))
        self.now += self.draw(st.integers(0, 3))
        actions = (
            [self.take] * 3
            + [self.ack_some] * 3
            + [self.extend, self.due, self.reset, self.drop, self.write]
            + [self.snapshot] * 3
        )
        self.draw(st.sampled_from(actions))(key)

    def take(self, key: Key) -> None:
        window = self.window(key)
        span = self.draw(st.sampled_from([1, 5, 32, 300, 2_000]))
        keep = self.draw(st.sampled_from([1, 1, 2, 7, 1_000]))
        offsets = list(range(window.next, window.next + span, keep))
        upto = window.next + span + self.draw(st.sampled_from([0, 3]))
        invisible = self.draw(st.sampled_from([0, 1, 10, 50]))
        ordered = self.draw(st.booleans())
        window.take(offsets_of(*offsets), upto, self.now, invisible, ordered)
        self.model.take(key, offsets, upto, self.now, invisible, ordered)

    def offset(self, key: Key) -> tuple[int, int]:
        """One that is out, mostly, and its pop time, mostly."""
        window = self.model.windows[key]
        known = sorted(window.out) or [window.next]
        index = self.draw(st.integers(0, len(known) - 1))
        offset = known[index] + self.draw(st.sampled_from([0, 0, 0, 1, -1, 500]))
        pop_ms = window.out[offset].pop_ms if offset in window.out else self.now
        return offset, pop_ms - self.draw(st.sampled_from([0, 0, 0, 0, 1]))

    def ack_some(self, key: Key) -> None:
        window = self.window(key)
        if self.draw(st.booleans()):
            offset, pop_ms = self.offset(key)
            assert window.ack(offset, pop_ms) is self.model.ack(key, offset, pop_ms)
            return
        out = list(self.model.windows[key].out.items())
        self.draw(st.randoms(use_true_random=False)).shuffle(out)
        for offset, each in out[: self.draw(st.sampled_from([3, 100, 1_000]))]:
            assert window.ack(offset, each.pop_ms) is Answer.DONE
            assert self.model.ack(key, offset, each.pop_ms) is Answer.DONE

    def ack_all(self, key: Key) -> None:
        window = self.window(key)
        first, last = (self.offset(key)[0] for _ in range(2))
        pop_ms = self.offset(key)[1]
        offsets = [first, *range(first, min(last, first + 300))]
        answers = window.ack_all(offsets_of(*offsets), pop_ms).tolist()
        assert answers == [self.model.ack(key, offset, pop_ms) for offset in offsets]

    def extend(self, key: Key) -> None:
        window = self.window(key)
        offset, pop_ms = self.offset(key)
        invisible = self.draw(st.sampled_from([0, 5, 40]))
        again = self.draw(st.booleans())
        change = window.take_again if again else window.extend
        answer = self.model.extend(key, offset, pop_ms, self.now, invisible, again)
        assert change(offset, pop_ms, self.now, invisible) is answer

    def due(self, _: Key) -> None:
        most = self.draw(st.sampled_from([1, 10, 10_000]))
        waiting = self.model.waiting()
        first = min((out.due_ms for out in waiting.values()), default=FOREVER)
        assert self.pops.plan_look(FOREVER) <= first
        expected = {place for place, out in waiting.items() if out.due_ms <= self.now}
        found = due_of(self.pops, self.now, most)
        assert len(found) == min(most, len(expected))
        for window, (offset, pop_ms, *more) in found:
            key = (window.group, window.topic, window.queue_id)
            assert window is self.pops.find(*key)
            assert (key, offset) in expected
            expected.remove((key, offset))
            out = waiting[key, offset]
            assert [pop_ms, *more] == [out.pop_ms, out.invisible_ms, out.attempts, out.ordered]
            out.given = True
            what = self.draw(st.sampled_from(["nothing", "settle", "give back"]))
            if what == "settle":
                assert window.settle(offset, pop_ms) is Answer.DONE
                self.model.ack(key, offset, pop_ms)
            elif what == "give back":
                assert window.give_back(offset, pop_ms) is Answer.DONE
                out.given = False

    def reset(self, key: Key) -> None:
        offset = self.draw(st.integers(0, 2_000))
        self.window(key).reset(offset)
        self.model.reset(key, offset)

    def drop(self, key: Key) -> None:
        if self.draw(st.booleans()):
            self.pops.drop_topic(key[1])
            gone = [each for each in self.model.windows if each[1] == key[1]]
        else:
            self.pops.drop_group(key[0])
            gone = [each for each in self.model.windows if each[0] == key[0]]
        for each in gone:
            del self.model.windows[each]

    def write(self, _: Key) -> None:
        self.bodies.append(self.pops.take_journal())

    def snapshot(self, _: Key) -> None:
        """The next part of a snapshot: one window, while others change between the parts."""
        if self.parts is None:
            self.parts = []
            self.bodies_before = len(self.bodies)
            self.pops.begin_snapshot()
        elif part := self.pops.next_part(part_size=1):
            self.parts.append(part)
        else:
            self.snapshots.append((self.bodies_before, b"".join(self.parts)))
            self.parts = None

    def finish_snapshot(self) -> None:
        while self.parts is not None:
            self.snapshot(KEYS[0])


@settings(deadline=None)
@given(st.data())
def test_windows_and_every_replay_of_their_journal_are_as_the_model(data) -> None:
    run = Run(data)
    for _ in range(data.draw(st.integers(1, 40))):
        run.step()
        expected = run.model.state()
        assert state_of(run.pops) == expected
        assert run.pops.out == sum(len(rows) for *_, rows in expected.values())
    run.finish_snapshot()
    run.write(KEYS[0])
    run.snapshot(KEYS[0])
    run.finish_snapshot()
    replayed = InFlight(PopLimits())
    for body in run.bodies:
        replayed.replay(body)
    assert state_of(replayed) == expected
    assert replayed.take_journal() == b""
    # What a snapshot knows already is replayed as well, from any record on.
    for after, snapshot in run.snapshots:
        first = data.draw(st.integers(0, after))
        replayed.restore(snapshot)
        for body in run.bodies[first:]:
            replayed.replay(body)
        replayed.repeated()
        assert state_of(replayed) == expected
        assert replayed.out == run.pops.out
        due = due_of(replayed, FOREVER - 1, 1 << 20)
        assert sorted(bool(row[-1]) for _, row in due) == run.model.ordered()


@pytest.mark.parametrize("left", [0, 3, 50, 400])
@pytest.mark.parametrize("extends", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_the_few_that_are_left_of_many_are_due_in_time(left: int, extends: bool, seed: int) -> None:
    """Chunks with few messages become one."""
    random = Random(seed)
    pops = InFlight(PopLimits())
    window = pops.window("g", "t", 0, 0)
    due = {}
    for first in range(0, 3_000, 7):
        invisible = random.randrange(1, 1_000)
        window.take(numpy.arange(first, first + 7), first + 7, 1_000, invisible)
        due |= dict.fromkeys(range(first, first + 7), 1_000 + invisible)
    order = list(due)
    random.shuffle(order)
    for offset in order[left:]:
        assert window.ack(offset, 1_000) is Answer.DONE
        del due[offset]
        if extends and offset % 50 == 0 and due:
            moved = random.choice(list(due))
            due[moved] = 1_000 + random.randrange(1, 1_000)
            assert window.extend(moved, 1_000, 1_000, due[moved] - 1_000) is Answer.DONE
    assert [row[0] for row in window.messages_out(0, 9_999).tolist()] == sorted(due)
    for now in range(1_000, 2_001):
        expected = {offset for offset, due_ms in due.items() if due_ms == now}
        if expected or now % 100 == 0:
            later = [due_ms for due_ms in due.values() if due_ms >= now]
            assert pops.plan_look(FOREVER) <= min(later, default=FOREVER)
            assert {row[0] for _, row in due_of(pops, now, 9_999)} == expected
    assert pops.plan_look(FOREVER) == FOREVER


@pytest.mark.parametrize("seed", range(4))
def test_messages_of_one_pop_may_change_one_by_one(seed: int) -> None:
    chance, key, count = Random(seed), KEYS[0], 4_000
    pops, model = InFlight(PopLimits()), Model()
    window = pops.window(*key, 0)
    model.reset(key, 0)
    for first in range(0, count, 32):
        offsets = list(range(first, min(first + 32, count)))
        window.take(offsets_of(*offsets), offsets[-1] + 1, 1_000, 60_000)
        model.take(key, offsets, offsets[-1] + 1, 1_000, 60_000)
    order = list(range(count))
    if seed:  # else they change in order
        chance.shuffle(order)
    for offset in order:
        pop_ms = 2_000 + chance.randrange(3)
        assert window.extend(offset, 1_000, pop_ms, 60_000) is Answer.DONE
        model.extend(key, offset, 1_000, pop_ms, 60_000, again=False)
    assert window.messages_out(0, count).tolist() == model.windows[key].rows()
    other = InFlight(PopLimits())
    other.replay(pops.snapshot())
    assert state_of(other) == state_of(pops)
    chance.shuffle(order)
    for offset in order[: count // 2]:
        pop_ms = model.windows[key].out[offset].pop_ms
        assert window.ack(offset, pop_ms) is model.ack(key, offset, pop_ms)
    assert window.messages_out(0, count).tolist() == model.windows[key].rows()
    for now in (61_999, 62_000, 62_001, 62_002):
        given = sorted(row[0] for _, row in due_of(pops, now, count))
        assert given == [
            offset for offset, out in sorted(model.windows[key].out.items()) if out.due_ms == now
        ]


def test_a_lowest_due_time_is_exact_after_due_has_looked() -> None:
    pops = InFlight(PopLimits())
    window = pops.window("g", "t", 0, 0)
    window.take(offsets_of(0, 1), 2, 100, 10)
    window.extend(0, 100, 101, 500)
    assert window.ack(1, 100) is Answer.DONE
    assert pops.due(110, 9) == []
    assert pops.plan_look(FOREVER) == 601


def test_one_more_than_a_limit_is_refused_and_changes_nothing() -> None:
    pops = InFlight(PopLimits(store=5, window=3))
    one, other = pops.window("g", "t", 0, 0), pops.window("g", "t", 1, 0)
    one.take(offsets_of(0, 1, 2), 3, 1, 1)
    pops.take_journal()
    with pytest.raises(PopFullError, match="3 messages of queue 0"):
        one.take(offsets_of(3), 4, 1, 1)
    assert (one.room, other.room) == (0, 2)
    with pytest.raises(PopFullError, match="of at most 5"):
        other.take(offsets_of(0, 1, 2), 3, 1, 1)
    assert pops.take_journal() == b""
    one.take(offsets_of(), 9, 1, 1)  # filtered away
    other.take(offsets_of(0, 1), 2, 1, 1)
    assert one.ack(0, 1) is Answer.DONE
    other.take(offsets_of(2), 3, 1, 1)
    with pytest.raises(PopJournalError, match="raise them"):
        InFlight(PopLimits(store=4, window=3)).replay(pops.snapshot())


def test_a_snapshot_of_windows_that_were_full_one_after_the_other_can_be_restored() -> None:
    limits = PopLimits(store=4, window=4)
    pops = InFlight(limits)
    other, one = pops.window("g", "t", 1, 0), pops.window("g", "t", 0, 0)
    one.take(offsets_of(0, 1, 2, 3), 4, 1, 1)
    pops.begin_snapshot()
    parts = [pops.next_part(part_size=1)]
    one.ack_all(offsets_of(0, 1, 2, 3), 1)
    other.take(offsets_of(0, 1, 2, 3), 4, 1, 1)
    parts += iter(lambda: pops.next_part(part_size=1), b"")
    assert len(parts) == 2
    restored = InFlight(limits)
    restored.restore(b"".join(parts))
    assert restored.out == 8
    restored.replay(pops.take_journal())
    restored.repeated()
    assert state_of(restored) == state_of(pops)
    with pytest.raises(PopFullError):
        restored.window("g", "t", 0, 0).take(offsets_of(4), 5, 1, 1)
    restored.restore(b"".join(parts))
    with pytest.raises(PopJournalError, match="raise them"):
        restored.repeated()


def test_parts_of_a_snapshot_are_short_work_and_continue_each_other_in_base64() -> None:
    pops = InFlight(PopLimits())
    for number in range(50_000):
        pops.window("group", f"%LMQ%parent$lite-{number}", number % 8, number)
    pops.begin_snapshot()
    parts, steps = [], []
    while True:
        begun = time.thread_time()
        part = pops.next_part()
        steps.append(time.thread_time() - begun)
        if not part:
            break
        parts.append(part)
    assert len(parts) > 20
    assert max(map(len, parts)) < 200_000
    assert sorted(steps)[len(steps) // 2] < limit_s(0.002)
    text = b"".join(map(base64.b64encode, parts))
    assert base64.b64decode(text) == pops.snapshot()


@pytest.mark.parametrize("offsets, upto", [((5, 5), 9), ((7, 6), 9), ((5, 9), 9)])
def test_offsets_that_are_not_in_order_are_refused(offsets, upto) -> None:
    window = InFlight(PopLimits()).window("g", "t", 0, 5)
    with pytest.raises(ValueError, match=r"offset|upto"):
        window.take(offsets_of(*offsets), upto, 1, 1)
    with pytest.raises(ValueError, match="out of range"):
        window.take(offsets_of(5), 6, 1, 1 << 32)
    assert not window.take(offsets_of(4), 9, 1, 1)  # another pop was first
    assert not window.take(offsets_of(), 4, 1, 1)
    assert (window.next, window.out) == (5, 0)


def test_a_window_that_was_dropped_takes_nothing() -> None:
    pops = InFlight(PopLimits())
    window = pops.window("g", "t", 0, 0)
    window.take(offsets_of(0), 1, 1, 1)
    pops.drop_group("g")
    assert (pops.out, window.out, pops.due(9, 9)) == (0, 0, [])
    assert window.ack(0, 1) is Answer.REPEATED
    with pytest.raises(ValueError, match="was dropped"):
        window.take(offsets_of(1), 2, 1, 1)
    assert pops.window("g", "t", 0, 0) is not window


def journal() -> bytes:
    """Entries of every kind."""
    pops = InFlight(PopLimits())
    window = pops.window("group", "topic", 3, 10)
    window.take(offsets_of(10, 11, 15), 16, 100, 20)
    window.ack(11, 100)
    window.extend(15, 100, 110, 30)
    pops.window("group", "other", 0, 0).reset(7)
    pops.drop_topic("other")
    return pops.take_journal()


@given(st.data())
def test_a_damaged_body_raises_and_changes_nothing(data) -> None:
    body = bytearray(journal())
    if data.draw(st.booleans()):
        del body[data.draw(st.integers(0, len(body) - 1)) :]
    for _ in range(data.draw(st.integers(0, 3))):
        if body:
            body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    pops = InFlight(PopLimits(store=100, window=100))
    pops.window("group", "topic", 3, 10).take(offsets_of(10), 11, 1, 1)
    before = state_of(pops)
    try:
        pops.replay(bytes(body))
    except PopJournalError as error:
        if "raise them" not in str(error):
            assert state_of(pops) == before


@pytest.mark.parametrize("length", range(1, len(journal())))
def test_a_body_that_ends_within_an_entry_is_refused_or_is_shorter(length: int) -> None:
    pops = InFlight(PopLimits())
    try:
        pops.replay(journal()[:length])
    except PopJournalError as error:
        assert "is damaged" in str(error)
        assert pops.all_windows() == []


def test_an_entry_before_any_window_is_refused() -> None:
    body = journal()
    with pytest.raises(PopJournalError, match="kind 6 at byte 0"):
        InFlight(PopLimits()).replay(body[-1:])


def test_acknowledgements_in_order_are_one_entry() -> None:
    pops = InFlight(PopLimits())
    window = pops.window("g", "t", 0, 0)
    window.take(numpy.arange(1_000), 1_000, 1, 1)
    pops.take_journal()
    for offset in range(1_000):
        window.ack(offset, 1)
    assert len(pops.take_journal()) < 50
