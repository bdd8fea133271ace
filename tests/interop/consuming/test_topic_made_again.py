"""Consumers of other languages stay online while their topic is deleted and made again."""

from __future__ import annotations

import pytest
from harness.cluster import Cluster
from harness.console import Console
from harness.drivers import Driver, Json, message
from harness.wire import Wire

QUEUES = 2
OLD, NEW = 20, 30
DELETE_TOPIC_IN_BROKER = 215


def send(java: Driver, cluster: Cluster, topic: str, life: str, count: int) -> None:
    messages = [message(topic, f"{life} {number}|".encode()) for number in range(count)]
    results = java.call("send", namesrv=cluster.namesrv.address, messages=messages)["results"]
    assert len(results) == count


@pytest.mark.parametrize("orderly", [False, True])
@pytest.mark.parametrize("client", ["java", "go"])
def test_a_consumer_gets_all_messages_of_the_new_topic(
    kind: str, fragile: Cluster, java: Driver, go: Driver, client: str, orderly: bool
) -> None:
    if kind != "congreve":
        pytest.skip("RocketMQ lets the consumer skip the first messages")
    driver, topic = {"java": java, "go": go}[client], f"again-{client}-{orderly}"
    fragile.create_topic(java, topic, queues=QUEUES)
    options: Json = {"instances": 1, "orderly": orderly, "topic": topic, "group": topic}
    driver.call("consumerStart", id=topic, namesrv=fragile.namesrv.address, **options)
    Console(java, fragile).members(topic, topic, count=1)
    send(java, fragile, topic, "old", OLD)
    wait: Json = {"timeoutMs": 120_000, "quietMs": 200}
    assert driver.call("consumerWait", id=topic, expected=OLD, **wait)["distinct"] == OLD
    with Wire(fragile.broker.address) as wire:
        assert wire.call(DELETE_TOPIC_IN_BROKER, {"topic": topic}).code == 0
    fragile.create_topic(java, topic, queues=QUEUES)
    send(java, fragile, topic, "new", NEW)
    seen = driver.call("consumerWait", id=topic, expected=OLD + NEW, **wait)
    driver.call("consumerStop", id=topic)
    assert seen["distinct"] == OLD + NEW, seen
