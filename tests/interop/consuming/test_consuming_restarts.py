"""A broker that stops during each kind of consumption, and starts again."""

from __future__ import annotations

import re
import uuid

import pytest
from harness.cluster import Cluster
from harness.console import Console, eventually
from harness.drivers import Driver, Json, message
from harness.wire import HEART_BEAT, PULL_MESSAGE, Wire, heartbeat, pull_fields

from congreve.remoting.messages.codes import RequestCode, ResponseCode

WAIT: Json = {"timeoutMs": 60_000, "quietMs": 200}
NOW: Json = {"expected": 0, "timeoutMs": 0, "quietMs": 0}


@pytest.fixture
def topic(fragile: Cluster, java: Driver) -> str:
    name = f"fragile-{uuid.uuid4().hex[:8]}"
    fragile.create_topic(java, name, queues=4)
    return name


def test_after_a_kill_every_kind_of_consumer_continues_and_gets_returned_messages_again(
    fragile: Cluster, java: Driver, go: Driver, topic: str
) -> None:
    # All kinds at once, because Java's client waits 30 s for the answers of a killed broker.
    where: Json = {"namesrv": fragile.namesrv.address, "topic": topic}
    kinds: list[tuple[str, Driver, Json]] = [
        ("concurrent", java, {"instances": 2, "hasty": True}),
        ("orderly", java, {"instances": 1, "orderly": True, "hasty": True}),
        ("sql", java, {"instances": 1, "sql": "UNIQ_KEY IS NOT NULL", "hasty": True}),
        ("broadcast", java, {"instances": 2, "broadcast": True, "hasty": True}),
        ("go", go, {"instances": 1}),
        ("go-orderly", go, {"instances": 1, "orderly": True}),
        ("go-sql", go, {"instances": 1, "sql": "UNIQ_KEY IS NOT NULL"}),
        ("go-broadcast", go, {"instances": 2, "broadcast": True}),
    ]
    for name, client, options in kinds:
        group = f"{name}-{topic}"
        client.call("consumerStart", id=group, group=group, **options, **where)
    java.call("load", mode="sync", count=100, size=16, **where)
    for name, client, _ in kinds:
        seen = client.call("consumerWait", id=f"{name}-{topic}", expected=100, **WAIT)
        assert seen["distinct"] == 100, (name, seen)
    returned = send_back(fragile, java)
    fragile.broker.kill()
    fragile.broker.start()
    java.call("load", mode="sync", count=200, size=16, **where)
    for name, client, _ in kinds:
        seen = client.call("consumerWait", id=f"{name}-{topic}", expected=200, **WAIT)
        assert seen["distinct"] == 200, (name, seen)
        if "broadcast" in name:
            await_all_members(client, f"{name}-{topic}", 200)
        client.call("consumerStop", id=f"{name}-{topic}")
    # Some of the four may have come again before the kill, and the others 30 s later.
    eventually(
        lambda: str(java.call("consumerWait", id=returned, **NOW)["redelivered"]), r"^[4-9]$"
    )
    seen = java.call("consumerWait", expected=4, id=returned, **WAIT)
    java.call("consumerStop", id=returned)
    assert (seen["distinct"], seen["redelivered"]) == (4, 4), seen


def await_all_members(client: Driver, consumers: str, count: int) -> None:
    """Wait until each member has `count` messages."""

    def each_has_enough() -> str:
        taken = client.call("consumerWait", id=consumers, **NOW)["perInstance"]
        return str(min(taken) >= count)

    eventually(each_has_enough, "True")


def send_back(fragile: Cluster, java: Driver) -> str:
    """Let a consumer refuse four messages, which wait for their first retry; returns its id."""
    topic = f"returned-{uuid.uuid4().hex[:8]}"
    fragile.create_topic(java, topic, queues=4)
    where: Json = {"namesrv": fragile.namesrv.address, "topic": topic}
    group = f"retry-{topic}"
    java.call("consumerStart", id=topic, group=group, instances=1, hasty=True, failures=4, **where)
    java.call("load", mode="sync", count=4, size=16, **where)
    console = Console(java, fragile)
    # Parked for the level of the first retry, 2 s.
    eventually(
        lambda: console("queryCq", "-t", "SCHEDULE_TOPIC_XXXX", "-q", "2", "-i", "0", broker=True),
        r"max: 4\b",
    )
    return topic


