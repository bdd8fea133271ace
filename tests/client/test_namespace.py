"""Names of tenants, as NamespaceUtil makes them."""

import pytest
from harness.eventually import eventually
from harness.fake_cluster import FakeCluster, record, stored
from harness.fake_group import PULL, QUICK, SEND_BACK, UPDATE_OFFSET, Group, cluster_of

from congreve.client import (
    ConsumeFrom,
    ConsumeResult,
    LitePullConsumer,
    Message,
    MessageQueue,
    Producer,
    PushConsumer,
    ReceivedMessage,
    by_key,
)
from congreve.client.namespace import unwrap, wrap


@pytest.mark.parametrize(
    ("name", "wrapped"),
    [
        ("T", "ns%T"),
        ("%RETRY%g", "%RETRY%ns%g"),
        ("%DLQ%g", "%DLQ%ns%g"),
        ("TBW102", "TBW102"),
        ("RMQ_SYS_TRACE_TOPIC", "RMQ_SYS_TRACE_TOPIC"),
        ("rmq_sys_TRACE_DATA_cn", "rmq_sys_TRACE_DATA_cn"),
        ("CID_RMQ_SYS_TRANS", "CID_RMQ_SYS_TRANS"),
    ],
)
def test_names_are_wrapped_once_and_unwrapped(name: str, wrapped: str) -> None:
    assert wrap("ns", name) == wrapped
    assert wrap("ns", wrapped) == wrapped
    assert unwrap("ns", wrapped) == name


def test_names_without_a_namespace_do_not_change() -> None:
    assert wrap(None, "T") == wrap("", "T") == unwrap(None, "T") == "T"
    assert unwrap("ns", "other%T") == "other%T"


async def test_only_brokers_see_the_namespace() -> None:
    async with FakeCluster("a", topics=("ns%T",)) as cluster:
        cluster.brokers["a"].answers |= {310: stored, 320: stored}
        async with Producer(cluster.address, group="pg", namespace="ns") as producer:
            message = Message(topic="T", body=b"x")
            results = [
                await producer.send(message),
                await producer.send(message, selector=by_key("k")),
                *await producer.send_batch([message]),
                *await producer.send_many("T", [b"x"]),
            ]
            assert {result.queue.topic for result in results} == {"T"}
            assert message.topic == "T"
        for request in cluster.brokers["a"].asked(310, 320):
            assert (request.ext_fields["a"], request.ext_fields["b"]) == ("ns%pg", "ns%T")
            text = request.ext_fields["i"].encode() + request.body
            assert b"INSTANCE_ID\x01ns" in text


def tenants_group() -> Group:
    group = Group()
    group.records[0] = [record(i, b"%d" % i, topic="ns%T") for i in range(3)]
    return group


async def test_listeners_see_names_without_the_namespace_and_brokers_with_it() -> None:
    group, came = tenants_group(), list[ReceivedMessage]()

    async def listener(message: ReceivedMessage) -> ConsumeResult:
        came.append(message)
        return ConsumeResult.LATER if message.queue_offset == 1 else ConsumeResult.SUCCESS

    async with (
        cluster_of(group, ("ns%T", "TBW102")) as cluster,
        PushConsumer(
            cluster.address,
            group="cg",
            topics={"T": "*"},
            listener=listener,
            consume_from=ConsumeFrom.FIRST_OFFSET,
            settings=QUICK,
            namespace="ns",
        ) as consumer,
    ):
        await eventually(lambda: len(came) == 3 and bool(group.asked(SEND_BACK)))
        assert {queue.topic for queue in consumer.assigned} == {"T"}
    assert {(message.topic, message.queue.topic) for message in came} == {("T", "T")}
    for request in group.asked(PULL, UPDATE_OFFSET):
        fields = request.ext_fields
        assert (fields["consumerGroup"], fields["topic"]) == ("ns%cg", "ns%T")
    assert group.asked(SEND_BACK)[0].ext_fields["originTopic"] == "ns%T"


async def test_queues_of_a_namespace_are_read_and_sought_by_short_names() -> None:
    group = tenants_group()
    group.answers[31] = lambda request: request.reply(0, ext_fields={"offset": "0"})
    queue = MessageQueue(topic="T", broker_name="a", queue_id=0)
    async with (
        cluster_of(group, ("ns%T",)) as cluster,
        LitePullConsumer(cluster.address, group="cg", namespace="ns") as consumer,
    ):
        assert queue in await consumer.queues("T")
        assert (await consumer.pull(queue, 0)).messages[2].topic == "T"
        await consumer.assign([queue])
        await consumer.seek(queue, 2)
        (message,) = await consumer.poll()
        assert (message.topic, message.queue, message.body) == ("T", queue, b"2")
        await consumer.commit_polled()
        assert await consumer.committed(queue) == consumer.position(queue) == 3


async def test_arrow_batches_of_a_namespace_name_the_short_topic() -> None:
    group = tenants_group()
    async with (
        cluster_of(group, ("ns%T", "TBW102")) as cluster,
        PushConsumer(
            cluster.address,
            group="cg",
            topics={"T": "*"},
            consume_from=ConsumeFrom.FIRST_OFFSET,
            settings=QUICK,
            namespace="ns",
        ) as consumer,
    ):
        async for batch in consumer.arrow_batches(["topic", "body"]):
            assert batch.to_pylist()[0] == {"topic": "T", "body": b"0"}
            break
