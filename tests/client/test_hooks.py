"""What hooks see, and what they send: trace records, metrics, contexts."""

import asyncio

import msgspec
import pytest
from harness.eventually import eventually
from harness.fake_cluster import FakeCluster, record, refused, silence, stored
from harness.fake_group import SEND_BACK, Group, member
from opentelemetry import context as otel_context
from opentelemetry import trace as otel_trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags
from prometheus_client import CollectorRegistry

from congreve.client import (
    ConsumeContext,
    ConsumeHook,
    ConsumeOutcome,
    ConsumeResult,
    Message,
    MessageQueue,
    Producer,
    ReceivedMessage,
    ReconsumeLaterError,
    SendContext,
    SendHook,
)
from congreve.client.errors import BrokerError, ClientError
from congreve.client.observability.metrics import PrometheusHook
from congreve.client.observability.telemetry import (
    OpenTelemetryConsumeHook,
    OpenTelemetryHook,
    message_context,
)
from congreve.client.observability.trace import (
    TRACE_TOPIC,
    TraceDispatcher,
    TraceHook,
    trace_record,
)


class Notes(SendHook):
    def __init__(self) -> None:
        self.seen: list[str] = []
        self.contexts: list[SendContext] = []

    async def start(self) -> None:
        self.seen.append("start")

    async def stop(self) -> None:
        self.seen.append("stop")

    def prepare(self, message: Message) -> Message:
        return msgspec.structs.replace(message, tags="hooked")

    def before_send(self, context: SendContext) -> None:
        assert context.result is None
        self.seen.append("before")

    def after_send(self, context: SendContext) -> None:
        self.seen.append("after")
        self.contexts.append(context)


async def test_hooks_see_each_attempt_and_may_change_messages() -> None:
    notes = Notes()
    async with FakeCluster("a") as cluster:
        broker = cluster.brokers["a"]
        async with Producer(cluster.address, group="pg", hooks=[notes], retries=1) as producer:
            broker.answers[310] = refused(1)
            with pytest.raises(BrokerError):
                await producer.send(Message(topic="T", body=b"x"))
            broker.answers[310] = stored
            await producer.send(Message(topic="T", body=b"x"))
            await producer.send_oneway(Message(topic="T", body=b"x"))
        assert notes.seen == ["start", *["before", "after"] * 4, "stop"]
        first, second, third, fourth = notes.contexts
        assert isinstance(first.error, BrokerError)
        assert isinstance(second.error, BrokerError)
        assert third.result is not None
        assert (third.region, third.trace_on, third.address) == (
            "DefaultRegion", True, broker.address,
        )  # fmt: skip
        assert fourth.oneway
        assert all("TAGS\x01hooked" in one.ext_fields["i"] for one in broker.asked(310))


async def test_a_hook_that_forbids_a_send_ends_it() -> None:
    class Forbid(SendHook):
        def before_send(self, context: SendContext) -> None:
            raise ClientError("forbidden")

    async with FakeCluster("a") as cluster:
        async with Producer(cluster.address, group="pg", hooks=[Forbid()]) as producer:
            with pytest.raises(ClientError, match="forbidden"):
                await producer.send(Message(topic="T", body=b"x"))
        assert cluster.brokers["a"].asked(310) == []


