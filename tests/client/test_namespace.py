"""Names of tenants, as NamespaceUtil makes them."""

import pytest

from congreve.client import Message, Producer, by_key
from congreve.client.namespace import unwrap, wrap

from .cluster import FakeCluster, stored


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


def test_without_a_namespace_names_stay() -> None:
    assert wrap(None, "T") == wrap("", "T") == unwrap(None, "T") == "T"
    assert unwrap("ns", "other%T") == "other%T"


async def test_brokers_see_the_tenant_and_the_program_does_not() -> None:
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
