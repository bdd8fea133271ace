"""Groups, their offsets and members: mqadmin, clients, and a broker that goes."""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from harness import servers
from harness.cluster import Cluster
from harness.drivers import Driver, Json, message
from harness.wire import PULL_MESSAGE, SEND_MESSAGE_V2, Wire, pull_fields, send_fields

from congreve.remoting.codes import RequestCode, ResponseCode

EVENTUALLY_S = 15
SENT = 40
WAIT: Json = {"timeoutMs": 60_000, "quietMs": 200}


@dataclass
class Group:
    """A group of one topic, and what can be done with it."""

    java: Driver
    cluster: Cluster
    topic: str
    name: str

    def mqadmin(self, command: str, *args: str) -> str:
        return self.java.mqadmin(command, "-n", self.cluster.namesrv.address, *args)

    def send(self, count: int = SENT) -> list[Json]:
        messages = [
            message(self.topic, f"{i}|".encode(), keys=f"{self.topic}-{i}") for i in range(count)
        ]
        where = self.cluster.namesrv.address
        results: list[Json] = self.java.call("send", namesrv=where, messages=messages)["results"]
        return results

    def start(self, instances: int = 1, **options: object) -> None:
        request: Json = {"id": self.name, "group": self.name, "topic": self.topic, **options}
        where = self.cluster.namesrv.address
        self.java.call("consumerStart", namesrv=where, instances=instances, **request)
        eventually(lambda: self.mqadmin("consumerConnection", "-g", self.name), self.topic)

    def wait(self, expected: int = SENT) -> Json:
        return self.java.call("consumerWait", id=self.name, expected=expected, **WAIT)

    def stop(self) -> None:
        self.java.call("consumerStop", id=self.name)

    def lag(self) -> int:
        out = self.mqadmin("consumerProgress", "-g", self.name)
        (found,) = re.findall(r"Diff Total: (-?\d+)", out)
        return int(found)

    def client_id(self) -> str:
        out = self.mqadmin("consumerConnection", "-g", self.name)
        (found,) = re.findall(r"^(\S+@\S+) +127\.0\.0\.1:", out, re.MULTILINE)
        return str(found)


@pytest.fixture
def group(java: Driver, cluster: Cluster, topic: str) -> Group:
    return Group(java, cluster, topic, f"group-{topic}")


@pytest.fixture
def consumed(group: Group) -> Group:
    """SENT messages, all consumed; nobody is there now."""
    group.send()
    group.start()
    assert group.wait()["distinct"] == SENT
    group.stop()
    return group


@pytest.fixture
def online(group: Group) -> Iterator[Group]:
    """SENT messages, all consumed by the one member that is there."""
    group.send()
    group.start(hasty=True)
    assert group.wait()["distinct"] == SENT
    yield group
    group.stop()


def eventually(read: Callable[[], str], wanted: str) -> str:
    """What `read` gives as soon as `wanted` matches it."""
    deadline = time.monotonic() + EVENTUALLY_S
    while not re.search(wanted, out := read()):
        assert time.monotonic() < deadline, f"no {wanted!r} in:\n{out}"
        time.sleep(0.1)
    return out


def test_offsets_of_an_absent_group_are_reset_by_time(consumed: Group) -> None:
    assert consumed.lag() == 0
    consumed.mqadmin("resetOffsetByTime", "-g", consumed.name, "-t", consumed.topic, "-s", "0")
    assert consumed.lag() == SENT
    consumed.start()
    assert consumed.wait()["distinct"] == SENT
    consumed.stop()


def test_offsets_are_cloned_for_another_group(consumed: Group) -> None:
    clone = Group(consumed.java, consumed.cluster, consumed.topic, f"clone-{consumed.topic}")
    out = consumed.mqadmin(
        *("cloneGroupOffset", "-s", consumed.name, "-d", clone.name),
        *("-t", consumed.topic, "-o", "true"),
    )
    assert "success" in out, out
    clone.start()
    consumed.send()
    assert clone.wait()["total"] == SENT
    clone.stop()


