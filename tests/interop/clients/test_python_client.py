"""Our own client and the Java client read what the other one wrote."""

from __future__ import annotations

import asyncio
import os
import time
import uuid
import zlib

import pytest
from harness.cluster import Cluster
from harness.drivers import Driver, DriverError, body, message
from harness.servers import CLUSTER
from opentelemetry.sdk.trace import TracerProvider

from congreve.client import (
    AdminClient,
    ConsumeFrom,
    Message,
    MessageQueue,
    Producer,
    PullConsumer,
    PullStatus,
    PushConsumer,
    ReceivedMessage,
    SyncProducer,
    SyncPullConsumer,
    by_key,
)
from congreve.client.errors import BrokerNotFoundError, RouteNotFoundError
from congreve.client.observability.spans import SendSpans

KINDS = ("congreve", "java")
EVENTUALLY_S = 90


def new_group() -> str:
    return f"python-{uuid.uuid4().hex[:8]}"


def test_java_reads_what_python_sends(cluster: Cluster, java: Driver, topic: str) -> None:
    namesrv = cluster.namesrv.address
    with SyncProducer(namesrv, group=new_group()) as producer:
        plain = producer.send(
            Message(topic=topic, body=b"plain", tags="A", keys="k1 k2", properties={"n": "ü;=|"})
        )
        producer.send(Message(topic=topic, body=b"x" * 10_000, flag=7, wait=False))
        (batch,) = producer.send_batch(
            [Message(topic=topic, body=b"b%d" % i, tags=f"t{i}", flag=i) for i in range(3)]
        )
        producer.send_oneway(Message(topic=topic, body=b"oneway"), selector=by_key("k"))
    with SyncProducer(namesrv, group=new_group(), hooks=[SendSpans(TracerProvider())]) as traced:
        traced.send(Message(topic=topic, body=b"traced", properties={"n": "v"}))
    java.call("send", namesrv=namesrv, messages=[message(topic, b"end")])
    read = java.call("drain", namesrv=namesrv, topics=[topic])["messages"]
    by_body = {body(one): one for one in read}
    assert set(by_body) == {
        b"plain",
        b"x" * 10_000,
        b"b0",
        b"b1",
        b"b2",
        b"oneway",
        b"traced",
        b"end",
    }
    got = by_body[b"plain"]
    assert got["msgId"] == plain.message_id
    assert got["queueOffset"] == plain.queue_offset
    assert got["queueId"] == plain.queue.queue_id
    assert {name: got["properties"][name] for name in ("TAGS", "KEYS", "n")} == {
        "TAGS": "A",
        "KEYS": "k1 k2",
        "n": "ü;=|",
    }
    assert by_body[b"x" * 10_000]["flag"] == 7
    carried = by_body[b"traced"]["properties"]
    assert carried["n"] == "v" and carried["traceparent"].startswith("00-")
    first, second, third = (by_body[b"b%d" % i] for i in range(3))
    assert [first["queueOffset"], second["queueOffset"], third["queueOffset"]] == list(
        range(batch.queue_offset, batch.queue_offset + 3)
    )
    assert [one["msgId"] for one in (first, second, third)] == batch.message_id.split(",")
    assert (second["flag"], second["properties"]["TAGS"]) == (1, "t1")


def test_java_finds_python_messages_by_unique_id(
    cluster: Cluster, java: Driver, topic: str
) -> None:
    with SyncProducer(cluster.namesrv.address, group=new_group()) as producer:
        sent = [producer.send(Message(topic=topic, body=b"m%d" % i)) for i in range(3)]
    ids = [one.message_id for one in sent]
    # The index is filled behind the log.
    deadline = time.monotonic() + EVENTUALLY_S
    while True:
        try:
            answer = java.call("viewUnique", namesrv=cluster.namesrv.address, topic=topic, ids=ids)
            break
        except DriverError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
    assert [body(one) for one in answer["messages"]] == [b"m0", b"m1", b"m2"]


async def test_java_reads_address_process_and_time_from_our_message_ids(
    cluster: Cluster, java: Driver, topic: str
) -> None:
    before = int(time.time() * 1000)
    async with Producer(cluster.namesrv.address, group=new_group()) as producer:
        one = await producer.send(Message(topic=topic, body=b"one"))
        (batch,) = await producer.send_batch([Message(topic=topic, body=b"%d" % i) for i in (1, 2)])
        (many,) = await producer.send_many(topic, [b"three", b"four"])
    after = int(time.time() * 1000)
    # In the millisecond in which an id was generated, Java takes it for one of the last month.
    await asyncio.sleep(0.002)
    ids = ",".join((one.message_id, batch.message_id, many.message_id)).split(",")
    assert len(set(ids)) == 5
    for found in java.call("uniqueIds", ids=ids)["ids"]:
        assert (found["address"], found["pid"]) == (producer.address, os.getpid() & 0xFFFF)
        assert before <= found["timeMs"] <= after


