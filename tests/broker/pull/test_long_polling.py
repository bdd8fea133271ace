"""Held pulls: woken by their own queue, answered once, dropped with their connection."""

import asyncio
import tracemalloc

import pytest
import uvloop

from congreve.base.steps import at_once
from congreve.broker.figures.pull_counter import PullCounter
from congreve.broker.pull import long_polling as hold_module
from congreve.broker.pull import slow_readers
from congreve.broker.pull.long_polling import LongPolling
from congreve.broker.pull.suspended_pull import SuspendedPull
from congreve.broker.pull.validated_pull import ValidatedPull
from congreve.engine.queue.consume_queue import ConsumeQueue
from congreve.remoting.messages.bodies import SubscriptionGroupConfig, TopicConfig
from congreve.remoting.messages.command import RemotingCommand


class Watch:
    """Records what a pull processor would do; `resumed` are the answered pulls."""

    def __init__(self) -> None:
        self.matching: set[SuspendedPull] = set()
        self.looked: list[SuspendedPull] = []
        self.resumed: list[SuspendedPull] = []
        self.dismissed: list[SuspendedPull] = []
        self.watched: set[ConsumeQueue] = set()
        self.hiding: set[ConsumeQueue] = set()
        self.long_polling = LongPolling(
            watch=self._watch,
            hides=self.hiding.__contains__,
            wake=self._wake,
            resume=self.resumed.append,
            dismiss=self.dismissed.append,
        )

    def _watch(self, queue: ConsumeQueue) -> int:
        self.watched.add(queue)
        return queue.max

    def _wake(self, held: SuspendedPull) -> bool:
        self.looked.append(held)
        if held in self.matching:
            self.resumed.append(held)
        return held in self.matching


@pytest.fixture
def watch() -> Watch:
    return Watch()


@pytest.fixture
def queue(tmp_path) -> ConsumeQueue:
    return ConsumeQueue(str(tmp_path / "T" / "0"), "T", 0)


@pytest.fixture
def other_queue(tmp_path) -> ConsumeQueue:
    return ConsumeQueue(str(tmp_path / "T" / "1"), "T", 1)


def validated(queue) -> ValidatedPull:
    return ValidatedPull(
        group=SubscriptionGroupConfig(group_name="G"),
        topic=TopicConfig(topic_name="T"),
        subscription=None,
        message_model="",
        queue=queue,
        tags=None,
        records=None,
        counter=PullCounter(),
    )


def pull(connection, queue) -> SuspendedPull:
    numbers = {"offset": 0, "max_count": 32, "serialize_type": 0, "opaque": 1}
    return SuspendedPull(connection, b"a frame", validated(queue), **numbers)


async def test_a_message_wakes_only_the_pulls_of_its_queue(
    watch, connection, queue, other_queue, turn
):
    mine, theirs = pull(connection, queue), pull(connection, other_queue)
    watch.matching = {mine, theirs}
    for held in (mine, theirs):
        watch.long_polling.suspend(held, 60, 0)
    assert watch.watched == {queue, other_queue}
    watch.long_polling.arrived(queue)
    await turn()
    assert watch.looked == watch.resumed == [mine]
    watch.long_polling.stop()


async def test_a_pull_at_hidden_entries_is_checked_when_they_are_shown(
    watch, connection, queue, other_queue, turn
):
    held, other = pull(connection, queue), pull(connection, other_queue)
    for each in (held, other):
        watch.long_polling.suspend(each, 60, 0)
    watch.hiding.add(queue)
    watch.long_polling.arrived(queue)
    await turn()
    assert watch.looked == [held]
    watch.matching = {held, other}
    watch.long_polling.shown()
    await turn()
    assert watch.resumed == [held]
    watch.long_polling.stop()


async def test_a_pull_without_a_match_keeps_waiting(watch, connection, queue, turn):
    held = pull(connection, queue)
    watch.long_polling.suspend(held, 60, 0)
    watch.long_polling.arrived(queue)
    await turn()
    assert watch.looked == [held] and watch.resumed == []
    assert watch.watched == {queue} and len(watch.long_polling) == 1
    watch.long_polling.stop()


async def test_an_expired_pull_is_answered_once(watch, connection, queue, turn):
    held = pull(connection, queue)
    watch.matching = {held}
    watch.long_polling.suspend(held, 0.02, 0)
    await asyncio.sleep(0.1)
    watch.long_polling.arrived(queue)
    await turn()
    assert watch.resumed == [held]
    assert len(watch.long_polling) == 0


async def test_a_later_pull_with_an_earlier_deadline_is_answered_in_time(watch, connection, queue):
    long, short = pull(connection, queue), pull(connection, queue)
    watch.long_polling.suspend(long, 60, 0)
    watch.long_polling.suspend(short, 0.02, 0)
    await asyncio.sleep(0.1)
    assert watch.resumed == [short]
    watch.long_polling.stop()


def test_pulls_with_a_deadline_of_now_may_wait_on_uvloop_too(watch, connection, queue):
    """uvloop's handle of a timer that is due at once has no time."""

    async def hold() -> None:
        held = [pull(connection, queue) for _ in range(3)]
        for each, seconds in zip(held, (0.0001, 0.0, 60), strict=True):
            watch.long_polling.suspend(each, seconds, 0)
        await asyncio.sleep(0.1)
        assert sorted(map(id, watch.resumed)) == sorted(map(id, held[:2]))
        watch.long_polling.stop()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(hold())


