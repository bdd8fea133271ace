"""Refused requests of consumers, with the reference's codes, and the limits of requests."""

from __future__ import annotations

import json
import time
import uuid
from pathlib import Path

import pytest
from harness import servers
from harness.cluster import Cluster
from harness.drivers import Driver
from harness.wire import (
    GET_MAX_OFFSET,
    HEART_BEAT,
    PULL_MESSAGE,
    SEND_MESSAGE_V2,
    Answer,
    Wire,
    heartbeat,
    pull_fields,
    send_fields,
)

from congreve.remoting.messages.codes import RequestCode, ResponseCode

STORED = 3
MILLION = 1_000_000


def subscription(topic: str, version: int, tag: str) -> object:
    return [
        {
            "topic": topic,
            "subString": tag,
            "tagsSet": [tag],
            "codeSet": [ord(tag)],
            "subVersion": version,
            "expressionType": "TAG",
        }
    ]


@pytest.fixture
def filled(cluster: Cluster, topic: str) -> str:
    with Wire(cluster.broker.address) as wire:
        for number in range(STORED):
            fields = send_fields(topic, 0, {"TAGS": "A"})
            assert wire.call(SEND_MESSAGE_V2, fields, b"%d|" % number).code == 0
        asked = {"topic": topic, "queueId": "0"}
        # The reference fills its queues some time after it has acknowledged.
        while wire.call(GET_MAX_OFFSET, asked).fields["offset"] != str(STORED):
            time.sleep(0.01)
    return topic


def registered_pull(topic: str, group: str, version: int) -> dict[str, str]:
    """A pull that leaves its subscription to the heartbeat."""
    own = {"consumerGroup": group, "subVersion": str(version), "sysFlag": "0"}
    return pull_fields(topic, 0, 0, 32) | own


def test_a_heartbeat_with_an_older_version_changes_nothing(cluster: Cluster, filled: str) -> None:
    group = f"group-{filled}"
    with Wire(cluster.broker.address) as wire:

        def beat(version: int, tag: str) -> None:
            wanted = subscription(filled, version, tag)
            body = heartbeat(filled, group, subscriptionDataSet=wanted)
            assert wire.call(HEART_BEAT, {}, body).code == 0

        def pull(version: int) -> Answer:
            return wire.call(PULL_MESSAGE, registered_pull(filled, group, version))

        beat(5, "A")
        assert pull(5).code == ResponseCode.SUCCESS
        stale = pull(6)
        assert stale.code == ResponseCode.SUBSCRIPTION_NOT_LATEST
        assert "not latest" in (stale.remark or "")
        beat(4, "B")
        assert pull(5).code == ResponseCode.SUCCESS
        beat(6, "B")
        assert pull(6).code == ResponseCode.PULL_RETRY_IMMEDIATELY


def test_a_group_that_may_not_broadcast_gets_nothing(
    cluster: Cluster, java: Driver, filled: str
) -> None:
    group = f"group-{filled}"
    with Wire(cluster.broker.address) as wire:
        body = heartbeat(filled, group, messageModel="BROADCASTING")
        assert wire.call(HEART_BEAT, {}, body).code == 0
        pull = registered_pull(filled, group, 1)
        assert wire.call(PULL_MESSAGE, pull).code == ResponseCode.SUCCESS
        where = ("-n", cluster.namesrv.address, "-b", cluster.broker.address)
        java.mqadmin("updateSubGroup", *where, "-g", group, "-d", "false")
        refused = wire.call(PULL_MESSAGE, pull)
        assert refused.code == ResponseCode.NO_PERMISSION
        assert "broadcast" in (refused.remark or "")


@pytest.mark.parametrize(
    ("offset", "status", "next_offset"),
    [
        (STORED + 1, "OFFSET_OVERFLOW_BADLY", STORED),
        (2**63 - 1, "OFFSET_OVERFLOW_BADLY", STORED),
        (-1, "OFFSET_TOO_SMALL", 0),
        (-(2**63), "OFFSET_TOO_SMALL", 0),
    ],
)
def test_a_pull_at_an_offset_out_of_range_gets_the_corrected_offset(
    cluster: Cluster, filled: str, offset: int, status: str, next_offset: int
) -> None:
    with Wire(cluster.broker.address) as wire:
        answer = wire.call(PULL_MESSAGE, pull_fields(filled, 0, offset, 32))
    assert (answer.code, answer.remark) == (ResponseCode.PULL_OFFSET_MOVED, status)
    assert answer.fields["nextBeginOffset"] == str(next_offset)
    assert (answer.fields["minOffset"], answer.fields["maxOffset"]) == ("0", str(STORED))