def test_python_reads_what_java_sends(cluster: Cluster, java: Driver, topic: str) -> None:
    messages = [
        message(topic, b"plain", tags="A", keys="k1 k2", properties={"n": "ü"}),
        message(topic, b"y" * 10_000, tags="B"),
        message(topic, b"last", tags="C", flag=7),
    ]
    namesrv = cluster.namesrv.address
    sent = java.call("send", namesrv=namesrv, messages=messages, queueId=1)["results"]
    with SyncPullConsumer(namesrv, group=new_group()) as consumer:
        queue = next(q for q in consumer.queues(topic) if q.queue_id == 1)
        deadline = time.monotonic() + 60
        # The reference fills its queues behind the log, message by message.
        while len((pulled := consumer.pull(queue, 0)).messages) < len(messages):
            assert time.monotonic() < deadline, pulled
        assert pulled.status is PullStatus.FOUND
        assert [one.body for one in pulled.messages] == [b"plain", b"y" * 10_000, b"last"]
        assert [one.message_id for one in pulled.messages] == [one["msgId"] for one in sent]
        assert [one.offset_message_id for one in pulled.messages] == [
            one["offsetMsgId"] for one in sent
        ]
        first, _, last = pulled.messages
        assert (first.tags, first.keys, first.properties["n"]) == ("A", "k1 k2", "ü")
        assert (last.flag, last.queue_offset, last.topic) == (7, 2, topic)
        some = consumer.pull(queue, 0, expression="A || C")
        assert [one.body for one in some.messages] == [b"plain", b"last"]
        assert consumer.pull(queue, 3).status is PullStatus.NO_NEW_MSG
        wrong = consumer.pull(queue, 99)
        assert (wrong.status, wrong.next_offset) == (PullStatus.OFFSET_ILLEGAL, 3)
        assert (consumer.min_offset(queue), consumer.max_offset(queue)) == (0, 3)
        assert consumer.offset_at(queue, first.store_timestamp) == 0
        consumer.commit(queue, 2)
        assert consumer.committed(queue) == 2


async def test_a_waiting_pull_gets_a_message_as_soon_as_it_arrives(
    cluster: Cluster, topic: str
) -> None:
    namesrv = cluster.namesrv.address
    async with (
        Producer(namesrv, group=new_group()) as producer,
        PullConsumer(namesrv, group=new_group()) as consumer,
    ):
        queue = (await consumer.queues(topic))[0]
        waiting = asyncio.create_task(consumer.pull(queue, 0, wait_s=20))
        await asyncio.sleep(0.3)
        assert not waiting.done()
        await producer.send(Message(topic=topic, body=b"late"), queue=queue)
        async with asyncio.timeout(EVENTUALLY_S):
            (message_,) = (await waiting).messages
        assert message_.body == b"late"


class Readers:
    """Tasks that read from members of a group, and the messages that each received."""

    def __init__(self) -> None:
        self.eaten: list[tuple[PushConsumer, ReceivedMessage]] = []
        self._tasks: list[asyncio.Task[None]] = []

    def add(self, consumer: PushConsumer) -> None:
        self._tasks.append(asyncio.create_task(self._read(consumer)))

    async def _read(self, consumer: PushConsumer) -> None:
        async for message_ in consumer:
            self.eaten.append((consumer, message_))

    def bodies(self) -> list[bytes]:
        return [message_.body for _, message_ in self.eaten]

    async def ended(self) -> None:
        await asyncio.gather(*self._tasks)


def queues_of(consumer: PushConsumer, topic: str) -> set[MessageQueue]:
    return {queue for queue in consumer.assigned if queue.topic == topic}


