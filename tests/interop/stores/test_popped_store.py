"""A store whose group popped, opened by RocketMQ 4.9.4, and by ours again."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import servers
from harness.drivers import Driver
from harness.replication.replaceable_broker import ReplaceableBroker

from congreve.client import (
    ConsumeFrom,
    Message,
    Producer,
    PushConsumer,
    ReceivedMessage,
    ShareConsumer,
)

COUNT = 60
INVISIBLE_S = 30.0
LIMIT_S = 60.0


@pytest.fixture
def exchange(namesrv: servers.Server, java: Driver, tmp_path: Path) -> Iterator[ReplaceableBroker]:
    exchange = ReplaceableBroker(namesrv, tmp_path / "exchange", java)
    yield exchange
    exchange.kill_if_running()


@pytest.fixture
def names(kind: str) -> tuple[str, str]:
    """A topic and a group."""
    if kind != "congreve":
        pytest.skip("RocketMQ 4.9.4 does not pop")
    number = uuid.uuid4().hex[:8]
    return f"popped-{number}", f"poppers-{number}"


async def send(namesrv: str, topic: str, numbers: range) -> None:
    async with Producer(namesrv, group="senders") as producer:
        for number in numbers:
            await producer.send(Message(topic=topic, body=b"%d" % number))


def member(namesrv: str, topic: str, group: str) -> ShareConsumer:
    return ShareConsumer(
        namesrv, group=group, topics={topic: "*"}, consume_from=ConsumeFrom.FIRST_OFFSET
    )


async def receive(consumer: ShareConsumer, count: int) -> list[ReceivedMessage]:
    found: list[ReceivedMessage] = []
    end = time.monotonic() + LIMIT_S
    while len(found) < count:
        assert time.monotonic() < end, f"{len(found)} of {count} came"
        found += await consumer.receive(32, wait_s=1, invisible_s=INVISIBLE_S)
    return found


async def pop_and_acknowledge_half(
    exchange: ReplaceableBroker, topic: str, group: str, how: str
) -> set[str]:
    """Take all messages, settle the first half of each queue, and end the broker while the rest
    is out; returns the bodies of the rest."""
    namesrv = exchange.namesrv.address
    await send(namesrv, topic, range(COUNT))
    consumer = member(namesrv, topic, group)
    await consumer.start()
    found = await receive(consumer, COUNT)
    settled = [each for each in found if each.queue_offset < COUNT // 4]
    await consumer.ack(settled)
    if how == "kill":  # consumerOffset.json is written every five seconds
        file = exchange.folder / "store/config/consumerOffset.json"
        await asyncio.to_thread(await_offsets, file, topic, group)
    await asyncio.to_thread(exchange.end, how)
    await consumer.stop()
    return {each.body.decode() for each in found} - {each.body.decode() for each in settled}


async def pull(namesrv: str, topic: str, group: str, count: int) -> list[str]:
    """What a pulling member gets until it has so many messages, and a second afterwards."""
    found: list[str] = []
    enough = asyncio.Event()

    async def work(message: ReceivedMessage) -> None:
        found.append(message.body.decode())
        if len(found) >= count:
            enough.set()

    async with PushConsumer(namesrv, group=group, topics={topic: "*"}, listener=work):
        await asyncio.wait_for(enough.wait(), LIMIT_S)
        await asyncio.sleep(1)
    return sorted(found)


async def take(namesrv: str, topic: str, group: str, count: int) -> list[str]:
    """Pop and settle so many messages."""
    async with member(namesrv, topic, group) as consumer:
        found = await receive(consumer, count)
        await consumer.ack(found)
        assert not await consumer.receive(32, wait_s=1)
        return [each.body.decode() for each in found]


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_the_reference_consumes_what_pops_have_not_settled(
    exchange: ReplaceableBroker, names: tuple[str, str], how: str
) -> None:
    topic, group = names
    namesrv = exchange.namesrv.address
    exchange.start("congreve")
    exchange.create_topics(topic, queues=2)
    left = asyncio.run(pop_and_acknowledge_half(exchange, topic, group, how))
    assert 0 < len(left) < COUNT

    exchange.start("java")
    assert len(exchange.call("drain", topics=[topic])["messages"]) == COUNT
    assert asyncio.run(pull(namesrv, topic, group, len(left))) == sorted(left)
    exchange.end("stop")

    exchange.start("congreve")
    later = range(COUNT, COUNT + 10)
    asyncio.run(send(namesrv, topic, later))
    again = asyncio.run(take(namesrv, topic, group, len(later)))
    assert sorted(again) == [str(number) for number in later]
    exchange.end("stop")


def test_a_store_with_pops_of_rocketmq_5_says_so(
    exchange: ReplaceableBroker, names: tuple[str, str]
) -> None:
    topic, group = names
    namesrv = exchange.namesrv.address
    exchange.start("java5")
    exchange.create_topics(topic, queues=2)
    asyncio.run(pop_and_acknowledge_half(exchange, topic, group, "stop"))

    exchange.start("congreve")
    assert exchange.broker is not None
    lines = exchange.broker.tail().splitlines()
    assert sum("RocketMQ's journal of pops is not read" in line for line in lines) == 1
    asyncio.run(send(namesrv, topic, range(COUNT)))
    assert len(set(asyncio.run(take(namesrv, topic, group, COUNT)))) == COUNT
    exchange.end("stop")


def await_offsets(file: Path, topic: str, group: str) -> None:
    end = time.monotonic() + LIMIT_S
    while not (file.exists() and f"{topic}@{group}" in file.read_text()):
        assert time.monotonic() < end, f"{file} has no offsets of {group}"
        time.sleep(0.1)