def test_messages_are_found_by_key_id_offset_and_time_after_a_kill(
    fragile: Cluster, java: Driver, topic: str
) -> None:
    texts = [message(topic, f"{i}|".encode(), keys=f"key-{i}") for i in range(20)]
    where = {"namesrv": fragile.namesrv.address}
    sent = java.call("send", messages=texts, queueId=1, **where)["results"]
    fragile.broker.kill()
    fragile.broker.start()
    console = Console(java, fragile)
    eventually(lambda: console("topicRoute", "-t", topic), fragile.broker.address)
    ids = [one["msgId"] for one in sent]
    unique = java.call("viewUnique", topic=topic, ids=ids, **where)["messages"]
    assert [one["queueOffset"] for one in unique] == list(range(20))
    for number in (0, 19):
        one = sent[number]
        place = ("-b", fragile.broker.broker_name, "-i", "1", "-o", str(number))
        for out in (
            console("queryMsgById", "-i", one["offsetMsgId"]),
            console("queryMsgByOffset", "-t", topic, *place),
        ):
            assert re.search(rf"^Queue Offset: +{number}$", out, re.MULTILINE), out
        (row,) = console.rows("queryMsgByKey", "-t", topic, "-k", f"key-{number}")
        assert row == [one["msgId"], "1", str(number)]
    by_queue = ("-a", fragile.broker.broker_name, "-i", "1", "-p", "true", "-d", "true")
    out = console("printMsgByQueue", "-t", topic, *by_queue, "-b", "0")
    assert re.findall(r"BODY: (\d+)\|", out) == [str(number) for number in range(20)]


def test_a_stopping_broker_answers_waiting_pulls_and_keeps_their_offsets(
    kind: str, fragile: Cluster, topic: str
) -> None:
    group = f"held-{topic}"
    fields = pull_fields(topic, 0, 0, 32) | {"sysFlag": "7", "suspendTimeoutMillis": "60000"}
    fields |= {"consumerGroup": group, "commitOffset": "7"}
    answers = []
    with Wire(fragile.broker.address) as wire:
        assert wire.call(HEART_BEAT, {}, heartbeat(topic, group)).code == 0
        opaque = wire.send(PULL_MESSAGE, fields)
        assert fragile.broker.stop() in (0, 143)
        with pytest.raises(ConnectionError):
            while True:
                answers.append(wire.receive())
    if kind == "congreve":
        # Without this answer the Java client waits 30 s before it tries the next broker.
        (last,) = [answer for answer in answers if answer.opaque == opaque and answer.flag & 1]
        assert last.code == ResponseCode.SERVICE_NOT_AVAILABLE
    fragile.broker.start()
    with Wire(fragile.broker.address) as wire:
        asked = {"consumerGroup": group, "topic": topic, "queueId": "0"}
        answer = wire.call(RequestCode.QUERY_CONSUMER_OFFSET, asked)
        assert answer.fields["offset"] == "7"


def test_a_java_consumer_continues_after_a_clean_restart_of_its_broker(
    fragile: Cluster, java: Driver, topic: str
) -> None:
    where: Json = {"namesrv": fragile.namesrv.address, "topic": topic}
    group: Json = {"id": topic, "group": f"stopped-{topic}"}
    java.call("consumerStart", instances=2, hasty=True, **group, **where)
    java.call("load", mode="sync", count=100, size=16, **where)
    assert java.call("consumerWait", expected=100, **group, **WAIT)["distinct"] == 100
    assert fragile.broker.stop() in (0, 143)
    fragile.broker.start()
    java.call("load", mode="sync", count=200, size=16, **where)
    seen = java.call("consumerWait", expected=200, **group, **WAIT)
    java.call("consumerStop", **group)
    assert seen["distinct"] == 200, seen