async def test_members_share_the_queues_and_lose_nothing(cluster: Cluster, topic: str) -> None:
    namesrv, group, readers = cluster.namesrv.address, new_group(), Readers()
    settings = {"group": group, "topics": {topic: "*"}, "consume_from": ConsumeFrom.FIRST_OFFSET}
    async with Producer(namesrv, group=new_group()) as producer:
        async with PushConsumer(namesrv, **settings) as one:
            async with PushConsumer(namesrv, **settings) as two, asyncio.timeout(EVENTUALLY_S):
                while [len(queues_of(each, topic)) for each in (one, two)] != [2, 2]:
                    await asyncio.sleep(0.05)
                assert not queues_of(one, topic) & queues_of(two, topic)
                for consumer in (one, two):
                    readers.add(consumer)
                for i in range(200):
                    await producer.send(Message(topic=topic, body=b"%d" % i))
                while len(readers.eaten) < 200:
                    await asyncio.sleep(0.05)
            # The second one has left: the first one takes over its queues where they were.
            async with asyncio.timeout(EVENTUALLY_S):
                while len(queues_of(one, topic)) < 4:
                    await asyncio.sleep(0.05)
                await producer.send(Message(topic=topic, body=b"last"))
                while len(readers.eaten) < 201:
                    await asyncio.sleep(0.05)
        await readers.ended()
        assert sorted(readers.bodies()) == sorted([*(b"%d" % i for i in range(200)), b"last"])
        assert len({consumer for consumer, _ in readers.eaten}) == 2
        # All offsets were committed: a new member finds no message.
        async with PushConsumer(namesrv, **settings) as again:
            for queue in queues_of(again, topic):
                assert await again.committed(queue) == await again.max_offset(queue)


async def test_python_and_java_members_share_one_group(
    cluster: Cluster, java: Driver, topic: str
) -> None:
    namesrv, group, readers = cluster.namesrv.address, new_group(), Readers()

    def call(do: str, **request: object) -> dict[str, object]:
        return java.call(do, id=group, namesrv=namesrv, **request)

    def java_queues() -> list[int]:
        (held,) = call("consumerAssignment", topic=topic)["instances"]
        return sorted(held)

    call("consumerStart", group=group, topic=topic, instances=1)
    settings = {"group": group, "topics": {topic: "*"}, "consume_from": ConsumeFrom.FIRST_OFFSET}
    try:
        async with PushConsumer(namesrv, **settings) as python, asyncio.timeout(2 * EVENTUALLY_S):
            # The shares change one queue at a time: wait until they are stable.
            rested = 0
            while rested < 10:
                ours = [queue.queue_id for queue in queues_of(python, topic)]
                rested = rested + 1 if sorted(ours + java_queues()) == [0, 1, 2, 3] else 0
                await asyncio.sleep(0.1)
            readers.add(python)
            async with Producer(namesrv, group=new_group()) as producer:
                for i in range(100):
                    await producer.send(Message(topic=topic, body=b"%d|" % i))
            waited = call("consumerWait", expected=50, timeoutMs=60_000, quietMs=300)
            while len(readers.eaten) < 50:
                await asyncio.sleep(0.05)
            assert len(readers.eaten) == 50
            assert waited["total"] == 50, (waited, readers.bodies())
        await readers.ended()
    finally:
        call("consumerStop")


async def test_topics_are_created_listed_and_deleted(cluster: Cluster, java: Driver) -> None:
    name = f"python-{uuid.uuid4().hex[:8]}"
    async with AdminClient(cluster.namesrv.address) as admin:
        assert await admin.create_topic(name, queues=3, cluster=CLUSTER) == [
            cluster.broker.broker_name
        ]
        async with asyncio.timeout(EVENTUALLY_S):
            while name not in await admin.topics():
                await asyncio.sleep(0.05)
        (route,) = await admin.topic_route(name)
        assert (route.read_queues, route.write_queues, route.perm) == (3, 3, 6)
        assert route.addresses == (cluster.broker.address,)
        async with Producer(cluster.namesrv.address, group=new_group()) as producer:
            sent = await producer.send(Message(topic=name, body=b"x"))
        wanted = {i: int(i == sent.queue.queue_id) for i in range(3)}
        stats: dict[int, int] = {}
        # The reference counts a message in its queue a moment after it has answered.
        async with asyncio.timeout(EVENTUALLY_S):
            while stats != wanted:
                await asyncio.sleep(0.05)
                stats = {row.queue_id: row.max_offset for row in await admin.topic_stats(name)}
        await admin.delete_topic(name, cluster=CLUSTER)
        assert name not in await admin.topics()
        with pytest.raises(RouteNotFoundError, match=name):
            await admin.topic_route(name)
        with pytest.raises(BrokerNotFoundError, match="nowhere"):
            await admin.create_topic(name, cluster="nowhere")


def test_the_broker_stores_the_compressed_body(cluster: Cluster, java: Driver, topic: str) -> None:
    with SyncProducer(cluster.namesrv.address, group=new_group()) as producer:
        producer.send(Message(topic=topic, body=b"z" * 5000))
    (read,) = java.call("drain", namesrv=cluster.namesrv.address, topics=[topic])["messages"]
    assert read["size"] < 1000
    assert read["bodyCrc"] == zlib.crc32(zlib.compress(b"z" * 5000, 5)) & 0x7FFFFFFF
