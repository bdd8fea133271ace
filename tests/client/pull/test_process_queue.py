"""Committed offsets never pass a message that is still being processed."""

import asyncio

import pytest
from harness.fake_cluster import record
from hypothesis import given
from hypothesis import strategies as st

from congreve.client.message import MessageQueue, ReceivedMessage
from congreve.client.pull.process_queue import PULL_SILENT_S, FlowLimits, ProcessQueue
from congreve.client.received import PulledRecords

QUEUE = MessageQueue(topic="T", broker_name="a", queue_id=0)


def pull(*offsets: int, size: int = 1) -> PulledRecords:
    return PulledRecords(b"".join(record(offset, b"x" * size) for offset in offsets))


def taken(queue: ProcessQueue, *offsets: int) -> list[ReceivedMessage]:
    records = pull(*offsets)
    queue.take(records, offsets[-1] + 1)
    return records.messages(QUEUE)


@given(st.permutations(range(10)), st.integers(1, 9))
def test_the_commit_offset_is_the_first_unfinished_one(order: list[int], cut: int) -> None:
    queue = ProcessQueue(QUEUE, 5)
    assert queue.commit_offset == 5
    messages = taken(queue, *range(5, 5 + cut)) + taken(queue, *range(5 + cut, 15))
    open_ones = set(range(10))
    for i in order:
        assert len(queue) == len(open_ones)
        queue.done(messages[i])
        open_ones.discard(i)
        assert queue.commit_offset == 5 + min(open_ones, default=10)
    assert queue.cached_bytes == len(queue) == 0


def test_offsets_without_matching_messages_are_skipped() -> None:
    queue = ProcessQueue(QUEUE, 0)
    queue.take(None, 40)
    assert queue.commit_offset == 40
    (message,) = taken(queue, 45)
    queue.take(None, 50)
    assert queue.commit_offset == 45
    queue.done(message)
    queue.done(message)
    assert queue.commit_offset == 50
    assert len(queue) == 0


def test_a_message_of_another_queue_has_no_effect() -> None:
    queue, other = ProcessQueue(QUEUE, 0), ProcessQueue(QUEUE, 0)
    (message,) = taken(queue, 0)
    taken(other, 0)
    message.source.owner.done(message)  # type: ignore[union-attr]
    assert (queue.commit_offset, other.commit_offset) == (1, 0)


async def test_a_full_queue_pauses_its_pulls() -> None:
    for limits in (
        FlowLimits(count=2, bytes=None, span=None),
        FlowLimits(count=None, bytes=200, span=None),
        FlowLimits(count=None, bytes=None, span=2000),
    ):
        queue = ProcessQueue(QUEUE, 0, limits)
        await queue.wait_until_not_full()
        first = taken(queue, 0)
        await queue.wait_until_not_full()
        taken(queue, 2000)
        waiting = asyncio.create_task(queue.wait_until_not_full())
        await asyncio.sleep(0)
        assert not waiting.done()
        queue.done_all(first)
        await waiting


async def test_a_topics_limits_are_shared_by_its_queues() -> None:
    limits = FlowLimits(count=1000, bytes=None, span=None, topic_count=8, topic_bytes=1 << 20)
    assert limits.shared_by(4).count == 2
    assert limits.shared_by(4).bytes == 1 << 18
    assert limits.shared_by(9).count == 1
    assert FlowLimits().shared_by(4) == FlowLimits()
    queue = ProcessQueue(QUEUE, 0, limits)
    taken(queue, 0)
    taken(queue, 1)
    await queue.wait_until_not_full()
    queue.limit(limits.shared_by(4))
    waiting = asyncio.create_task(queue.wait_until_not_full())
    await asyncio.sleep(0)
    assert not waiting.done()
    queue.limit(limits.shared_by(1))
    await waiting


async def test_a_paused_queue_is_not_pulled() -> None:
    queue = ProcessQueue(QUEUE, 0)
    queue.pause(True)
    waiting = asyncio.create_task(queue.wait_until_not_full())
    await asyncio.sleep(0)
    assert not waiting.done()
    queue.pause(False)
    await waiting


def test_a_change_of_the_wall_clock_stops_no_queue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seconds = 0.0
    queue = ProcessQueue(QUEUE, 0, monotonic=lambda: seconds)
    taken(queue, 0)
    monkeypatch.setattr("time.time", lambda: 2e9)
    assert not queue.is_silent
    seconds = PULL_SILENT_S + 1
    monkeypatch.setattr("time.time", lambda: 0.0)
    assert queue.is_silent
    taken(queue, 1)
    assert not queue.is_silent
