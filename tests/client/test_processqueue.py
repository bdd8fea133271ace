"""Committed offsets never pass a message that is still on its way."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from congreve.client import processqueue
from congreve.client.message import MessageQueue, ReceivedMessage
from congreve.client.processqueue import ProcessQueue

QUEUE = MessageQueue(topic="T", broker_name="a", queue_id=0)


def message(offset: int, size: int = 1) -> ReceivedMessage:
    return ReceivedMessage(
        topic="T",
        body=b"x" * size,
        properties={},
        queue=QUEUE,
        queue_offset=offset,
        physical_offset=0,
        born_timestamp=0,
        born_host=("10.0.0.1", 1),
        store_timestamp=0,
        store_host=("10.0.0.1", 1),
        reconsume_times=0,
        flag=0,
        sys_flag=0,
    )


@given(st.permutations(range(10)))
def test_commit_offset_is_the_first_that_is_not_done(order: list[int]) -> None:
    queue = ProcessQueue(QUEUE, 5)
    assert queue.commit_offset == 5
    queue.take([message(5 + i) for i in range(10)], 15)
    open_ones = set(range(10))
    for i in order:
        queue.done(5 + i)
        open_ones.discard(i)
        assert queue.commit_offset == 5 + min(open_ones, default=10)


def test_offsets_without_matching_messages_are_passed_over() -> None:
    queue = ProcessQueue(QUEUE, 0)
    queue.take([], 40)
    assert queue.commit_offset == 40
    queue.take([message(45)], 50)
    assert queue.commit_offset == 45
    queue.done(45)
    queue.done(45)
    assert queue.commit_offset == 50


async def test_a_full_queue_pulls_no_more_until_there_is_room() -> None:
    for fill in (
        [message(i) for i in range(processqueue.COUNT_MAX)],
        [message(0, processqueue.BYTES_MAX)],
        [message(0), message(processqueue.SPAN_MAX)],
    ):
        queue = ProcessQueue(QUEUE, 0)
        await queue.has_room()
        queue.take(fill, fill[-1].queue_offset + 1)
        waiting = asyncio.create_task(queue.has_room())
        await asyncio.sleep(0)
        assert not waiting.done()
        queue.done(0)
        await waiting
