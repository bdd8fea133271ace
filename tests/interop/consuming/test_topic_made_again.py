"""Java and Go consumers stay online while their topic is deleted and made again."""

from __future__ import annotations

import pytest
from harness.cluster import Cluster
from harness.console import Console
from harness.drivers import Driver, Json, message
from harness.wire import Wire

QUEUES = 2
OLD, NEW = 20, 30
DELETE_TOPIC_IN_BROKER = 215


def send(java: Driver, cluster: Cluster, topic: str, numbers: range) -> None:
    messages = [message(topic, f"{number}|".encode()) for number in numbers]
    results = java.call("send", namesrv=cluster.namesrv.address, messages=messages)["results"]
    assert len(results) == len(numbers)


@pytest.mark.parametrize("orderly", [False, True])
def test_a_consumer_gets_all_messages_of_the_new_topic(
    kind: str, fragile: Cluster, java: Driver, orderly: bool
) -> None:
    if kind != "congreve":
        pytest.skip("RocketMQ lets the consumer skip the first messages")
    topic = f"again-{orderly}"
    fragile.create_topic(java, topic, queues=QUEUES)
    options: Json = {"instances": 1, "orderly": orderly, "topic": topic, "group": topic}
    java.call("consumerStart", id=topic, namesrv=fragile.namesrv.address, **options)
    Console(java, fragile).members(topic, topic, count=1)
    send(java, fragile, topic, range(OLD))
    wait: Json = {"timeoutMs": 120_000, "quietMs": 200}
    assert java.call("consumerWait", id=topic, expected=OLD, **wait)["distinct"] == OLD
    with Wire(fragile.broker.address) as wire:
        assert wire.call(DELETE_TOPIC_IN_BROKER, {"topic": topic}).code == 0
    fragile.create_topic(java, topic, queues=QUEUES)
    send(java, fragile, topic, range(OLD, OLD + NEW))
    seen = java.call("consumerWait", id=topic, expected=OLD + NEW, **wait)
    java.call("consumerStop", id=topic)
    assert seen["distinct"] == OLD + NEW, seen


def test_a_go_consumer_gets_all_messages_of_the_new_topic(
    kind: str, fragile: Cluster, java: Driver, go: Driver
) -> None:
    if kind != "congreve":
        pytest.skip("RocketMQ lets the consumer skip the first messages")
    topic = "again-go"
    fragile.create_topic(java, topic, queues=QUEUES)
    where = {"namesrv": fragile.namesrv.address, "topic": topic}
    go.call("consumerStart", id=topic, group=topic, instances=1, **where)
    Console(java, fragile).members(topic, topic, count=1)
    send(java, fragile, topic, range(OLD))
    wait: Json = {"timeoutMs": 120_000, "quietMs": 200}
    assert go.call("consumerWait", id=topic, expected=OLD, **wait)["distinct"] == OLD
    with Wire(fragile.broker.address) as wire:
        assert wire.call(DELETE_TOPIC_IN_BROKER, {"topic": topic}).code == 0
    fragile.create_topic(java, topic, queues=QUEUES)
    send(java, fragile, topic, range(OLD, OLD + NEW))
    seen = go.call("consumerWait", id=topic, expected=OLD + NEW, **wait)
    go.call("consumerStop", id=topic)
    assert seen["distinct"] == OLD + NEW, seen