def test_accumulated_messages_are_skipped(consumed: Group) -> None:
    consumed.send()
    assert consumed.lag() == SENT
    consumed.mqadmin("skipAccumulatedMessage", "-g", consumed.name, "-t", consumed.topic)
    assert consumed.lag() == 0


def test_a_member_tells_its_state_and_consumes_a_message_on_demand(online: Group) -> None:
    member = online.client_id()
    running = online.mqadmin("consumerStatus", "-g", online.name, "-i", member, "-s")
    assert re.search(rf"{online.topic} +broker-a +\d", running), running
    assert "ConsumeMessageThread" in running
    with Wire(online.cluster.broker.address) as wire:
        asked = {"topic": online.topic, "group": online.name, "clientAddr": ""}
        status = wire.call(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, asked)
    assert member.encode() in status.body
    assert sum(int(offset) for offset in re.findall(rb"\}:(\d+)", status.body)) == SENT
    offset_id = online.send(1)[0]["offsetMsgId"]
    # Tracked as consumed by this group once its offset has come.
    track = rf"consumerGroup={online.name}, trackType=CONSUMED\b"
    shown = eventually(lambda: online.mqadmin("queryMsgById", "-i", offset_id), track)
    assert re.search(rf"Topic: +{online.topic}", shown)
    directly = online.mqadmin("queryMsgById", "-i", offset_id, "-g", online.name, "-d", member)
    assert "consumeResult=CR_SUCCESS" in directly, directly


def test_a_group_that_may_not_consume_is_refused(group: Group) -> None:
    group.send(1)
    broker = ("-b", group.cluster.broker.address)
    fields = pull_fields(group.topic, 0, 0, 32) | {"consumerGroup": group.name}
    for enabled, codes in (("false", {ResponseCode.NO_PERMISSION}), ("true", {0, 19})):
        group.mqadmin("updateSubGroup", *broker, "-g", group.name, "-s", enabled)
        with Wire(group.cluster.broker.address) as wire:
            assert wire.call(PULL_MESSAGE, fields).code in codes


def test_brokers_list_groups_producers_and_lag(online: Group) -> None:
    online.send()
    broker = ("-b", online.cluster.broker.address)
    assert online.wait()["total"] == 2 * SENT
    stats = online.mqadmin("brokerConsumeStats", *broker)
    assert re.search(rf"{online.topic} +{online.name} ", stats), stats
    everyone = online.mqadmin("producer", *broker)
    assert "CLIENT_INNER_PRODUCER" in everyone, everyone
    one = online.mqadmin("producerConnection", "-g", "CLIENT_INNER_PRODUCER", "-t", online.topic)
    assert re.search(r"127\.0\.0\.1:\d+ +JAVA", one), one


def test_the_slowest_group_is_found_for_correction(consumed: Group) -> None:
    slow = f"slow-{consumed.topic}"
    fields = {"consumerGroup": slow, "topic": consumed.topic, "queueId": "0", "commitOffset": "1"}
    with Wire(consumed.cluster.broker.address) as wire:
        assert wire.call(RequestCode.UPDATE_CONSUMER_OFFSET, fields).code == 0
        asked = {"topic": consumed.topic, "compareGroup": consumed.name, "filterGroups": "nobody"}
        answer = wire.call(RequestCode.QUERY_CORRECTION_OFFSET, asked)
    assert re.search(rb"0:1[,}]", answer.body), answer.body


@pytest.fixture
def fragile(kind: str, namesrv: servers.Server, java: Driver, tmp_path: Path) -> Iterator[Cluster]:
    """A broker of its own, which may be ended."""
    broker = servers.broker(
        *(kind, tmp_path, namesrv.address),
        broker_name=f"broker-{uuid.uuid4().hex[:6]}",
        settings={"enablePropertyFilter": "true", "flushDiskType": "SYNC_FLUSH"},
    )
    broker.start()
    yield Cluster(namesrv, broker)
    broker.kill()


