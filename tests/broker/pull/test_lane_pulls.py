"""Lanes answer pulls as the event loop does, and never with state from before a change."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import msgspec
import pytest
from broker.serving.test_fastpath import CREATE, config_of
from broker.serving.test_lanes import create, running, send
from harness.wire import Answer, Wire, heartbeat
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from congreve.broker.broker import Broker
from congreve.records.record import decode_record, decode_records

PULL, QUERY_OFFSET, UPDATE_TOPIC, DELETE_TOPIC = 11, 14, 17, 215
UPDATE_GROUP, UPDATE_CONFIG, HEART_BEAT = 200, 25, 34
COMMIT, SUBSCRIPTION = 1, 4
NO_PERMISSION, TOPIC_NOT_EXIST = 16, 17
MESSAGES = 40
VERSIONS = count(1)
EXPRESSIONS = ["TAGS = 'A'", "n > 20 AND n < 30 OR TAGS IN ('B', 'C')", "n IS NULL", "n = x"]
FIELDS = {
    "consumerGroup": "G",
    "topic": "T",
    "queueId": "0",
    "queueOffset": "0",
    "maxMsgNums": "32",
    "sysFlag": str(SUBSCRIPTION),
    "commitOffset": "0",
    "suspendTimeoutMillis": "0",
    "subscription": "*",
    "subVersion": "0",
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with filled(tmp_path_factory.mktemp("store")) as broker:
        yield broker


@pytest.fixture(scope="module")
def by_loop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker of the same messages, whose loop answers, to suggest a broker."""
    with filled(tmp_path_factory.mktemp("store"), slave_read_enable=True) as broker:
        yield broker


@contextmanager
def filled(root: Path, **settings: bool) -> Iterator[Broker]:
    config = msgspec.structs.replace(config_of(root), enable_property_filter=True, **settings)
    with running(config) as (broker, _):
        create(broker, "T")
        with Wire(broker.address) as wire:
            for number in range(MESSAGES):
                tag = "AB"[number % 2]
                properties = f"TAGS\x01{tag}\x02n\x01{number}\x02WAIT\x01true"
                send(wire, "T", 0, b"x" * (number * 37), properties)
            pull(wire)  # makes the group
            for expression in EXPRESSIONS:  # compiles them
                pull(wire, expressionType="SQL92", subscription=expression)
        yield broker


def answered(broker: Broker) -> int:
    """How many pulls lanes have answered."""
    assert broker._paths is not None
    return sum(lane.pulls.answered for lane in broker._paths.lanes)


def pull(wire: Wire, **fields: object) -> Answer:
    return wire.call(PULL, FIELDS | {name: str(value) for name, value in fields.items()})


def pull_in_lane(broker: Broker, wire: Wire, **fields: object) -> Answer:
    """A pull that the lane answers; the first of its kind goes to the loop.

    With a new SQL92 filter that also holds for the second, because the first compiles the filter.
    """
    pull(wire, **fields)
    pull(wire, **fields)
    before = answered(broker)
    answer = pull(wire, **fields)
    assert answered(broker) == before + 1
    return answer


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    offset=st.integers(-2, MESSAGES + 2),
    most=st.integers(-1, MESSAGES + 2),
    subscription=st.one_of(
        st.sampled_from(["*", "A", "B", "A || B", "C", ""]).map(lambda tags: ("TAG", tags)),
        st.sampled_from(EXPRESSIONS).map(lambda expression: ("SQL92", expression)),
    ),
)
def test_a_lane_answers_like_the_event_loop(
    broker: Broker, by_loop: Broker, offset: int, most: int, subscription: tuple[str, str]
) -> None:
    with Wire(broker.address) as wire, Wire(by_loop.address) as other:
        request = {
            "queueOffset": offset,
            "maxMsgNums": most,
            "expressionType": subscription[0],
            "subscription": subscription[1],
            "subVersion": next(VERSIONS),
        }
        before = answered(broker)
        wanted = pull(other, **request)
        assert answered(by_loop) == 0
        for number in (1, 2):  # the loop validates the first pull of its kind
            got = pull(wire, **request)
            assert (got.code, got.remark, got.fields) == (
                wanted.code,
                wanted.remark,
                wanted.fields,
            )
            assert contents(got.body) == contents(wanted.body)
            assert answered(broker) == before + number * (wanted.code == 0)


def test_the_next_request_sees_an_offset_that_a_lane_committed(broker: Broker) -> None:
    with Wire(broker.address) as wire:
        flags = COMMIT | SUBSCRIPTION
        for offset in range(1, 200):
            pull_in_lane(broker, wire, sysFlag=flags, commitOffset=offset)
            answer = wire.call(QUERY_OFFSET, FIELDS)
            assert answer.fields["offset"] == str(offset)
        # The loop's own commits come after those of the lane.
        pull(wire, sysFlag=flags, commitOffset=7, queueOffset=MESSAGES)
        assert wire.call(QUERY_OFFSET, FIELDS).fields["offset"] == "7"


def test_the_statistics_include_the_counts_of_lanes(broker: Broker) -> None:
    with Wire(broker.address) as wire:
        counter = broker.managers.stats.pull_counter("G", "T")
        wire.call(QUERY_OFFSET, FIELDS)  # the loop collects before it
        pulls, messages, size = counter.pulls, counter.messages, counter.size
        body = pull(wire, maxMsgNums=3).body
        body = pull_in_lane(broker, wire, maxMsgNums=3).body
        wire.call(QUERY_OFFSET, FIELDS)
        assert counter.pulls - pulls == 4
        assert counter.messages - messages == 12
        assert counter.size - size == 4 * len(body)


