"""Lite topics: who gets which messages, in which order, and what is refused."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from harness.stores.killed_store import copy_running
from harness.wire import Wire

from congreve.base.clock import Clock, ManualClock
from congreve.broker.broker import Broker
from congreve.broker.grpc.codecs.codes import Code
from congreve.broker.metrics.pop_names import PopNames
from congreve.remoting.messages.codes import RequestCode
from remoting.http2.built import needs_http2

from .clients import Client, open_telemetry
from .test_door import create, serving, stored

pytestmark = needs_http2

PARENT = "Lite"
LITE, LITE_PUSH_CONSUMER = 5, 5
ADD, REMOVE, ALL_OF, NONE = 0, 1, 2, 3
FIRST, END = 1, 2


def make_group(broker: Broker, name: str, **attributes: str) -> None:
    """Create a group that consumes lite topics of PARENT; keys have _ instead of a dot."""
    named = {"lite_bind_topic": PARENT} | attributes
    body = {
        "groupName": name,
        "consumeEnable": True,
        "consumeFromMinEnable": True,
        "retryQueueNums": 1,
        "retryMaxTimes": 2,
        "attributes": {"+" + key.replace("_", "."): value for key, value in named.items()},
    }
    with Wire(broker.address) as wire:
        answer = wire.call(200, {}, json.dumps(body).encode())
        assert answer.code == 0, answer


class LiteConsumer:
    """A member of a group with an open Telemetry."""

    def __init__(self, made: Client, name: str, group: str) -> None:
        self.protos = made.protos
        self.made = made
        self.metadata = (
            ("x-mq-client-id", name),
            ("x-mq-language", "PYTHON"),
            ("x-mq-client-version", "5.1.2"),
        )
        self.group = made.protos.Resource(name=group)
        self.topic = made.protos.Resource(name=PARENT)

    def settings(self) -> Any:
        settings = self.protos.Settings(client_type=LITE_PUSH_CONSUMER)
        settings.subscription.group.CopyFrom(self.group)
        settings.subscription.subscriptions.add().topic.CopyFrom(self.topic)
        return settings

    def sync(self, action: int, *names: str, **fields: Any) -> Any:
        """The status of a change of the subscription."""
        request = self.protos.SyncLiteSubscriptionRequest(
            action=action, group=self.group, topic=self.topic, lite_topic_set=names
        )
        for name, value in fields.items():
            setattr(request.offset_option, name, value)
        return self.made.call("SyncLiteSubscription", request, self.metadata).status

    def receive(self, seconds: float = 10, **fields: Any) -> tuple[int, list[Any]]:
        """The status, and the messages."""
        request = self.protos.ReceiveMessageRequest(group=self.group, batch_size=32)
        request.message_queue.topic.CopyFrom(self.topic)
        request.invisible_duration.FromSeconds(10)
        request.long_polling_timeout.FromMilliseconds(int(seconds * 1000))
        for name, value in fields.items():
            setattr(request, name, value)
        answers = list(self.made.stream("ReceiveMessage", request, self.metadata, seconds + 30))
        codes = [each.status.code for each in answers if each.HasField("status")]
        return codes[-1], [each.message for each in answers if each.HasField("message")]

    def ack(self, *messages: Any) -> int:
        """The code of the answer to acknowledgements."""
        request = self.protos.AckMessageRequest(group=self.group, topic=self.topic)
        for message in messages:
            system = message.system_properties
            request.entries.add(
                message_id=system.message_id,
                receipt_handle=system.receipt_handle,
                lite_topic=system.lite_topic or None,
            )
        return int(self.made.call("AckMessage", request, self.metadata).status.code)

    def change(self, message: Any, milliseconds: int) -> int:
        """The code of the answer to a change of the invisible time."""
        system = message.system_properties
        request = self.protos.ChangeInvisibleDurationRequest(
            group=self.group,
            topic=self.topic,
            receipt_handle=system.receipt_handle,
            lite_topic=system.lite_topic or None,
        )
        request.invisible_duration.FromMilliseconds(milliseconds)
        return int(self.made.call("ChangeInvisibleDuration", request, self.metadata).status.code)

    def forward(self, message: Any) -> int:
        """The code of the answer to a request to make a dead letter of a message."""
        system = message.system_properties
        request = self.protos.ForwardMessageToDeadLetterQueueRequest(
            group=self.group,
            topic=self.topic,
            receipt_handle=system.receipt_handle,
            message_id=system.message_id,
            lite_topic=system.lite_topic,
        )
        return int(
            self.made.call("ForwardMessageToDeadLetterQueue", request, self.metadata).status.code
        )


@contextmanager
def lites(root: Path, attributes: str = "", **settings: Any) -> Iterator[tuple[Broker, Client]]:
    with serving(root, **settings) as (broker, made):
        create(broker, PARENT, f"+message.type=LITE{attributes}")
        make_group(broker, "g")
        yield broker, made


@contextmanager
def member(made: Client, name: str = "c1", group: str = "g") -> Iterator[LiteConsumer]:
    consumer = LiteConsumer(made, name, group)
    with open_telemetry(made, consumer.settings(), consumer.metadata) as commands:
        consumer.commands = commands
        yield consumer


def send(made: Client, name: str, body: str = "body") -> int:
    answer = made.send(made.message(PARENT, body.encode(), message_type=LITE, lite_topic=name))
    return int(answer.status.code)


def expire(broker: Broker) -> None:
    """Let the event loop look for idle lite topics."""

    assert broker._thread is not None
    broker._thread.run(broker.managers.lites.topics.expire())


def bodies(messages: list[Any]) -> list[str]:
    return [each.body.decode() for each in messages]


def test_a_message_of_a_lite_topic_comes_to_its_subscriber_once(tmp_path: Path) -> None:
    with lites(tmp_path) as (broker, made), member(made) as consumer:
        assert consumer.sync(ADD, "l1").code == Code.OK
        assert send(made, "l1", "one") == send(made, "l2", "other") == Code.OK
        code, (found,) = consumer.receive()
        assert code == Code.OK
        system = found.system_properties
        assert (found.topic.name, found.body, system.lite_topic) == (PARENT, b"one", "l1")
        assert (system.message_type, system.delivery_attempt) == (LITE, 1)
        assert consumer.ack(found) == Code.OK
        assert consumer.ack(found) == Code.OK, "an acknowledgement may be repeated"
        assert consumer.receive(0)[0] == Code.MESSAGE_NOT_FOUND
        # What was sent before a subscription comes, too.
        assert consumer.sync(ADD, "l2").code == Code.OK
        assert bodies(consumer.receive()[1]) == ["other"]
        assert len(stored(broker, PARENT)) == 2


def test_messages_of_a_lite_topic_come_in_order_and_again_in_place(tmp_path: Path) -> None:
    with lites(tmp_path) as (_, made), member(made) as consumer:
        consumer.sync(ADD, "l1")
        for number in range(5):
            send(made, "l1", str(number))
        _, first = consumer.receive(batch_size=2)
        assert bodies(first) == ["0", "1"]
        assert consumer.receive(0)[0] == Code.MESSAGE_NOT_FOUND, "two of its messages are out"
        assert consumer.ack(first[0]) == Code.OK
        assert consumer.change(first[1], 1_000) == Code.OK
        _, again = consumer.receive(batch_size=2)
        assert bodies(again) == ["1"]
        assert again[0].system_properties.delivery_attempt == 2
        assert consumer.ack(again[0]) == Code.OK
        assert bodies(consumer.receive()[1]) == ["2", "3", "4"]


def test_a_handle_is_enough_without_the_lite_topic(tmp_path: Path) -> None:
    with lites(tmp_path) as (_, made), member(made) as consumer:
        consumer.sync(ADD, "l1")
        send(made, "l1", "one")
        _, (found,) = consumer.receive()
        found.system_properties.ClearField("lite_topic")
        assert consumer.change(found, 500) == Code.OK  # Java's client 5.2 names none
        _, (found,) = consumer.receive()
        found.system_properties.ClearField("lite_topic")
        assert consumer.ack(found) == Code.OK
        assert consumer.receive(2)[0] == Code.MESSAGE_NOT_FOUND


def test_a_message_that_is_never_acknowledged_becomes_a_dead_letter(tmp_path: Path) -> None:
    with lites(tmp_path) as (broker, made), member(made) as consumer:
        consumer.sync(ADD, "l1")
        send(made, "l1", "bad")
        send(made, "l1", "good")
        for attempt in (1, 2, 3):
            _, found = consumer.receive(batch_size=1)
            assert (bodies(found), found[0].system_properties.delivery_attempt) == (
                ["bad"],
                attempt,
            )
            assert consumer.change(found[0], 300) == Code.OK
        _, found = consumer.receive(batch_size=1)
        assert bodies(found) == ["good"]
        assert consumer.forward(found[0]) == Code.OK
        assert broker.store.max_offset("%DLQ%g", 0) == 2
        assert consumer.receive(0)[0] == Code.MESSAGE_NOT_FOUND


def test_of_an_exclusive_group_the_last_subscriber_has_the_lite_topic(tmp_path: Path) -> None:
    with lites(tmp_path) as (broker, made):
        make_group(broker, "g", lite_sub_model="Exclusive")
        with member(made, "c1") as first, member(made, "c2") as second:
            first.sync(ADD, "l1", "l2")
            second.sync(ADD, "l1")
            evicted = next(first.commands)
            assert evicted.notify_unsubscribe_lite_command.lite_topic == "l1"
            first.sync(ALL_OF, "l1", "l2")  # it has not learned of it
            send(made, "l1", "one")
            send(made, "l2", "two")
            assert bodies(second.receive()[1]) == ["one"]
            assert bodies(first.receive()[1]) == ["two"]


def test_of_a_shared_group_one_subscriber_gets_a_message(tmp_path: Path) -> None:
    with lites(tmp_path) as (_, made), member(made, "c1") as first, member(made, "c2") as second:
        first.sync(ADD, "l1")
        second.sync(ADD, "l1")
        send(made, "l1", "one")
        code, found = first.receive()
        assert (code, bodies(found)) == (Code.OK, ["one"])
        assert second.receive(0)[0] == Code.MESSAGE_NOT_FOUND
        assert first.ack(*found) == Code.OK
        send(made, "l1", "two")
        assert bodies(second.receive()[1]) == ["two"]


def test_groups_have_a_lite_topic_each_for_themselves(tmp_path: Path) -> None:
    with lites(tmp_path) as (broker, made):
        make_group(broker, "h")
        send(made, "l1", "one")
        with member(made, "c1") as first, member(made, "c2", "h") as second:
            first.sync(ADD, "l1")
            second.sync(ADD, "l1")
            assert bodies(first.receive()[1]) == bodies(second.receive()[1]) == ["one"]


def test_a_subscription_is_replaced_and_ends(tmp_path: Path) -> None:
    with lites(tmp_path) as (_, made), member(made) as consumer:
        consumer.sync(ADD, "l1", "l2")
        consumer.sync(ALL_OF, "l2", "l3")
        for name in ("l1", "l2", "l3"):
            send(made, name, name)
        found = [*consumer.receive()[1], *consumer.receive(0)[1]]
        assert sorted(bodies(found)) == ["l2", "l3"]
        assert consumer.ack(*found) == Code.OK
        consumer.sync(REMOVE, "l2")
        send(made, "l2", "later")
        assert consumer.receive(0)[0] == Code.MESSAGE_NOT_FOUND
        assert consumer.sync(NONE).code == Code.OK
        send(made, "l3", "later")
        assert consumer.receive(0)[0] == Code.MESSAGE_NOT_FOUND


@pytest.mark.parametrize(
    ("option", "wanted"),
    [
        ({"policy": FIRST}, ["0", "1", "2", "3"]),
        ({"policy": END}, []),
        ({"tail_n": 2}, ["0", "1", "2", "3"]),  # of a group without a place there
        ({"timestamp": 0}, ["0", "1", "2", "3"]),
        ({"timestamp": 1 << 50}, []),
    ],
)
def test_a_group_begins_where_it_wants_to(
    tmp_path: Path, option: dict[str, int], wanted: list[str]
) -> None:
    with lites(tmp_path) as (_, made), member(made) as consumer:
        for number in range(4):
            send(made, "l1", str(number))
        consumer.sync(ADD, "l1", **option)
        assert bodies(consumer.receive(0)[1]) == wanted


def test_a_group_goes_back_by_messages_and_by_offset(tmp_path: Path) -> None:
    with lites(tmp_path) as (_, made), member(made) as consumer:
        consumer.sync(ADD, "l1")
        for number in range(4):
            send(made, "l1", str(number))
        _, found = consumer.receive()
        assert consumer.ack(*found) == Code.OK
        consumer.sync(ADD, "l1", tail_n=2)
        _, again = consumer.receive()
        assert bodies(again) == ["2", "3"]
        assert consumer.ack(*again) == Code.OK
        consumer.sync(ADD, "l1", offset=found[1].system_properties.queue_offset)
        assert bodies(consumer.receive()[1]) == ["1", "2", "3"]


def test_a_restart_keeps_how_far_a_group_has_come(tmp_path: Path) -> None:
    with lites(tmp_path) as (_, made), member(made) as consumer:
        consumer.sync(ADD, "l1", "l2")
        for name in ("l1", "l2"):
            send(made, name, name + " 1")
            send(made, name, name + " 2")
        found = sorted(
            [*consumer.receive()[1], *consumer.receive(0)[1]], key=lambda each: each.body
        )
        assert bodies(found) == ["l1 1", "l1 2", "l2 1", "l2 2"]
        assert consumer.ack(found[0], found[1], found[2]) == Code.OK
    with serving(tmp_path) as (broker, made), member(made) as consumer:
        assert len(broker.managers.lites.topics) == 2
        consumer.sync(ALL_OF, "l1", "l2")
        send(made, "l1", "l1 3")
        _, found = consumer.receive()
        assert bodies(found) == ["l1 3"]
        assert bodies(consumer.receive(20)[1]) == ["l2 2"]


def test_10894_10962_quotas_and_faults_have_their_codes(tmp_path: Path) -> None:
    limits = {"max_lmq_consume_queue_num": 3, "max_lite_subscription_count": 6}
    with lites(tmp_path) as (broker, made), member(made) as consumer:
        for name, value in limits.items():
            setattr(broker.config.limits, name, value)
        make_group(broker, "g", lite_sub_client_quota="4")
        assert send(made, "a b") == Code.ILLEGAL_LITE_TOPIC
        assert send(made, "x" * 65) == Code.ILLEGAL_LITE_TOPIC
        assert send(made, "x" * 64) == Code.OK
        normal = made.send(made.message("Normal", message_type=LITE, lite_topic="l1"))
        assert normal.status.code == Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
        none = made.send(made.message(PARENT))
        assert none.status.code == Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
        assert consumer.sync(ADD, "a b").code == Code.ILLEGAL_LITE_TOPIC
        quota = Code.LITE_SUBSCRIPTION_QUOTA_EXCEEDED
        assert consumer.sync(ADD, *"12345").code == quota
        assert consumer.sync(ADD, *"1234").code == Code.OK
        assert consumer.sync(ADD, *"56").code == quota
        assert consumer.sync(REMOVE, *"1234567").code == Code.OK, "a removal is never refused"
        with member(made, "c2") as second:
            assert consumer.sync(ALL_OF, *"1234").code == Code.OK
            assert second.sync(ALL_OF, *"123").code == quota
            assert second.sync(ALL_OF, *"12").code == Code.OK
        consumer.topic.name = "Normal"
        wrong = consumer.sync(ADD, "l1")
        assert (wrong.code, wrong.message) == (
            Code.ILLEGAL_TOPIC,
            f"lite group g is expected to bind topic {PARENT}, but actual is Normal",
        )
        consumer.topic.name, consumer.group.name = PARENT, "absent"
        broker.config.auto_create_subscription_group = False
        absent = consumer.sync(ADD, "l1")
        assert (absent.code, absent.message) == (
            Code.ILLEGAL_CONSUMER_GROUP,
            "group not found: absent",
        )
        stranger = LiteConsumer(made, "stranger", "g")
        refused = stranger.sync(ADD, "l1")
        assert (refused.code, refused.message) == (
            Code.BAD_REQUEST,
            "The client [stranger] is disconnected.",
        )
        assert stranger.receive(0)[0] == Code.BAD_REQUEST


def test_no_lite_topic_is_created_beyond_the_limit(tmp_path: Path) -> None:
    with lites(tmp_path) as (broker, made):
        broker.config.limits.max_lmq_consume_queue_num = 3
        for name in ("l1", "l2", "l3"):
            assert send(made, name) == Code.OK
        time.sleep(0.5)  # the index follows the queue
        assert send(made, "l4") == Code.LITE_TOPIC_QUOTA_EXCEEDED
        assert send(made, "l1") == Code.OK


def test_a_client_has_a_limit_of_unacknowledged_messages(tmp_path: Path) -> None:
    with lites(tmp_path) as (_, made), member(made) as consumer:
        for number in range(110):
            send(made, f"l{number}")
        consumer.sync(ADD, *(f"l{number}" for number in range(110)))
        count = 0
        while count <= 100:
            code, found = consumer.receive()
            assert code == Code.OK
            count += len(found)
        assert consumer.receive(0)[0] == Code.FORBIDDEN


def test_an_idle_lite_topic_is_deleted(tmp_path: Path) -> None:
    with lites(tmp_path, ",+lite.topic.expiration=20") as (broker, made):
        send(made, "l1")
        with member(made) as consumer:
            consumer.sync(ADD, "l1")
            assert consumer.ack(*consumer.receive()[1]) == Code.OK
            broker.managers.lites.topics._clock = later = ManualClock(Clock().now())
            for minutes, left in ((19, 1), (2, 0)):
                later.advance(minutes * 60_000)
                consumer.sync(NONE)  # the loop has turned
                expire(broker)
                assert len(broker.managers.lites.topics) == left
                assert len(broker.managers.pops.in_flight.all_windows()) == left


def test_the_end_of_the_parent_is_that_of_its_lite_topics(tmp_path: Path) -> None:
    with lites(tmp_path) as (broker, made):
        send(made, "l1")
        with member(made) as consumer:
            consumer.sync(ADD, "l1")
            assert bodies(consumer.receive()[1]) == ["body"]
            with Wire(broker.address) as wire:
                assert wire.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": PARENT}).code == 0
            assert not broker.managers.pops.in_flight.all_windows()
            assert len(broker.managers.lites.topics) == 0


def test_lite_topics_are_counted_for_their_parent(tmp_path: Path) -> None:
    with lites(tmp_path) as (broker, made):
        names = ["l1", "l2"]
        for name in names:
            send(made, name)
        with member(made) as consumer:
            consumer.sync(ADD, *names)
            assert len(consumer.receive()[1]) == 2
            pops = broker.managers.pops
            families = PopNames(pops, broker.store, lambda: 10).families()
            found = {each.name: each.samples for each in families if each is not None}
    [(labels, out)] = found["congreve_pop_in_flight"]
    assert PARENT in labels
    assert out == 2


def test_a_group_of_all_lite_topics_is_refused(tmp_path: Path) -> None:
    with lites(tmp_path) as (broker, made), member(made) as consumer:
        make_group(broker, "g", lite_sub_wildcard="true")
        refused = consumer.sync(ALL_OF)
        assert refused.code == Code.NOT_IMPLEMENTED
        assert "lite.sub.wildcard" in refused.message


def test_after_a_kill_all_messages_and_places_are_there(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with lites(root) as (broker, made), member(made) as consumer:
        for number in range(200):
            send(made, f"l{number}", str(number))
        consumer.sync(ADD, "l1", "l2", "l3")
        found = [*consumer.receive()[1], *consumer.receive(0)[1]]
        assert sorted(bodies(found)) == ["1", "2", "3"]
        done = [each for each in found if each.body != b"3"]
        assert consumer.ack(*done) == Code.OK
        broker.store.wait_durable(broker.store.log.max_offset, 20)
        copy_running(root, tmp_path / "killed")
    with serving(tmp_path / "killed") as (broker, made), member(made) as consumer:
        assert len(broker.managers.lites.topics) == 200
        consumer.sync(ALL_OF, "l1", "l2", "l3", "l4")
        again = [*consumer.receive()[1], *consumer.receive(20)[1]]
        assert sorted(bodies(again)) == ["3", "4"], "what was acknowledged does not come again"