async def test_pulls_of_a_closed_connection_are_dropped(watch, connection, queue):
    watch.long_polling.suspend(pull(connection, queue), 0.02, 0)
    connection.closed = True
    at_once(watch.long_polling.closing_steps(connection))
    assert len(watch.long_polling) == 0
    await asyncio.sleep(0.1)
    assert watch.resumed == []


async def test_a_client_that_pauses_reading_gets_its_answers_later(
    watch, connection, another_connection, queue, turn
):
    slow, slow_too = pull(connection, queue), pull(connection, queue)
    quick = pull(another_connection, queue)
    watch.matching = {slow, slow_too, quick}
    connection.reads.clear()
    for held in (slow, slow_too, quick):
        watch.long_polling.suspend(held, 60, 0)
    watch.long_polling.arrived(queue)
    await turn()
    assert watch.resumed == [quick]
    connection.reads.set()
    await turn()
    assert sorted(map(id, watch.resumed[1:])) == sorted(map(id, (slow, slow_too)))
    assert len(watch.long_polling) == 0
    watch.long_polling.stop()


async def test_each_answer_is_written_only_while_the_client_reads(watch, connection, queue, turn):
    watch.matching = {pull(connection, queue) for _ in range(3)}
    connection.reads.clear()
    for held in watch.matching:
        watch.long_polling.suspend(held, 60, 0)
    watch.long_polling.arrived(queue)
    await turn()
    # One answer fills the client's socket again.
    watch.long_polling._readers._answer = lambda held: (
        watch.resumed.append(held),
        connection.reads.clear(),
    )
    for count in (1, 2, 3):
        connection.reads.set()
        await turn()
        assert len(watch.resumed) == count
    watch.long_polling.stop()


async def test_a_client_that_never_reads_again_is_dropped(
    watch, connection, queue, turn, monkeypatch
):
    monkeypatch.setattr(slow_readers, "UNREAD_MAX_S", 0.01)
    held = pull(connection, queue)
    watch.matching = {held}
    connection.reads.clear()
    watch.long_polling.suspend(held, 60, 0)
    watch.long_polling.arrived(queue)
    await asyncio.sleep(0.1)
    assert connection.closed and watch.resumed == []
    watch.long_polling.stop()


async def test_a_stop_answers_all_waiting_pulls_and_accepts_no_more(watch, connection, queue, turn):
    waiting = [pull(connection, queue) for _ in range(3)]
    for held in waiting:
        watch.long_polling.suspend(held, 60, 0)
    watch.long_polling.stop()
    assert set(watch.dismissed) == set(waiting)
    assert not watch.long_polling.suspend(pull(connection, queue), 60, 0)
    watch.long_polling.arrived(queue)
    await turn()
    assert len(watch.long_polling) == 0 and watch.resumed == []


async def test_pulls_beyond_the_limit_do_not_wait(watch, connection, queue, monkeypatch):
    monkeypatch.setattr(hold_module, "HELD_MAX", 2)
    assert [watch.long_polling.suspend(pull(connection, queue), 60, 0) for _ in range(3)] == [
        True,
        True,
        False,
    ]
    watch.long_polling.stop()


async def test_the_bytes_of_waiting_pulls_are_bounded(watch, connection, queue, turn, monkeypatch):
    size = len(pull(connection, queue).frame)
    monkeypatch.setattr(hold_module, "HELD_BYTES_MAX", 2 * size)
    first = pull(connection, queue)
    assert watch.long_polling.suspend(first, 60, 0)
    assert watch.long_polling.suspend(pull(connection, queue), 60, 0)
    assert not watch.long_polling.suspend(pull(connection, queue), 60, 0)
    # A pull whose peer does not read takes memory until it is answered.
    watch.matching = {first}
    connection.reads.clear()
    watch.long_polling.arrived(queue)
    await turn()
    assert not watch.long_polling.suspend(pull(connection, queue), 60, 0)
    connection.reads.set()
    await turn()
    assert watch.long_polling.suspend(pull(connection, queue), 60, 0)
    watch.long_polling.stop()


async def test_pulls_that_were_answered_early_do_not_accumulate(watch, connection, queue, turn):
    for _ in range(2_000):
        held = pull(connection, queue)
        watch.matching = {held}
        watch.long_polling.suspend(held, 3_600, 0)
        watch.long_polling.arrived(queue)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert len(watch.resumed) == 2_000
    assert len(watch.long_polling._by_deadline) < 200


async def test_ten_thousand_waiting_pulls_fit_into_50_mib(watch, connection, queue):
    frame = RemotingCommand(
        code=11,
        ext_fields={
            "consumerGroup": "a_group_with_a_long_name",
            "topic": "a_topic_with_a_long_name",
            "queueId": "0",
            "queueOffset": "123456789",
            "maxMsgNums": "32",
            "sysFlag": "6",
            "commitOffset": "0",
            "suspendTimeoutMillis": "15000",
            "subscription": "TagA || TagB",
            "subVersion": "1700000000000",
            "expressionType": "TAG",
        },
    ).encode()
    tracemalloc.start()
    try:
        checked = validated(queue)
        for number in range(10_000):
            numbers = {"offset": 0, "max_count": 32, "serialize_type": 0, "opaque": number}
            held = SuspendedPull(connection, bytes(bytearray(frame)), checked, **numbers)
            watch.long_polling.suspend(held, 3_600, 0)
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert used < 50 * 1024 * 1024
    watch.long_polling.stop()
