"""The Python producer with both brokers; the Java client and mqadmin read its messages."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest
from harness import servers
from harness.cluster import Cluster
from harness.drivers import Driver, Json, body
from harness.eventually import eventually

from congreve.client import (
    CompressionType,
    ConsumeFrom,
    ConsumerSettings,
    Message,
    Producer,
    PushConsumer,
    ReceivedMessage,
    ReconsumeLaterError,
    SendResult,
    SyncProducer,
    TransactionProducer,
    TransactionState,
)
from congreve.client.errors import CongreveError
from congreve.client.observability.trace import TRACE_TOPIC, ConsumeTraceHook, TraceHook
from congreve.remoting.errors import RemotingError

from .groups import group

KINDS = ("congreve", "java")
EVENTUALLY_S = 90
CHECKS = {"transactionCheckInterval": "500", "transactionTimeOut": "300"}


@dataclass
class Place:
    """A broker with a topic, and the tools that read it."""

    cluster: Cluster
    java: Driver
    topic: str

    @property
    def namesrv(self) -> str:
        return self.cluster.namesrv.address

    def drain(self, topic: str | None = None) -> list[Json]:
        messages: list[Json] = self.java.call(
            "drain", namesrv=self.namesrv, topics=[topic or self.topic]
        )["messages"]
        return messages

    async def drain_until(self, count: int, topic: str | None = None) -> list[Json]:
        """The messages, once there are so many."""
        deadline = time.monotonic() + EVENTUALLY_S
        while len(found := self.drain(topic)) < count and time.monotonic() < deadline:
            await asyncio.sleep(0.2)
        return found


@pytest.fixture(scope="module", params=KINDS)
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    kind = request.param
    folder = tmp_path_factory.mktemp(f"producer-{kind}")
    namesrv = servers.namesrv(kind, folder / "namesrv")
    namesrv.start()
    made = servers.broker(kind, folder / "broker", namesrv.address, settings=CHECKS)
    made.start()
    yield Cluster(namesrv, made)
    made.kill()
    namesrv.kill()


@pytest.fixture
def place(broker: Cluster, java: Driver) -> Place:
    topic = f"producer-{uuid.uuid4().hex[:12]}"
    broker.create_topic(java, topic, queues=4)
    return Place(broker, java, topic)


def expected_bodies(count: int) -> list[bytes]:
    return [b"%d|" % i + b"x" * (i % 7) for i in range(count)]


@pytest.mark.parametrize("form", ["list", "iterator", "arrow", "chunked", "numpy"])
async def test_each_of_many_bodies_arrives_once_with_its_own_id(place: Place, form: str) -> None:
    wanted = expected_bodies(3000)
    forms = {
        "list": lambda: wanted,
        "iterator": lambda: iter(wanted),
        "arrow": lambda: pa.array([b"skipped", *wanted]).slice(1),
        "chunked": lambda: pa.chunked_array([wanted[:1000], wanted[1000:]]),
        "numpy": lambda: np.array(wanted),
    }
    async with Producer(place.namesrv, group=group()) as producer:
        results = await producer.send_many(
            place.topic, forms[form](), tags="A", properties={"n": "v"}, batch_bytes=8192
        )
    assert sum(result.count for result in results) == len(wanted)
    found = await place.drain_until(len(wanted))
    assert sorted(body(one) for one in found) == sorted(wanted)
    assert {(one["properties"]["TAGS"], one["properties"]["n"]) for one in found} == {("A", "v")}
    ids = [name for result in results for name in result.message_id.split(",")]
    assert len(set(ids)) == len(ids)
    assert {one["msgId"] for one in found} == set(ids)


@pytest.mark.parametrize("compression", list(CompressionType))
async def test_a_java_consumer_decompresses_each_compression_type(
    place: Place, compression: CompressionType
) -> None:
    text = b"compress me " * 1000
    async with Producer(place.namesrv, group=group(), compression=compression) as producer:
        await producer.send(Message(topic=place.topic, body=text))
    (found,) = await place.drain_until(1)
    assert body(found) == text
    assert found["size"] < len(text)


async def test_the_result_of_the_local_work_decides_each_transaction(place: Place) -> None:
    asked: list[str] = []

    async def check(message: ReceivedMessage) -> TransactionState:
        asked.append(message.body.decode())
        return TransactionState.COMMIT if message.body == b"checked" else TransactionState.ROLLBACK

    async with TransactionProducer(place.namesrv, group=group(), check=check) as producer:

        async def send(text: bytes, state: TransactionState) -> None:
            message = Message(topic=place.topic, body=text, keys="k")
            ended = await producer.send_in_transaction(message, lambda *_: state)
            assert ended.state is state

        await send(b"committed", TransactionState.COMMIT)
        await send(b"rolled back", TransactionState.ROLLBACK)
        with pytest.raises(ZeroDivisionError):
            await producer.send_in_transaction(
                Message(topic=place.topic, body=b"raised"),
                lambda *_: 1 // 0,  # type: ignore[arg-type, return-value]
            )
        await producer.heartbeat()
        await send(b"checked", TransactionState.UNKNOWN)
        await send(b"checked and refused", TransactionState.UNKNOWN)
        found = await place.drain_until(2)
        deadline = time.monotonic() + EVENTUALLY_S
        while "checked and refused" not in asked and time.monotonic() < deadline:
            await asyncio.sleep(0.1)
        await asyncio.sleep(0.5)
    assert sorted(body(one) for one in found) == [b"checked", b"committed"]
    assert len(place.drain()) == 2
    assert {"checked", "checked and refused"} <= set(asked)
    assert not {"committed", "rolled back", "raised"} & set(asked)


async def test_a_java_responder_answers_our_request(place: Place) -> None:
    name = uuid.uuid4().hex
    common = {"id": name, "namesrv": place.namesrv, "topic": place.topic}
    await asyncio.to_thread(place.java.call, "responderStart", group=f"r-{name}", **common)
    try:
        async with Producer(place.namesrv, group=group()) as producer:
            for text in (b"one", b"two"):
                reply = await producer.request(
                    Message(topic=place.topic, body=text), timeout_s=EVENTUALLY_S
                )
                assert reply.body == b"re: " + text
                assert reply.properties["MSG_TYPE"] == "reply"
    finally:
        place.java.call("responderStop", **common)


async def test_our_reply_reaches_a_java_requester(place: Place) -> None:
    async with (
        Producer(place.namesrv, group=group()) as producer,
        PushConsumer(place.namesrv, group=group(), topics={place.topic: "*"}) as consumer,
    ):

        async def respond() -> None:
            async for message in consumer:
                await producer.reply(message, b"re: " + message.body)

        responding = asyncio.create_task(respond())
        answer = await asyncio.to_thread(
            place.java.call,
            "request",
            namesrv=place.namesrv,
            topic=place.topic,
            bodies=["hello"],
            mode="sync",
            timeoutMs=EVENTUALLY_S * 1000,
        )
        responding.cancel()
    assert [body(one) for one in answer["replies"]] == [b"re: hello"]


async def test_namespaces_separate_tenants(place: Place) -> None:
    async with Producer(place.namesrv, group=group(), namespace="tenant") as producer:
        sent = await producer.send(Message(topic=place.topic, body=b"ours"))
    assert sent.queue.topic == place.topic
    (found,) = await place.drain_until(1, f"tenant%{place.topic}")
    assert body(found) == b"ours"
    assert found["properties"]["INSTANCE_ID"] == "tenant"
    assert place.drain() == []
    came: list[tuple[str, int]] = []

    async def listener(message: ReceivedMessage) -> None:
        came.append((message.topic, message.reconsume_times))
        if not message.reconsume_times:
            raise ReconsumeLaterError(1)

    async with PushConsumer(
        place.namesrv,
        group=group(),
        topics={place.topic: "*"},
        listener=listener,
        consume_from=ConsumeFrom.FIRST_OFFSET,
        settings=ConsumerSettings(rebalance_s=0.5),
        namespace="tenant",
    ):
        await eventually(lambda: len(came) == 2)
    assert came == [(place.topic, 0), (place.topic, 1)]


async def test_mqadmin_shows_the_trace_of_what_was_sent(place: Place) -> None:
    name = group()
    hook = TraceHook(place.namesrv, name)
    async with Producer(place.namesrv, group=name, hooks=[hook]) as producer:
        sent = await producer.send(
            Message(topic=place.topic, body=b"traced", tags="A", keys="order-7")
        )
    deadline = time.monotonic() + EVENTUALLY_S
    shown = ""
    while name not in shown and time.monotonic() < deadline:
        shown = place.java.mqadmin("queryMsgTraceById", "-n", place.namesrv, "-i", sent.message_id)
        await asyncio.sleep(0.3)
    assert name in shown, shown
    assert "Pub" in shown
    (record,) = place.drain(TRACE_TOPIC)[-1:]
    fields = body(record).decode().split("\x02")[-2].split("\x01")
    assert len(fields) == 14
    assert [fields[at] for at in (0, 3, 4, 5, 6, 7, 9, 11, 13)] == [
        "Pub", name, place.topic, sent.message_id, "A", "order-7", "6", "0", "true",
    ]  # fmt: skip
    assert fields[12] == sent.offset_message_id


async def test_mqadmin_shows_the_trace_of_what_a_listener_did(place: Place) -> None:
    name, came = group(), list[ReceivedMessage]()
    async with Producer(place.namesrv, group=name) as producer:
        sent = await producer.send(Message(topic=place.topic, body=b"traced", keys="order-8"))
    async with PushConsumer(
        place.namesrv,
        group=name,
        topics={place.topic: "*"},
        listener=came.append,
        consume_from=ConsumeFrom.FIRST_OFFSET,
        hooks=[ConsumeTraceHook(place.namesrv, name)],
    ):
        await eventually(lambda: bool(came))
    texts: list[str] = []
    deadline = time.monotonic() + EVENTUALLY_S
    while len(texts) < 2 and time.monotonic() < deadline:
        records = "".join(body(one).decode() for one in place.drain(TRACE_TOPIC)).split("\x02")
        texts = [each for each in records if sent.message_id in each]
        await asyncio.sleep(0.2)
    before, after = (each.split("\x01") for each in texts)
    assert [before[at] for at in (0, 3, 5, 6, 7)] == [
        "SubBefore", name, sent.message_id, "0", "order-8",
    ]  # fmt: skip
    assert [after[at] for at in (0, 1, 2, 4, 5, 6, 8)] == [
        "SubAfter", before[4], sent.message_id, "true", "order-8", "0", name,
    ]  # fmt: skip
    shown = place.java.mqadmin("queryMsgTraceById", "-n", place.namesrv, "-i", sent.message_id)
    assert name in shown, shown


async def test_sends_survive_restarts_of_the_broker_and_the_name_server(place: Place) -> None:
    stored: list[SendResult] = []
    stop = asyncio.Event()

    async def send(producer: Producer, number: int) -> None:
        count = 0
        while not stop.is_set():
            message = Message(topic=place.topic, body=b"%d|%d" % (number, count))
            try:
                stored.append(await producer.send(message))
            except (CongreveError, RemotingError):
                await asyncio.sleep(0.05)
                continue
            count += 1
            await asyncio.sleep(0.002)

    def send_from_a_thread() -> None:
        with SyncProducer(place.namesrv, group=group(), send_timeout_s=1.0) as producer:
            while not stop.is_set():
                try:
                    stored.append(producer.send(Message(topic=place.topic, body=b"sync")))
                except CongreveError:
                    time.sleep(0.05)
                time.sleep(0.002)

    async with Producer(place.namesrv, group=group(), send_timeout_s=1.0) as producer:
        tasks = [asyncio.create_task(send(producer, number)) for number in range(4)]
        tasks.append(asyncio.create_task(asyncio.to_thread(send_from_a_thread)))
        await asyncio.sleep(0.5)
        for server in (place.cluster.namesrv, place.cluster.broker):
            before = len(stored)
            await asyncio.to_thread(server.stop)
            await asyncio.to_thread(server.start)
            deadline = time.monotonic() + EVENTUALLY_S
            while len(stored) < before + 50 and time.monotonic() < deadline:
                await asyncio.sleep(0.1)
            assert len(stored) >= before + 50
        stop.set()
        await asyncio.gather(*tasks)
    ids = {one["msgId"] for one in await place.drain_until(len(stored))}
    assert {result.message_id for result in stored} <= ids


@pytest.mark.parametrize("broker_kind", KINDS)
async def test_sends_go_to_the_other_broker_when_one_of_two_dies(
    broker_kind: str, tmp_path_factory: pytest.TempPathFactory, java: Driver
) -> None:
    folder = tmp_path_factory.mktemp(f"two-{broker_kind}")
    namesrv = servers.namesrv("congreve", folder / "namesrv")
    namesrv.start()
    brokers = [
        servers.broker(broker_kind, folder / name, namesrv.address, broker_name=name)
        for name in "ab"
    ]
    try:
        for each in brokers:
            each.start()
            Cluster(namesrv, each).create_topic(java, "two", queues=2)
        async with Producer(namesrv.address, group=group(), latency_faults=True) as producer:
            first = [await producer.send(Message(topic="two", body=b"x")) for _ in range(8)]
            assert {one.queue.broker_name for one in first} == {"a", "b"}
            brokers[0].kill()
            rest = await asyncio.gather(
                *(producer.send(Message(topic="two", body=b"y")) for _ in range(200))
            )
            assert {one.queue.broker_name for one in rest} == {"b"}
    finally:
        for each in brokers:
            each.kill()
        namesrv.kill()
