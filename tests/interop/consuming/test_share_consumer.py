"""Our share consumer with a broker of Congreve and one of RocketMQ 5."""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from harness.cluster import Cluster

from congreve.base.errors import CongreveError
from congreve.client import (
    AdminClient,
    ConsumeFrom,
    ConsumeResult,
    Message,
    MessageQueue,
    Producer,
    ReceivedMessage,
    ShareConsumer,
    ShareSettings,
    Sql,
    SyncShareConsumer,
)
from congreve.client.errors import (
    ClientStateError,
    InvalidSettingError,
    InvalidSubscriptionError,
)

KINDS = ("congreve", "java5")

INVISIBLE_S = 3.0
LIMIT_S = 60.0
QUEUE = MessageQueue("T", "broker-a", 0)


@pytest.fixture
def group() -> str:
    return f"share-{uuid.uuid4().hex[:12]}"


async def send(cluster: Cluster, topic: str, count: int, **fields: Any) -> set[bytes]:
    bodies = [b"%d" % number for number in range(count)]
    async with Producer(cluster.namesrv.address, group="senders") as producer:
        for body in bodies:
            await producer.send(Message(topic=topic, body=body, **fields))
    return set(bodies)


@asynccontextmanager
async def member(
    cluster: Cluster, group: str, *topics: str, wanted: str | Sql = "*", **options: Any
) -> AsyncIterator[ShareConsumer]:
    options.setdefault("settings", ShareSettings(invisible_s=INVISIBLE_S))
    async with ShareConsumer(
        cluster.namesrv.address,
        group=group,
        topics=dict.fromkeys(topics, wanted),
        consume_from=ConsumeFrom.FIRST_OFFSET,
        **options,
    ) as consumer:
        yield consumer


async def take(consumer: ShareConsumer, count: int, wait_s: float = 2) -> list[ReceivedMessage]:
    """Receive until there are so many messages."""
    messages: list[ReceivedMessage] = []
    async with asyncio.timeout(LIMIT_S):
        while len(messages) < count:
            messages += await consumer.receive(wait_s=wait_s)
    return messages


async def nothing_comes(consumer: ShareConsumer, seconds: float = INVISIBLE_S + 4) -> bool:
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        if await consumer.receive(wait_s=left):
            return False
    return True


async def test_what_is_acknowledged_does_not_come_again(
    cluster: Cluster, topic: str, group: str
) -> None:
    bodies = await send(cluster, topic, 40)
    async with member(cluster, group, topic) as consumer:
        messages = await take(consumer, 40)
        assert {message.body for message in messages} == bodies
        assert {message.topic for message in messages} == {topic}
        assert {message.queue_id for message in messages} == {0, 1, 2, 3}
        await consumer.ack(messages[0])
        await consumer.ack(messages[0])
        await consumer.ack(messages[1:])
        assert consumer.in_flight == 0
        assert await nothing_comes(consumer)


async def test_what_is_not_acknowledged_comes_again(
    cluster: Cluster, topic: str, group: str
) -> None:
    bodies = await send(cluster, topic, 8)
    async with member(cluster, group, topic) as consumer:
        first = await take(consumer, 8)
        kept = [message for message in first if int(message.body) % 2]
        await consumer.ack(kept)
        again = await take(consumer, 4)
        assert {each.body for each in again} == bodies - {each.body for each in kept}
        assert {each.reconsume_times for each in again} == {1}
        assert {each.topic for each in again} == {topic}
        await consumer.ack(again)
        assert await nothing_comes(consumer)


async def test_a_refused_message_comes_after_its_delay(
    cluster: Cluster, topic: str, group: str
) -> None:
    await send(cluster, topic, 1)
    settings = ShareSettings(invisible_s=300)
    async with member(cluster, group, topic, settings=settings) as consumer:
        (message,) = await take(consumer, 1)
        began = time.monotonic()
        await consumer.nack(message, delay_s=2)
        (message,) = await take(consumer, 1)
        assert time.monotonic() - began >= 2
        assert message.reconsume_times == 1
        await consumer.nack(message)
        (message,) = await take(consumer, 1)
        assert message.reconsume_times == 2
        await consumer.ack(message)


async def test_an_extended_message_comes_once(cluster: Cluster, topic: str, group: str) -> None:
    await send(cluster, topic, 1)
    async with member(cluster, group, topic) as consumer:
        (message,) = await take(consumer, 1)
        for _ in range(4):
            await asyncio.sleep(INVISIBLE_S / 2)
            await consumer.extend(message)
        assert not await consumer.receive(wait_s=0)
        await consumer.ack(message)
        assert await nothing_comes(consumer)


async def test_the_dead_letter_is_the_message_that_was_extended(
    cluster: Cluster, topic: str, group: str
) -> None:
    """RocketMQ's proxy buries the message at the beginning of the log instead."""
    await send(cluster, topic, 8)
    async with member(cluster, group, topic) as consumer:
        messages = await take(consumer, 8)
        extended = messages.pop(5)
        await consumer.extend(extended)
        await consumer.dead_letter(extended)
        await consumer.ack(messages)
        assert await nothing_comes(consumer)
    async with AdminClient(cluster.namesrv.address) as admin:
        (letter,) = await admin.dead_letters.newest(group)
        assert letter.message.body == extended.body
        assert letter.message.message_id == extended.message_id