def contents(body: bytes) -> list[tuple[int, bytes, dict[str, str]]]:
    return [(each.queue_offset, each.body, each.properties) for each in decode_records(body)]


def topic(wire: Wire, name: str, perm: int) -> None:
    assert wire.call(UPDATE_TOPIC, CREATE | {"topic": name, "perm": str(perm)}).code == 0


def test_a_lane_refuses_pulls_after_the_topic_loses_read_permission(broker: Broker) -> None:
    with Wire(broker.address) as wire:
        create(broker, "P")
        send(wire, "P", 0, b"x")
        assert pull_in_lane(broker, wire, topic="P").code == 0
        topic(wire, "P", 2)
        assert pull(wire, topic="P").code == NO_PERMISSION
        topic(wire, "P", 6)
        assert pull_in_lane(broker, wire, topic="P").code == 0


def test_a_recreated_topic_has_no_message_of_the_deleted_one(broker: Broker) -> None:
    with Wire(broker.address) as wire:
        for body in (b"first", b"second"):
            create(broker, "D")
            send(wire, "D", 0, body)
            answer = pull_in_lane(broker, wire, topic="D")
            assert decode_record(answer.body).body == body
            assert wire.call(DELETE_TOPIC, {"topic": "D"}).code == 0
            assert pull(wire, topic="D").code == TOPIC_NOT_EXIST


def test_a_lane_refuses_pulls_after_the_group_is_disabled(broker: Broker) -> None:
    with Wire(broker.address) as wire:
        assert pull(wire, consumerGroup="H").code == 0  # makes the group
        assert pull_in_lane(broker, wire, consumerGroup="H").code == 0
        for enabled, code in (("false", NO_PERMISSION), ("true", 0)):
            body = b'{"groupName":"H","consumeEnable":%s}' % enabled.encode()
            assert wire.call(UPDATE_GROUP, {}, body).code == 0
            assert pull(wire, consumerGroup="H").code == code


def test_a_lane_refuses_pulls_after_the_broker_loses_read_permission(broker: Broker) -> None:
    with Wire(broker.address) as wire:
        assert pull_in_lane(broker, wire).code == 0
        assert wire.call(UPDATE_CONFIG, {}, b"brokerPermission=2").code == 0
        assert pull(wire).code == NO_PERMISSION
        assert wire.call(UPDATE_CONFIG, {}, b"brokerPermission=6").code == 0
        assert pull_in_lane(broker, wire).code == 0


def test_a_lane_refuses_filters_after_the_broker_disables_them(broker: Broker) -> None:
    request = {"expressionType": "SQL92", "subscription": "n >= 0", "subVersion": next(VERSIONS)}
    with Wire(broker.address) as wire:
        assert pull_in_lane(broker, wire, **request).code == 0
        assert wire.call(UPDATE_CONFIG, {}, b"enablePropertyFilter=false").code == 0
        assert pull(wire, **request).code != 0
        assert wire.call(UPDATE_CONFIG, {}, b"enablePropertyFilter=true").code == 0
        assert pull_in_lane(broker, wire, **request).code == 0


def test_a_slow_filter_does_not_block_its_lane(broker: Broker) -> None:
    count = 200
    expression = f"{'n < 0 OR ' * 50} n = {count - 1}"
    request = {"topic": "C", "expressionType": "SQL92", "subscription": expression}
    with Wire(broker.address) as wire:
        create(broker, "C")
        for number in range(count):
            send(wire, "C", 0, b"x", f"n\x01{number}")
        before = answered(broker)
        first = pull(wire, **request)  # compiles the filter
        assert answered(broker) == before + 1
        assert pull(wire, **request).body == first.body != b""
        assert answered(broker) == before + 1, "the loop answers it from now on"


def test_a_new_subscription_of_a_group_takes_effect_at_once(broker: Broker) -> None:
    with Wire(broker.address) as wire:
        sizes = []
        for version, wanted in enumerate(("A", "B", "*"), 1):
            subscription = {
                "topic": "T",
                "subString": wanted,
                "tagsSet": [] if wanted == "*" else [wanted],
                "codeSet": [] if wanted == "*" else [ord(wanted)],
                "subVersion": version,
                "expressionType": "TAG",
            }
            body = heartbeat("T", "S", subscriptionDataSet=[subscription])
            assert wire.call(HEART_BEAT, {}, body).code == 0
            answer = pull_in_lane(broker, wire, consumerGroup="S", sysFlag=0)
            sizes.append((answer.fields["nextBeginOffset"], len(answer.body)))
        assert len(set(sizes)) == 3


def test_a_lane_refuses_pulls_after_the_last_member_of_the_group_left(broker: Broker) -> None:
    with Wire(broker.address) as wire:
        with Wire(broker.address) as member:
            assert member.call(HEART_BEAT, {}, heartbeat("T", "L")).code == 0
            assert pull_in_lane(broker, wire, consumerGroup="L", sysFlag=0).code == 0
            assert member.call(35, {"clientID": "x", "consumerGroup": "L"}).code == 0
        assert pull(wire, consumerGroup="L", sysFlag=0).code != 0