def test_every_kind_of_consumer_goes_on_when_its_broker_comes_back(
    fragile: Cluster, java: Driver, go: Driver
) -> None:
    topic = f"fragile-{uuid.uuid4().hex[:8]}"
    fragile.create_topic(java, topic, queues=4)
    where: Json = {"namesrv": fragile.namesrv.address, "topic": topic}
    kinds: list[tuple[str, Driver, Json]] = [
        ("concurrent", java, {"instances": 2, "hasty": True}),
        ("orderly", java, {"instances": 1, "orderly": True, "hasty": True}),
        ("sql", java, {"instances": 1, "sql": "UNIQ_KEY IS NOT NULL", "hasty": True}),
        ("go", go, {"instances": 1}),
    ]
    for name, client, options in kinds:
        group = f"{name}-{topic}"
        client.call("consumerStart", id=group, group=group, **options, **where)
    java.call("load", mode="sync", count=100, size=16, **where)
    for name, client, _ in kinds:
        seen = client.call("consumerWait", id=f"{name}-{topic}", expected=100, **WAIT)
        assert seen["distinct"] == 100, (name, seen)
    fragile.broker.kill()
    fragile.broker.start()
    java.call("load", mode="sync", count=200, size=16, **where)
    for name, client, _ in kinds:
        seen = client.call("consumerWait", id=f"{name}-{topic}", expected=200, **WAIT)
        client.call("consumerStop", id=f"{name}-{topic}")
        assert seen["distinct"] == 200, (name, seen)


GROUPS = 1_000
CONNECTIONS = 500


def heartbeat(topic: str, *groups: str) -> bytes:
    """Body of a HEART_BEAT of one client in several groups."""
    subscription = {"topic": topic, "subString": "*", "subVersion": 1, "expressionType": "TAG"}
    members = [
        {
            "groupName": group,
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
            "subscriptionDataSet": [subscription],
            "unitMode": False,
        }
        for group in groups
    ]
    client = {"clientID": groups[0], "consumerDataSet": members, "producerDataSet": []}
    return json.dumps(client).encode()


def test_a_thousand_groups_on_five_hundred_connections_keep_their_offsets(
    fragile: Cluster, java: Driver
) -> None:
    topic = f"many-{uuid.uuid4().hex[:8]}"
    fragile.create_topic(java, topic, queues=4)
    with Wire(fragile.broker.address) as wire:
        assert wire.call(SEND_MESSAGE_V2, send_fields(topic, 0, {}), b"0|").code == 0
    names = [f"{topic}-{number}" for number in range(GROUPS)]
    with ExitStack() as stack:
        wires = [stack.enter_context(Wire(fragile.broker.address)) for _ in range(CONNECTIONS)]
        for number, wire in enumerate(wires):
            mine = names[number::CONNECTIONS]
            assert wire.call(RequestCode.HEART_BEAT, {}, heartbeat(topic, *mine)).code == 0
        for number, name in enumerate(names):
            wire = wires[number % CONNECTIONS]
            # What the heartbeat said of the group is asked for, and an offset goes along.
            own = {"consumerGroup": name, "commitOffset": str(number)}
            own |= {"sysFlag": "1", "subVersion": "1"}
            answer = wire.call(PULL_MESSAGE, pull_fields(topic, 0, 0, 32) | own)
            assert answer.code == 0, answer.remark
        listed = wires[0].call(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": topic}).body
        assert set(json.loads(listed)["groupList"]) == set(names)
    assert fragile.broker.stop() in (0, 143)
    fragile.broker.start()
    with Wire(fragile.broker.address) as wire:
        for number, name in enumerate(names):
            asked = {"consumerGroup": name, "topic": topic, "queueId": "0"}
            answer = wire.call(RequestCode.QUERY_CONSUMER_OFFSET, asked)
            assert answer.fields["offset"] == str(number)