async def test_the_order_of_each_queue(cluster: Cluster, topic: str, group: str) -> None:
    await send(cluster, topic, 20)
    seen: dict[int, list[int]] = defaultdict(list)
    attempts: dict[bytes, int] = {}
    async with member(cluster, group, topic, orderly=True) as consumer, asyncio.timeout(LIMIT_S):
        while len(attempts) < 20:
            refused = set()
            for message in await consumer.receive(wait_s=2):
                if message.body == b"5" and not message.reconsume_times:
                    refused.add(message.queue_id)
                if message.queue_id in refused:
                    await consumer.nack(message, delay_s=1)
                else:
                    seen[message.queue_id].append(int(message.body))
                    attempts[message.body] = message.reconsume_times
                    await consumer.ack(message)
        assert await nothing_comes(consumer)
    assert len(seen) == 4
    assert all(numbers == sorted(numbers) for numbers in seen.values())
    assert attempts[b"5"] == 1


async def test_members_share_messages(cluster: Cluster, topic: str, group: str) -> None:
    got: list[list[bytes]] = [[], []]

    async def work(consumer: ShareConsumer, mine: list[bytes]) -> None:
        async for message in consumer:
            mine.append(message.body)

    settings = ShareSettings(invisible_s=60)
    async with (
        member(cluster, group, topic, settings=settings) as one,
        member(cluster, group, topic, settings=settings) as other,
    ):
        working = [asyncio.create_task(work(*each)) for each in zip((one, other), got, strict=True)]
        bodies = await send(cluster, topic, 200)
        async with asyncio.timeout(LIMIT_S):
            while len(got[0]) + len(got[1]) < 200:
                await asyncio.sleep(0.05)
        for task in working:
            task.cancel()
        await asyncio.gather(*working, return_exceptions=True)
    assert {*got[0], *got[1]} == bodies


async def test_a_listener_settles_its_messages(cluster: Cluster, topic: str, group: str) -> None:
    tries: dict[bytes, int] = {}

    async def listener(message: ReceivedMessage) -> ConsumeResult | None:
        tries[message.body] = tries.get(message.body, 0) + 1
        if int(message.body) == 3 and not message.reconsume_times:
            raise ValueError("not yet")
        if int(message.body) == 4 and not message.reconsume_times:
            return ConsumeResult.LATER
        return None

    settings = ShareSettings(invisible_s=INVISIBLE_S, retry_delays_s=(1,))
    await send(cluster, topic, 20)
    async with member(cluster, group, topic, listener=listener, settings=settings):
        async with asyncio.timeout(LIMIT_S):
            while sum(tries.values()) < 22:
                await asyncio.sleep(0.05)
        await asyncio.sleep(INVISIBLE_S + 3)
    assert {body: count for body, count in tries.items() if count > 1} == {b"3": 2, b"4": 2}


async def test_a_slow_listener_keeps_its_message(cluster: Cluster, topic: str, group: str) -> None:
    calls = []

    async def listener(message: ReceivedMessage) -> None:
        calls.append(message.body)
        await asyncio.sleep(4 * INVISIBLE_S)

    settings = ShareSettings(invisible_s=INVISIBLE_S, concurrency=1)
    await send(cluster, topic, 2)
    async with member(cluster, group, topic, listener=listener, settings=settings):
        async with asyncio.timeout(LIMIT_S):
            while len(calls) < 2:
                await asyncio.sleep(0.05)
        await asyncio.sleep(4 * INVISIBLE_S + 3)
    assert sorted(calls) == [b"0", b"1"]


async def test_filters(cluster: Cluster, topic: str, group: str) -> None:
    async with Producer(cluster.namesrv.address, group="senders") as producer:
        for number in range(20):
            tags, properties = "ab"[number % 2], {"number": str(number)}
            await producer.send(
                Message(topic=topic, body=b"%d" % number, tags=tags, properties=properties)
            )
    async with member(cluster, group, topic, wanted="a || c") as consumer:
        messages = await take(consumer, 10)
        assert {int(each.body) for each in messages} == set(range(0, 20, 2))
        await consumer.ack(messages)


async def test_sql_filter(fragile: Cluster, java: Any, group: str) -> None:
    fragile.create_topic(java, "priced", queues=2)
    async with Producer(fragile.namesrv.address, group="senders") as producer:
        for number in range(10):
            properties = {"price": str(number)}
            await producer.send(Message(topic="priced", body=b"%d" % number, properties=properties))
    async with member(fragile, group, "priced", wanted=Sql("price > 6")) as consumer:
        messages = await take(consumer, 3)
        assert {each.body for each in messages} == {b"7", b"8", b"9"}
        await consumer.ack(messages)
    with pytest.raises(InvalidSubscriptionError, match="refuses the filter"):
        async with member(fragile, group, "priced", wanted=Sql("price >")):
            pass