def test_the_error_for_an_unknown_group_names_it(
    cluster: Cluster, java: Driver, filled: str
) -> None:
    group = f"nobody-{uuid.uuid4().hex[:8]}"
    named = {"consumerGroup": group, "group": group, "topic": filled, "clientId": "c"}
    named |= {"producerGroup": group, "timestamp": "0", "isForce": "true"}
    asked = {
        RequestCode.GET_CONSUMER_LIST_BY_GROUP: ResponseCode.SYSTEM_ERROR,
        RequestCode.GET_CONSUMER_CONNECTION_LIST: ResponseCode.CONSUMER_NOT_ONLINE,
        RequestCode.GET_PRODUCER_CONNECTION_LIST: ResponseCode.SYSTEM_ERROR,
        RequestCode.GET_CONSUMER_RUNNING_INFO: ResponseCode.SYSTEM_ERROR,
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: ResponseCode.SYSTEM_ERROR,
    }
    with Wire(cluster.broker.address) as wire:
        for code, expected in asked.items():
            answer = wire.call(code, named)
            assert answer.code == expected, (code, answer)
            assert group in (answer.remark or ""), (code, answer)
        pull = registered_pull(filled, group, 1)
        assert wire.call(PULL_MESSAGE, pull).code == ResponseCode.SUBSCRIPTION_NOT_EXIST


def test_an_unknown_group_is_refused_if_groups_are_not_created_automatically(
    cluster: Cluster, java: Driver, filled: str
) -> None:
    group = f"nobody-{uuid.uuid4().hex[:8]}"

    def allow(value: str) -> None:
        where = ("-n", cluster.namesrv.address, "-b", cluster.broker.address)
        java.mqadmin("updateBrokerConfig", *where, "-k", "autoCreateSubscriptionGroup", "-v", value)

    allow("false")
    try:
        with Wire(cluster.broker.address) as wire:
            pull = pull_fields(filled, 0, 0, 32) | {"consumerGroup": group}
            back = {"offset": "0", "group": group, "delayLevel": "0"}
            for code, fields in (
                (PULL_MESSAGE, pull),
                (RequestCode.CONSUMER_SEND_MSG_BACK, back),
            ):
                answer = wire.call(code, fields)
                assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
                assert group in (answer.remark or "")
    finally:
        allow("true")


@pytest.mark.parametrize(
    "code",
    [
        HEART_BEAT,
        RequestCode.CHECK_CLIENT_CONFIG,
        RequestCode.LOCK_BATCH_MQ,
        RequestCode.UNLOCK_BATCH_MQ,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    ],
)
@pytest.mark.parametrize("body", [b"garbage", b'{"clientID": [', b"\xff\xfe"], ids=repr)
def test_an_unreadable_body_does_not_change_the_connection(
    cluster: Cluster, filled: str, code: int, body: bytes
) -> None:
    with Wire(cluster.broker.address) as wire:
        assert wire.call(code, {}, body).code == ResponseCode.SYSTEM_ERROR
        assert wire.call(PULL_MESSAGE, pull_fields(filled, 0, 0, 1)).code == ResponseCode.SUCCESS


def test_invalid_counts_and_times_do_no_harm(kind: str, cluster: Cluster, filled: str) -> None:
    # For these two the reference throws an exception.
    thrown_at = ("-1", str(2**31 - 1)) if kind == "congreve" else ()
    with Wire(cluster.broker.address) as wire:
        for count in ("0", "10000", *thrown_at):
            fields = pull_fields(filled, 0, 0, 1) | {"maxMsgNums": count}
            assert wire.call(PULL_MESSAGE, fields).code == ResponseCode.SUCCESS
        waiting = {"sysFlag": "6", "suspendTimeoutMillis": "-5"}
        answer = wire.call(PULL_MESSAGE, pull_fields(filled, 0, STORED, 1) | waiting)
        assert answer.code == ResponseCode.PULL_NOT_FOUND
        for timestamp in (str(-(2**63)), str(2**63 - 1)):
            asked = {"topic": filled, "queueId": "0", "timestamp": timestamp}
            answer = wire.call(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, asked)
            assert int(answer.fields["offset"]) in (0, STORED - 1)
        asked = {"topic": filled, "key": "k", "maxNum": str(MILLION)}
        asked |= {"beginTimestamp": str(2**63 - 1), "endTimestamp": str(-(2**63))}
        assert wire.call(RequestCode.QUERY_MESSAGE, asked).code == ResponseCode.QUERY_NOT_FOUND


def test_a_heartbeat_may_omit_the_fields_that_other_clients_omit(
    cluster: Cluster, topic: str
) -> None:
    group = f"group-{topic}"
    sparse = {"clientID": "sparse", "consumerDataSet": [{"groupName": group}]}
    with Wire(cluster.broker.address) as wire:
        assert wire.call(HEART_BEAT, {}, json.dumps(sparse).encode()).code == 0
        listed = wire.call(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group})
    assert json.loads(listed.body) == {"consumerIdList": ["sparse"]}


def test_a_slow_consumer_is_sent_to_the_slave_where_that_is_allowed(
    kind: str, namesrv: servers.Server, tmp_path: Path
) -> None:
    settings = {"slaveReadEnable": "true", "accessMessageInMemoryMaxRatio": "0"}
    broker = servers.broker(
        kind, tmp_path, namesrv.address, broker_name="broker-slow", settings=settings
    )
    broker.start()
    topic = "slow"
    with Wire(broker.address) as wire:
        for _ in range(STORED):
            assert wire.call(SEND_MESSAGE_V2, send_fields(topic, 0, {}), b"x").code == 0
        suggested = set()
        for _ in range(2):
            answer = wire.call(PULL_MESSAGE, pull_fields(topic, 0, 0, 1))
            suggested.add(answer.fields["suggestWhichBrokerId"])
    broker.stop()
    assert suggested == {"1"}
