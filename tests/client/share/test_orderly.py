"""A share consumer that gets the messages of each queue in their order."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from harness.eventually import eventually

import congreve
from congreve.client import (
    ConsumeFrom,
    Message,
    MessageQueue,
    Producer,
    ReceivedMessage,
    ShareConsumer,
    ShareSettings,
)
from congreve.remoting.errors import RemotingError
from congreve.remoting.messages.codes import RequestCode

QUICK = ShareSettings(retry_delays_s=(0.05,), pause_after_error_s=0.01)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Any]:
    with congreve.serve(tmp_path, flushDiskType="ASYNC_FLUSH") as running:
        yield running


@asynccontextmanager
async def member(
    node: Any, count: int = 0, *, queues: int = 1, **options: Any
) -> AsyncIterator[ShareConsumer]:
    """A member of a group, and `count` messages in each of so many queues."""
    async with Producer(node.address, group="p") as producer:
        for number in range(count * queues):
            queue = MessageQueue("T", node.broker.config.broker_name, number % queues)
            await producer.send(Message(topic="T", body=b"%d" % number), queue=queue)
    options = {"settings": QUICK, "consume_from": ConsumeFrom.FIRST_OFFSET} | options
    async with ShareConsumer(
        node.address, group="g", topics={"T": "*"}, orderly=True, **options
    ) as consumer:
        yield consumer


def bodies(messages: list[ReceivedMessage]) -> list[int]:
    return [int(message.body) for message in messages]


async def test_one_batch_of_a_queue_is_out(node: Any) -> None:
    async with member(node, 6) as one, member(node) as other:
        first = await one.receive(3)
        assert bodies(first) == [0, 1, 2]
        assert await other.receive(wait_s=0.3) == []
        waiting = asyncio.create_task(other.receive(wait_s=20))
        await one.ack(first[1:])
        await asyncio.sleep(0.1)
        assert not waiting.done()
        await one.ack(first[0])
        second = await asyncio.wait_for(waiting, 20)
        assert bodies(second) == [3, 4, 5]
        await other.ack(second)
        assert await one.receive(wait_s=0.3) == []


async def test_what_is_not_settled_comes_again_in_its_place(node: Any) -> None:
    async with member(node, 4) as consumer:
        first = await consumer.receive(3)
        await consumer.ack(first[0])
        await consumer.nack(first[2])
        await consumer.nack(first[1], delay_s=0.2)
        again = await consumer.receive(2, wait_s=20)
        assert bodies(again) == [1, 2]
        assert [message.reconsume_times for message in again] == [1, 1]
        await consumer.ack(again)
        assert bodies(await consumer.receive(wait_s=20)) == [3]


async def test_a_batch_whose_answer_was_lost_comes_to_the_next_call(
    node: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with member(node, 2) as consumer:
        ask = consumer.ask
        lost: list[str] = []

        async def losing(address: str, code: int, *rest: Any, **options: Any) -> Any:
            answer = await ask(address, code, *rest, **options)
            if code == RequestCode.POP_MESSAGE and answer.code == 0 and not lost:
                lost.append(rest[0]["attemptId"])
                raise RemotingError("the connection is lost")
            return answer

        monkeypatch.setattr(consumer, "ask", losing)
        found = await consumer.receive(wait_s=20)
        assert len(lost) == 1
        assert bodies(found) == [0, 1]
        assert {message.reconsume_times for message in found} == {0}
        await consumer.ack(found)


async def test_a_listener_gets_each_queue_in_order(node: Any) -> None:
    seen: dict[int, list[int]] = {0: [], 1: []}
    times: list[int] = []

    async def listener(message: ReceivedMessage) -> None:
        number = int(message.body)
        seen[message.queue_id].append(number)
        await asyncio.sleep(0)
        if number == 4:
            times.append(message.reconsume_times)
            if len(times) < 3:
                raise ValueError(number)

    async with member(node, 20, queues=2, listener=listener) as consumer:
        await eventually(lambda: sum(map(len, seen.values())) == 42)
        await eventually(lambda: consumer.in_flight == 0)
    assert seen[1] == list(range(1, 40, 2))
    assert seen[0] == [0, 2, 4, 4, 4, *range(6, 40, 2)]
    assert times == [0, 1, 2]


async def test_the_last_attempt_frees_the_queue(node: Any) -> None:
    seen = []

    def listener(messages: list[ReceivedMessage]) -> None:
        seen.append(bodies(messages))
        if messages[0].body == b"2":
            raise ValueError

    settings = ShareSettings(retry_delays_s=(0.02,), max_reconsume_times=1, consume_batch=2)
    async with member(node, 5, batch_listener=listener, settings=settings):
        await eventually(lambda: seen[-1:] == [[3, 4]])
        await eventually(lambda: node.broker.store.max_offset("%DLQ%g", 0) == 1)
    assert seen == [[0, 1], [2, 3], [2, 3], [3, 4]]


async def test_what_a_stopped_listener_left_comes_in_order(node: Any) -> None:
    begun = asyncio.Event()

    async def listener(message: ReceivedMessage) -> None:
        if message.body == b"1":
            begun.set()
            await asyncio.sleep(0.05)

    async with member(node, 4, listener=listener):
        await begun.wait()
    async with member(node) as consumer:
        assert bodies(await consumer.receive(wait_s=20)) == [2, 3]