async def test_a_broker_is_killed_and_returns(
    kind: str, fragile: Cluster, java: Any, group: str
) -> None:
    fragile.create_topic(java, "durable", queues=4)
    await send(fragile, "durable", 40)
    settings = ShareSettings(invisible_s=INVISIBLE_S, pause_after_error_s=0.1)
    async with member(fragile, group, "durable", settings=settings) as consumer:
        first = await take(consumer, 40)
        done, left = first[:30], first[30:]
        await consumer.ack(done)
        await asyncio.to_thread(fragile.broker.kill)
        with pytest.raises(CongreveError):
            await consumer.ack(left[0])
        waiting = asyncio.create_task(take(consumer, 10, LIMIT_S))
        await asyncio.to_thread(fragile.broker.start)
        again = await waiting
        await consumer.ack(again)
        if kind == "congreve":  # RocketMQ forgets acknowledgements when it is killed
            assert {each.body for each in again} == {each.body for each in left}
            assert await nothing_comes(consumer)


async def test_a_listener_goes_on_after_a_restart(fragile: Cluster, java: Any, group: str) -> None:
    fragile.create_topic(java, "steady", queues=4)
    got: set[bytes] = set()

    async def listener(message: ReceivedMessage) -> None:
        got.add(message.body)

    settings = ShareSettings(invisible_s=INVISIBLE_S, pause_after_error_s=0.1)
    async with member(fragile, group, "steady", listener=listener, settings=settings):
        for first in range(2):
            sent = await send(fragile, "steady", 20 * (first + 1))
            async with asyncio.timeout(LIMIT_S):
                while got < sent:
                    await asyncio.sleep(0.05)
            if not first:
                await asyncio.to_thread(fragile.broker.stop)
                await asyncio.to_thread(fragile.broker.start)


async def test_several_topics(cluster: Cluster, java: Any, topic: str, group: str) -> None:
    other = f"{topic}-too"
    cluster.create_topic(java, other, queues=1)
    await send(cluster, topic, 5)
    await send(cluster, other, 5)
    async with member(cluster, group, topic, other) as consumer:
        messages = await take(consumer, 10)
        assert sorted(each.topic for each in messages) == [topic] * 5 + [other] * 5
        await consumer.ack(messages)
        waiting = asyncio.create_task(take(consumer, 1))
        await asyncio.sleep(0.5)
        await send(cluster, other, 1)
        await consumer.ack(await waiting)


async def test_what_a_cancelled_call_received_is_not_lost(
    cluster: Cluster, topic: str, group: str
) -> None:
    async with member(cluster, group, topic) as consumer:
        waiting = asyncio.create_task(consumer.receive(wait_s=10))
        await asyncio.sleep(0.5)
        waiting.cancel()
        await send(cluster, topic, 1)
        (message,) = await take(consumer, 1)
        assert message.reconsume_times == 0
        await consumer.ack(message)


async def test_columns(cluster: Cluster, topic: str, group: str) -> None:
    bodies = await send(cluster, topic, 100)
    async with member(cluster, group, topic) as consumer:
        got: list[bytes] = []
        async with asyncio.timeout(LIMIT_S):
            while len(got) < 100:
                received = await consumer.receive_columns(["body", "topic", "queueId"], wait_s=2)
                if received is not None:
                    got += received.batch.column("body").to_pylist()
                    assert set(received.batch.column("topic").to_pylist()) == {topic}
                    await consumer.ack(received)
        assert set(got) == bodies
        assert len(got) == 100
        assert await nothing_comes(consumer)


def test_without_an_event_loop(cluster: Cluster, topic: str, group: str) -> None:
    asyncio.run(send(cluster, topic, 10))
    done = threading.Event()
    got: set[bytes] = set()

    def listener(message: ReceivedMessage) -> None:
        got.add(message.body)
        if len(got) == 5:
            done.set()

    options: Any = {
        "group": group,
        "topics": {topic: "*"},
        "consume_from": ConsumeFrom.FIRST_OFFSET,
        "settings": ShareSettings(invisible_s=INVISIBLE_S),
    }
    with SyncShareConsumer(cluster.namesrv.address, **options) as consumer:
        messages: list[ReceivedMessage] = []
        while len(messages) < 10:
            messages += consumer.receive(4, wait_s=2)
        consumer.ack(messages[:5])
        consumer.nack(messages[5:])
    with SyncShareConsumer(cluster.namesrv.address, listener=listener, **options) as consumer:
        assert done.wait(LIMIT_S)
        with pytest.raises(ClientStateError, match="has a listener"):
            consumer.receive()
    assert got == {message.body for message in messages[5:]}


async def test_refusals(cluster: Cluster, topic: str, group: str) -> None:
    async with member(cluster, group, topic) as consumer:
        with pytest.raises(InvalidSettingError, match="at most 43200"):
            await consumer.receive(invisible_s=50_000)
        with pytest.raises(ClientStateError, match="only what a ShareConsumer received"):
            await consumer.ack(ReceivedMessage(topic=topic, body=b"", properties={}, queue=QUEUE))
