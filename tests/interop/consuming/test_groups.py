"""Groups, their offsets and members, as mqadmin and the clients see them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from harness.cluster import Cluster
from harness.console import Console, eventually
from harness.drivers import Driver, Json, message
from harness.wire import PULL_MESSAGE, Wire, pull_fields

from congreve.remoting.messages.codes import RequestCode, ResponseCode

SENT = 40
QUEUES = 4
WAIT: Json = {"timeoutMs": 60_000, "quietMs": 200}


@dataclass
class Group:
    """A group of one topic, with its operations."""

    java: Driver
    cluster: Cluster
    topic: str
    name: str

    def mqadmin(self, command: str, *args: str) -> str:
        return Console(self.java, self.cluster)(command, *args)

    def send(self, count: int = SENT, first: int = 0) -> list[Json]:
        messages = [
            message(self.topic, f"{i}|".encode(), keys=f"{self.topic}-{i}")
            for i in range(first, first + count)
        ]
        where = self.cluster.namesrv.address
        results: list[Json] = self.java.call("send", namesrv=where, messages=messages)["results"]
        return results

    def start(self, instances: int = 1, **options: object) -> None:
        request: Json = {"id": self.name, "group": self.name, "topic": self.topic, **options}
        where = self.cluster.namesrv.address
        self.java.call("consumerStart", namesrv=where, instances=instances, **request)
        Console(self.java, self.cluster).members(self.name, self.topic, count=instances)

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
    """SENT messages, all consumed; the group has no members now."""
    group.send()
    group.start()
    assert group.wait()["distinct"] == SENT
    group.stop()
    return group


@pytest.fixture
def online(group: Group) -> Iterator[Group]:
    """SENT messages, all consumed by the only member."""
    group.send()
    group.start(hasty=True)
    assert group.wait()["distinct"] == SENT
    yield group
    group.stop()


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


def test_a_member_reports_its_state_and_consumes_a_message_on_request(online: Group) -> None:
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
    online.send(first=SENT)
    broker = ("-b", online.cluster.broker.address)
    assert online.wait(2 * SENT)["total"] == 2 * SENT
    stats = online.mqadmin("brokerConsumeStats", *broker)
    assert re.search(rf"{online.topic} +{online.name} ", stats), stats
    everyone = online.mqadmin("producer", *broker)
    assert "CLIENT_INNER_PRODUCER" in everyone, everyone
    one = online.mqadmin("producerConnection", "-g", "CLIENT_INNER_PRODUCER", "-t", online.topic)
    assert re.search(r"127\.0\.0\.1:\d+ +JAVA", one), one


def test_a_correction_query_returns_the_offset_of_the_slowest_group(consumed: Group) -> None:
    slow = f"slow-{consumed.topic}"
    fields = {"consumerGroup": slow, "topic": consumed.topic, "queueId": "0", "commitOffset": "1"}
    with Wire(consumed.cluster.broker.address) as wire:
        assert wire.call(RequestCode.UPDATE_CONSUMER_OFFSET, fields).code == 0
        asked = {"topic": consumed.topic, "compareGroup": consumed.name, "filterGroups": "nobody"}
        answer = wire.call(RequestCode.QUERY_CORRECTION_OFFSET, asked)
    assert re.search(rb"0:1[,}]", answer.body), answer.body


def test_the_monitor_reports_lag_members_and_lost_offsets(consumed: Group) -> None:
    consumed.send(3)
    behind = {"consumerGroup": "behind", "commitOffset": str(SENT)}
    with Wire(consumed.cluster.broker.address) as wire:
        beyond = wire.call(PULL_MESSAGE, pull_fields(consumed.topic, 0, 10 * SENT, 1) | behind)
    assert beyond.code == ResponseCode.PULL_OFFSET_MOVED
    consumed.start(failures=1_000)
    where = {"namesrv": consumed.cluster.namesrv.address}
    reports = consumed.java.call("monitor", timeoutMs=60_000, **where)["calls"]
    calls = {one["call"] for one in reports}
    assert {"beginRound", "reportUndoneMsgs", "reportDeleteMsgsEvent", "endRound"} <= calls
    lag = {
        one["of"]["consumerGroup"]: one["of"]["undoneMsgsTotal"]
        for one in reports
        if one["call"] == "reportUndoneMsgs" and one["of"]["topic"] == consumed.topic
    }
    assert consumed.name in lag
    members = [one["of"] for one in reports if one["call"] == "reportConsumerRunningInfo"]
    assert any(consumed.client_id() in member for member in members)
    (moved,) = (
        one["of"]["offsetMovedEvent"]
        for one in reports
        if one["call"] == "reportDeleteMsgsEvent"
        and one["of"]["offsetMovedEvent"]["messageQueue"]["topic"] == consumed.topic
    )
    assert (moved["consumerGroup"], moved["offsetRequest"]) == ("behind", 10 * SENT)
    consumed.stop()


def test_a_go_member_handles_a_reset_a_status_query_and_a_direct_message(
    group: Group, go: Driver
) -> None:
    sent = group.send()
    member: Json = {"id": group.name, "group": group.name, "topic": group.topic, "instances": 1}
    go.call("consumerStart", namesrv=group.cluster.namesrv.address, **member)
    assert go.call("consumerWait", id=group.name, expected=SENT, **WAIT)["distinct"] == SENT
    name = group.client_id()
    running = group.mqadmin("consumerStatus", "-g", group.name, "-i", name)
    assert group.topic in running, running
    given = ("-i", sent[0]["offsetMsgId"], "-g", group.name, "-d", name)
    eventually(lambda: group.mqadmin("queryMsgById", *given), r"consumeResult=(CR_SUCCESS|0)")
    # The Go client would commit within 5 s.
    with Wire(group.cluster.broker.address) as wire:
        for queue in range(QUEUES):
            fields = {"consumerGroup": group.name, "topic": group.topic}
            fields |= {"queueId": str(queue), "commitOffset": str(SENT // QUEUES)}
            assert wire.call(RequestCode.UPDATE_CONSUMER_OFFSET, fields).code == 0
    out = group.mqadmin("resetOffsetByTime", "-g", group.name, "-t", group.topic, "-s", "0")
    assert len(re.findall(r"^broker-a +\d +0 *$", out, re.MULTILINE)) == QUEUES, out
    now: Json = {"expected": 0, "timeoutMs": 0, "quietMs": 0}
    eventually(
        lambda: str(go.call("consumerWait", id=group.name, **now)["total"] >= 2 * SENT), "True"
    )
    go.call("consumerStop", id=group.name)
