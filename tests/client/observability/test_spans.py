"""Spans of producers and consumers, by OpenTelemetry's conventions for messaging."""

import asyncio
import re
from typing import Any

import numpy
import pytest
from harness.eventually import eventually
from harness.fake_cluster import FakeCluster, record, refused, stored
from harness.fake_group import Group, cluster_of, member
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from congreve.client import (
    ConsumeFrom,
    ConsumeHook,
    LitePullConsumer,
    Message,
    MessageQueue,
    Producer,
    PullConsumer,
    ReceivedMessage,
    SendHook,
    SyncProducer,
)
from congreve.client.errors import BrokerError
from congreve.client.observability.spans import ConsumeSpans, SendSpans

TRACE, PARENT = 0x1234, 0x56
TRACEPARENT = f"00-{TRACE:032x}-{PARENT:016x}-01"


class Spans:
    """A provider that keeps all ended spans."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        (span,) = self.named(name)
        return span


@pytest.fixture
def spans() -> Spans:
    return Spans()


def attributes(span: ReadableSpan) -> dict[str, object]:
    prefix = "messaging."
    return {name.removeprefix(prefix): value for name, value in (span.attributes or {}).items()}


def properties_of(cluster: FakeCluster, number: int = 0) -> dict[str, str]:
    text = cluster.brokers["a"].asked(310)[number].ext_fields["i"]
    return dict(one.split("\x01") for one in text.split("\x02") if one)


def from_sender(offset: int) -> bytes:
    carried = b"traceparent\x01" + TRACEPARENT.encode() + b"\x02"
    return record(offset, b"x", extra_properties=carried)


async def test_a_send_has_two_spans_and_the_message_the_context_of_the_first(spans: Spans) -> None:
    message = Message(
        topic="T", body=b"hello", tags="t", keys="k l", properties={"n": "v"}, delay_level=2
    )
    async with FakeCluster("a") as cluster:
        cluster.brokers["a"].answers[310] = stored
        hooks = [SendSpans(spans.provider)]
        async with Producer(cluster.address, group="pg", hooks=hooks) as producer:
            tracer = spans.provider.get_tracer("test")
            with tracer.start_as_current_span("checkout") as parent:
                sent = await producer.send(message)
        carried = properties_of(cluster)["traceparent"]
        port = cluster.brokers["a"].server.port
    created, send = spans.one("create T"), spans.one("send T")
    assert message.properties == {"n": "v"}
    assert carried.split("-")[1:3] == [
        f"{created.context.trace_id:032x}",
        f"{created.context.span_id:016x}",
    ]
    for span in (created, send):
        assert span.parent is not None
        assert span.parent.span_id == parent.get_span_context().span_id
    assert (created.kind, send.kind) == (SpanKind.PRODUCER, SpanKind.CLIENT)
    assert [link.context.span_id for link in send.links] == [created.context.span_id]
    assert attributes(created) == {
        "system": "rocketmq",
        "operation.name": "create",
        "operation.type": "create",
        "destination.name": "T",
        "message.body.size": 5,
        "rocketmq.message.type": "delay",
        "rocketmq.message.delay_time_level": 2,
        "rocketmq.message.tag": "t",
        "rocketmq.message.keys": ("k", "l"),
    }
    assert attributes(send) == {
        "system": "rocketmq",
        "operation.name": "send",
        "operation.type": "send",
        "destination.name": "T",
        "destination.partition.id": str(sent.queue.queue_id),
        "message.id": sent.message_id,
        "message.body.size": 5,
        "rocketmq.send_result": "SEND_OK",
        "server.address": "127.0.0.1",
        "server.port": port,
    }


async def test_each_attempt_has_a_span_and_a_failed_one_its_error(spans: Spans) -> None:
    async with FakeCluster("a") as cluster:
        cluster.brokers["a"].answers[310] = refused(1)
        hooks = [SendSpans(spans.provider)]
        async with Producer(cluster.address, group="pg", hooks=hooks, retries=1) as producer:
            with pytest.raises(BrokerError):
                await producer.send(Message(topic="T", body=b"x"))
    assert len(spans.named("create T")) == 1
    attempts = spans.named("send T")
    assert [span.status.status_code for span in attempts] == [StatusCode.ERROR] * 2
    assert {attributes(span)["error.type"] for span in attempts} == {"BrokerError"}


async def test_a_batch_has_a_span_for_each_message_and_one_for_the_send(spans: Spans) -> None:
    async with FakeCluster("a") as cluster:
        cluster.brokers["a"].answers[320] = stored
        hooks = [SendSpans(spans.provider)]
        async with Producer(cluster.address, group="pg", hooks=hooks) as producer:
            await producer.send_batch([Message(topic="T", body=b"%d" % n) for n in range(3)])
            await producer.send_oneway(Message(topic="T", body=b"x"))
        body = bytes(cluster.brokers["a"].asked(320)[0].body)
    assert body.count(b"traceparent") == 3
    assert len(spans.named("create T")) == 4
    batch, oneway = spans.named("send T")
    assert attributes(batch)["batch.message_count"] == 3
    assert "rocketmq.send_result" not in attributes(oneway)


async def test_a_sync_producer_sends_the_context_of_its_thread(spans: Spans) -> None:
    async with FakeCluster("a") as cluster:
        cluster.brokers["a"].answers[310] = stored

        def send() -> int:
            hooks = [SendSpans(spans.provider)]
            with SyncProducer(cluster.address, group="pg", hooks=hooks) as producer:
                tracer = spans.provider.get_tracer("test")
                with tracer.start_as_current_span("checkout") as parent:
                    producer.send(Message(topic="T", body=b"x"))
                    return parent.get_span_context().trace_id

        trace_id = await asyncio.to_thread(send)
        assert properties_of(cluster)["traceparent"].split("-")[1] == f"{trace_id:032x}"
    assert {span.context.trace_id for span in spans.exporter.get_finished_spans()} == {trace_id}


@pytest.mark.parametrize("in_threads", [False, True])
async def test_a_listener_runs_in_a_span_below_its_sender(spans: Spans, in_threads: bool) -> None:
    group, seen = Group(), list[int]()

    def work(message: ReceivedMessage) -> None:
        seen.append(trace.get_current_span().get_span_context().span_id)

    async def work_async(message: ReceivedMessage) -> None:
        work(message)

    group.records[0] = [from_sender(0)]
    listener = work if in_threads else work_async
    async with member(group, listener=listener, hooks=[ConsumeSpans(spans.provider)]):
        await eventually(lambda: bool(spans.named("process T")))
    span = spans.one("process T")
    assert span.kind is SpanKind.CONSUMER
    assert seen == [span.context.span_id]
    assert span.parent is not None
    assert (span.context.trace_id, span.parent.span_id) == (TRACE, PARENT)
    found = attributes(span)
    assert found.pop("message.id")
    assert found == {
        "system": "rocketmq",
        "operation.name": "process",
        "operation.type": "process",
        "destination.name": "T",
        "destination.partition.id": "0",
        "consumer.group.name": "cg",
        "message.body.size": 1,
        "rocketmq.message.tag": "A",
    }
    assert not trace.get_current_span().get_span_context().is_valid


async def test_a_listener_that_fails_is_an_error_of_its_span(spans: Spans) -> None:
    async def work(message: ReceivedMessage) -> None:
        raise ValueError("no")

    group = Group()
    group.records[0] = [from_sender(0)]
    async with member(group, listener=work, hooks=[ConsumeSpans(spans.provider)]):
        await eventually(lambda: bool(spans.named("process T")))
    span = spans.named("process T")[0]
    assert span.status.status_code is StatusCode.ERROR
    assert attributes(span)["error.type"] == "ValueError"
    assert [each.name for each in span.events] == ["exception"]


async def test_a_poll_is_a_span_with_links_to_the_senders(spans: Spans) -> None:
    group = Group()
    group.records[0] = [from_sender(0), from_sender(1)]
    async with (
        cluster_of(group) as cluster,
        LitePullConsumer(
            cluster.address,
            group="cg",
            topics={"T": "*"},
            consume_from=ConsumeFrom.FIRST_OFFSET,
            hooks=[ConsumeSpans(spans.provider)],
        ) as consumer,
    ):
        assert len(await consumer.poll(timeout_s=60)) == 2
        assert await consumer.poll(timeout_s=0.01) == []
    span = spans.one("receive T")
    assert span.kind is SpanKind.CLIENT
    assert [link.context.span_id for link in span.links] == [PARENT, PARENT]
    assert attributes(span)["batch.message_count"] == 2


async def test_a_batchs_send_is_linked_to_the_creates_of_its_messages(spans: Spans) -> None:
    async with FakeCluster("a") as cluster:
        cluster.brokers["a"].answers[320] = stored
        hooks = [SendSpans(spans.provider)]
        async with Producer(cluster.address, group="pg", hooks=hooks) as producer:
            await producer.send_batch([Message(topic="T", body=b"%d" % n) for n in range(3)])
            await producer.send_many("T", [b"x", b"y"])
    batch, many = spans.named("send T")
    creates = [span.context.span_id for span in spans.named("create T")]
    assert [link.context.span_id for link in batch.links] == creates[:3]
    assert [link.context.span_id for link in many.links] == creates[3:]
    assert len(creates) == 4


@pytest.mark.parametrize("as_column", [False, True])
async def test_each_message_of_send_many_has_a_span_on_request(
    spans: Spans, as_column: bool
) -> None:
    bodies: Any = [b"%04d" % n for n in range(100)]
    if as_column:
        bodies = numpy.frombuffer(b"".join(bodies), numpy.uint8).reshape(100, 4)
    async with FakeCluster("a") as cluster:
        cluster.brokers["a"].answers[320] = stored
        hooks = [SendSpans(spans.provider, each_of_many=True)]
        async with Producer(cluster.address, group="pg", hooks=hooks) as producer:
            await producer.send_many("T", bodies, tags="t", batch_bytes=4096, in_flight=1)
        sent = b"".join(request.body for request in cluster.brokers["a"].asked(320))
    creates = [f"{span.context.span_id:016x}" for span in spans.named("create T")]
    assert re.findall(rb"traceparent\x0100-\w{32}-(\w{16})-", sent) == [
        create.encode() for create in creates
    ]
    assert len(creates) == 100
    assert all(b"\x00\x04%04d" % number in sent for number in range(100))
    links = [link.context.span_id for span in spans.named("send T") for link in span.links]
    assert [f"{each:016x}" for each in links] == creates
    assert len(spans.named("send T")) > 1


async def test_a_hook_may_forbid_a_message_of_send_many() -> None:
    class Forbids(SendHook):
        each_of_many = True

        def prepare(self, message: Message) -> Message:
            if message.body == b"bad":
                raise PermissionError("not this one")
            return message

    async with FakeCluster("a") as cluster:
        cluster.brokers["a"].answers[320] = stored
        async with Producer(cluster.address, group="pg", hooks=[Forbids()]) as producer:
            with pytest.raises(PermissionError, match="not this one"):
                await producer.send_many("T", [b"good", b"bad"])


async def test_a_pull_that_finds_messages_is_a_span(spans: Spans) -> None:
    group = Group()
    group.records[0] = [from_sender(0), from_sender(1)]
    async with (
        cluster_of(group) as cluster,
        PullConsumer(cluster.address, group="cg", hooks=[ConsumeSpans(spans.provider)]) as consumer,
    ):
        queue = MessageQueue(topic="T", broker_name="a", queue_id=0)
        assert len((await consumer.pull(queue, 0)).messages) == 2
    span = spans.one("receive T")
    assert [link.context.span_id for link in span.links] == [PARENT, PARENT]
    assert attributes(span)["consumer.group.name"] == "cg"


async def test_the_work_on_a_message_of_an_iteration_is_a_span(spans: Spans) -> None:
    group = Group()
    group.records[0] = [from_sender(0), from_sender(1)]
    inside = []
    async with member(group, hooks=[ConsumeSpans(spans.provider)]) as consumer:
        async for message in consumer:
            inside.append(trace.get_current_span().get_span_context().is_valid)
            ended = len(spans.named("process T"))
            assert ended == message.queue_offset
            if message.queue_offset == 1:
                break
    first = spans.named("process T")[0]
    assert first.parent is not None
    assert (first.context.trace_id, first.parent.span_id) == (TRACE, PARENT)
    assert first.kind is SpanKind.CONSUMER
    # The program may leave the loop without notice, so the span is not current in it.
    assert inside == [False, False]


async def test_hooks_start_and_stop_with_their_consumer() -> None:
    calls = list[str]()

    class Notes(ConsumeHook):
        async def start(self) -> None:
            calls.append("start")

        async def stop(self) -> None:
            calls.append("stop")

    group = Group()
    async with cluster_of(group) as cluster:
        for kind in (PullConsumer, LitePullConsumer):
            async with kind(cluster.address, group="cg", hooks=[Notes()]) as consumer:
                assert calls == ["start"]
            await consumer.stop()
            assert calls == ["start", "stop"]
            calls.clear()
