"""``congreve why``: what brokers and members say, in words."""

import json
import threading
import time

import pytest

from congreve.client import Message, SyncProducer, SyncPushConsumer
from congreve.client.admin.groups import QueueLag
from congreve.client.settings import ConsumeFrom
from congreve.console.cluster.causes import Cause, GroupState, Member, causes_of
from congreve.remoting.messages.admin_bodies import (
    ConsumerRunningInfo,
    ConsumeStatus,
    ProcessQueueInfo,
)
from congreve.remoting.messages.body import MessageQueue
from tests.console.conftest import congreve

NOW_MS = 1_800_000_000_000


def queue(lag: int = 0, queue_id: int = 0, topic: str = "T", **fields: int) -> QueueLag:
    return QueueLag(topic, "b", queue_id, 100 - lag, 100, lag, 3_000 * lag, 0, **fields)


def holding(*queue_ids: int, transport: str = "remoting", **of_queue: int) -> Member:
    """A member with queues of T."""
    info = ConsumerRunningInfo(
        mq_table={
            MessageQueue(topic="T", broker_name="b", queue_id=each): ProcessQueueInfo(**of_queue)
            for each in queue_ids
        }
    )
    return Member("c", transport, info)


def said(state: GroupState) -> str:
    return "\n".join(cause.what for cause in causes_of(state, NOW_MS))


def test_a_group_without_a_lag_says_so() -> None:
    state = GroupState("g", [queue(), queue(queue_id=1)], [Member("c", "grpc")])
    assert causes_of(state, NOW_MS) == [
        Cause("the group has consumed all that its 2 queues have"),
        Cause("1 member is connected, by grpc"),
    ]


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"members": []}, "no member is connected"),
        ({"queues": []}, "no broker has an offset of the group"),
        ({"silent": ["b"]}, "broker b does not answer"),
        ({"disabled_at": ["b"]}, "the group may not consume at broker b"),
        ({"unreadable": [("T", "b")]}, "topic T may not be read at broker b"),
        ({"broadcast": True}, "no broker knows them"),
        ({"queues": [queue(5, in_flight=2, in_flight_ms=9_000)]}, "members have 2 and have not"),
        ({"queues": [queue(5, topic="%RETRY%g")]}, "5 of them are retries"),
        (
            {"members": [Member("c", "remoting"), Member("d", "grpc")]},
            "2 members are connected: 1 by grpc, 1 by remoting",
        ),
        ({"subscriptions": {"b": {"T": "x"}, "c": {"T": "y"}}}, "in different ways: x, y"),
        ({"subscriptions": {"b": {"U": "*"}}}, "no member subscribes to T"),
        ({"members": [holding(1)]}, "no member has queue 0 of T at b"),
        ({"rates": {"T": (5.0, 2.0)}}, "5.0 messages of T come a second, and the group gets 2.0"),
        ({"rates": {"T": (2.0, 4.5)}}, "it has caught up in 2.0 s"),
        (
            {
                "members": [
                    holding(
                        *(0,),
                        cached_msg_count=7,
                        cached_msg_min_offset=95,
                        last_consume_timestamp=NOW_MS - 300_000,
                    )
                ]
            },
            "c has 7 messages of queue 0 of T at b in memory, and has finished none for 5 minutes:"
            " it is at offset 95",
        ),
        (
            {"members": [holding(0, last_pull_timestamp=NOW_MS - 180_000)]},
            "c has not pulled queue 0 of T at b for 3 minutes",
        ),
    ],
)
def test_each_cause_is_a_sentence(changed: dict[str, object], sentence: str) -> None:
    fields: dict[str, object] = {"queues": [queue(5)], "members": [holding(0)], **changed}
    state = GroupState("g", **fields)  # type: ignore[arg-type]
    assert sentence in said(state)
    usual = GroupState("g", [queue(5)], [holding(0)])
    assert sentence not in said(usual)


def test_listeners_that_are_slow_or_fail_are_named() -> None:
    member = holding(0)
    assert member.info is not None
    member.info.status_table = {
        "T": ConsumeStatus(consume_rt=1_500.0, consume_ok_tps=0.6, consume_failed_tps=0.2)
    }
    member.info.properties = {"PROP_CONSUMEORDERLY": "true"}
    text = said(GroupState("g", [queue(5)], [member]))
    assert "takes 1,500 ms in the listener of c, which consumes 0.6 a second" in text
    assert "c fails 0.2 messages of T a second" in text
    assert "does not hold the lock of queue 0" in text


def test_a_member_that_waits_is_asked(namesrv: str) -> None:
    assert "no broker knows a group Later" in congreve("why", "Later", "-n", namesrv).stderr
    ended, begun = threading.Event(), threading.Event()

    def listener(_: object) -> None:
        begun.set()
        ended.wait(60)

    with SyncProducer(namesrv, group="writers") as producer:
        for number in range(8):
            producer.send(Message(topic="waiting", body=b"%d" % number))
    with SyncPushConsumer(
        namesrv,
        group="Late",
        topics={"waiting": "*"},
        listener=listener,
        consume_from=ConsumeFrom.FIRST_OFFSET,
    ):
        try:
            assert begun.wait(60)
            deadline = time.monotonic() + 60
            found = ["no broker has an offset of the group"]
            while found[0].startswith("no broker"):  # members commit every 5 s
                assert time.monotonic() < deadline
                run = congreve("why", "Late", "-n", namesrv, "--output", "json")
                assert run.returncode == 0, run.stderr
                found = [row["cause"] for row in json.loads(run.stdout)]
            assert found[0].startswith("8 messages are not consumed, in ")
            assert found[1] == "1 member is connected, by remoting"
        finally:
            ended.set()
    congreve("group", "create", "Late", "--disable", "-n", namesrv)
    shown = congreve("why", "Late", "-n", namesrv).stdout
    assert "the group may not consume at broker" in shown
    assert "\n  allow it: `congreve group create Late --enable`\n" in shown