async def test_a_hook_that_fails_afterwards_changes_no_result(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Failing(SendHook, ConsumeHook):
        def after_send(self, context: SendContext) -> None:
            raise SystemExit(3)

        def after_consume(self, context: ConsumeContext) -> None:
            raise ValueError

        async def stop(self) -> None:
            raise ValueError

    notes, group, seen = Notes(), Group(), []
    async with FakeCluster("a") as cluster:
        cluster.brokers["a"].answers[310] = stored
        hooks: list[SendHook] = [Failing(), notes]
        async with Producer(cluster.address, group="pg", hooks=hooks) as producer:
            await producer.send(Message(topic="T", body=b"x"))
    assert notes.seen == ["start", "before", "after", "stop"]
    group.fill(0, range(3))
    async with member(group, listener=seen.append, hooks=[Failing()]):
        await eventually(lambda: group.committed.get(0) == 3)
    assert len(seen) == 3
    assert not group.asked(SEND_BACK)
    assert sum("hook failed" in record.message for record in caplog.records) == 2 + 3 + 1


async def test_hooks_see_a_cancelled_send() -> None:
    notes = Notes()
    async with FakeCluster("a") as cluster:
        cluster.brokers["a"].answers[310] = silence
        async with Producer(cluster.address, group="pg", hooks=[notes]) as producer:
            task = producer.send_soon(Message(topic="T", body=b"x"))
            while not cluster.brokers["a"].asked(310):
                await asyncio.sleep(0.001)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        assert isinstance(notes.contexts[0].error, asyncio.CancelledError)


def test_trace_records_are_written_as_java_writes_them() -> None:
    assert (
        trace_record("Pub", 1, None, True, False, "x")
        == "Pub\x011\x01null\x01true\x01false\x01x\x02"
    )


async def test_traces_have_message_ids_as_keys_and_omit_failures() -> None:
    async with FakeCluster("a", topics=("T", TRACE_TOPIC)) as cluster:
        broker = cluster.brokers["a"]
        broker.answers[310] = stored
        hook = TraceHook(cluster.address, "pg")
        async with Producer(cluster.address, group="pg", hooks=[hook], retries=0) as producer:
            sent = await producer.send(Message(topic="T", body=b"xyz", tags="A", keys="k1 k2"))
            broker.answers[310] = lambda request: (
                refused(1)(request) if request.ext_fields["b"] == "T" else stored(request)
            )
            with pytest.raises(BrokerError):
                await producer.send(Message(topic="T", body=b"xyz"))
        (trace,) = [one for one in broker.asked(310) if one.ext_fields["b"] == TRACE_TOPIC]
        assert trace.ext_fields["a"].startswith("_INNER_TRACE_PRODUCER-pg-PRODUCE-")
        assert f"KEYS\x01{sent.message_id} k1 k2\x02" in trace.ext_fields["i"]
        fields = trace.body.decode().removesuffix("\x02").split("\x01")
        assert fields[0] == "Pub"
        assert fields[2:10] == [
            "DefaultRegion", "pg", "T", sent.message_id, "A", "k1 k2", broker.address, "3",
        ]  # fmt: skip
        assert fields[11:] == ["0", sent.offset_message_id, "true"]


async def test_unsent_traces_are_dropped() -> None:
    dispatcher = TraceDispatcher("127.0.0.1:1", "pg", "PRODUCE")
    for number in range(1500):
        dispatcher.add(f"{number}", ())
    assert dispatcher.dropped == 1500 - 1024


async def test_metrics_count_stored_and_failed_messages() -> None:
    registry = CollectorRegistry()
    async with FakeCluster("a") as cluster:
        broker = cluster.brokers["a"]
        broker.answers |= {310: stored, 320: stored}
        hook = PrometheusHook(registry)
        async with Producer(cluster.address, group="pg", hooks=[hook], retries=0) as producer:
            await producer.send(Message(topic="T", body=b"xyz"))
            await producer.send_many("T", [b"x"] * 5)
            broker.answers[310] = refused(1)
            with pytest.raises(BrokerError):
                await producer.send(Message(topic="T", body=b"xyz"))
    labels = {"topic": "T", "broker": "a"}
    assert registry.get_sample_value("congreve_client_sent_messages_total", labels) == 6
    assert registry.get_sample_value("congreve_client_send_seconds_count", labels) == 2
    failed = registry.get_sample_value(
        "congreve_client_send_failures_total", labels | {"error": "BrokerError"}
    )
    assert failed == 1


class Calls(ConsumeHook):
    def __init__(self) -> None:
        self.seen: list[str] = []
        self.contexts: list[ConsumeContext] = []

    async def start(self) -> None:
        self.seen.append("start")

    async def stop(self) -> None:
        self.seen.append("stop")

    def before_consume(self, context: ConsumeContext) -> None:
        assert context.outcome is None
        self.seen.append("before")

    def after_consume(self, context: ConsumeContext) -> None:
        self.seen.append("after")
        self.contexts.append(context)


@pytest.mark.parametrize("in_threads", [False, True])
async def test_hooks_see_each_call_of_a_listener(in_threads: bool) -> None:
    group, calls = Group(), Calls()
    ends: list[ConsumeResult | Exception | None] = [
        None, ConsumeResult.LATER, ReconsumeLaterError(1), KeyError("x"),
    ]  # fmt: skip

    def work(message: ReceivedMessage) -> ConsumeResult | None:
        end = ends[message.queue_offset]
        if isinstance(end, Exception):
            raise end
        return end

    async def work_async(message: ReceivedMessage) -> ConsumeResult | None:
        return work(message)

    group.fill(0, range(4))
    listener = work if in_threads else work_async
    async with member(group, listener=listener, hooks=[calls]):
        await eventually(lambda: len(calls.contexts) == 4)
    assert calls.seen == ["start", *["before", "after"] * 4, "stop"] or in_threads
    by_offset = sorted(calls.contexts, key=lambda context: context.messages[0].queue_offset)
    assert [context.outcome for context in by_offset] == [
        ConsumeOutcome.SUCCESS,
        ConsumeOutcome.FAILED,
        ConsumeOutcome.FAILED,
        ConsumeOutcome.EXCEPTION,
    ]
    assert isinstance(by_offset[3].error, KeyError)
    assert {context.group for context in calls.contexts} == {"cg"}


async def test_a_message_that_a_hook_forbids_is_redelivered() -> None:
    class Forbids(ConsumeHook):
        def before_consume(self, context: ConsumeContext) -> None:
            raise ClientError("not this one")

    async def listener(message: ReceivedMessage) -> None:
        came.append(message)

    group, came = Group(), list[ReceivedMessage]()
    group.fill(0, range(1))
    async with member(group, listener=listener, hooks=[Forbids()]):
        await eventually(lambda: bool(group.asked(SEND_BACK)))
    assert came == []


async def test_hooks_see_the_work_of_an_iteration() -> None:
    seen = list[ConsumeContext]()

    class Notes(ConsumeHook):
        def after_consume(self, context: ConsumeContext) -> None:
            seen.append(context)

    group = Group()
    group.records[0] = [record(0, b"x"), record(1, b"y")]
    async with member(group, hooks=[Notes()]) as consumer:
        messages = aiter(consumer)
        for _ in range(2):
            await anext(messages)
        await messages.aclose()
    assert [context.outcome for context in seen] == [ConsumeOutcome.SUCCESS, None]
    assert all(context.in_iteration for context in seen)
    assert [context.messages[0].body for context in seen] == [b"x", b"y"]


@pytest.mark.parametrize("in_threads", [False, True])
async def test_the_senders_context_is_current_in_the_listener(in_threads: bool) -> None:
    group, found = Group(), list[int]()
    parent = f"00-{0x1234:032x}-{0x56:016x}-01"

    def work(message: ReceivedMessage) -> None:
        found.append(otel_trace.get_current_span().get_span_context().trace_id)

    async def work_async(message: ReceivedMessage) -> None:
        work(message)

    group.records[0] = [
        record(0, b"x", extra_properties=b"traceparent\x01" + parent.encode() + b"\x02")
    ]
    listener = work if in_threads else work_async
    async with member(group, listener=listener, hooks=[OpenTelemetryConsumeHook()]):
        await eventually(lambda: bool(found))
    assert found == [0x1234]
    assert otel_trace.get_current_span().get_span_context().trace_id == 0


async def test_the_current_context_travels_with_the_message() -> None:
    span = NonRecordingSpan(SpanContext(0x1234, 0x56, is_remote=False, trace_flags=TraceFlags(1)))
    async with FakeCluster("a") as cluster:
        cluster.brokers["a"].answers[310] = stored
        async with Producer(cluster.address, group="pg", hooks=[OpenTelemetryHook()]) as producer:
            message = Message(topic="T", body=b"x", properties={"n": "v"})
            token = otel_context.attach(otel_trace.set_span_in_context(span))
            await producer.send(message)
            otel_context.detach(token)
        properties = dict(
            one.split("\x01")
            for one in cluster.brokers["a"].asked(310)[0].ext_fields["i"].split("\x02")
            if one
        )
    assert message.properties == {"n": "v"}
    assert properties["traceparent"] == f"00-{0x1234:032x}-{0x56:016x}-01"
    received = ReceivedMessage(
        topic="T",
        body=b"x",
        properties=properties,
        queue=MessageQueue(topic="T", broker_name="a", queue_id=0),
    )
    found = otel_trace.get_current_span(message_context(received)).get_span_context()
    assert (found.trace_id, found.span_id) == (0x1234, 0x56)
