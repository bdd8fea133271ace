"""Consumers of gRPC: what they receive, and what becomes of it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from congreve.broker.broker import Broker
from congreve.broker.grpc.codecs.codes import Code
from congreve.broker.grpc.protocol.calls import SERVICE
from remoting.http2.built import needs_http2

from .clients import DELAY, MESSAGE_ID, METADATA, Client
from .test_door import create, serving, stored

pytestmark = needs_http2


class Consumer:
    """A simple consumer of one topic."""

    def __init__(self, made: Client, channel: grpc.Channel, topic: str, group: str = "g") -> None:
        self.protos = made.protos
        self.made = made
        self._channel = channel
        self.group = made.protos.Resource(name=group)
        self.topic = made.protos.Resource(name=topic)

    def receive(self, seconds: float = 10, **fields: Any) -> tuple[int, list[Any]]:
        """The status, and the messages."""
        answers = list(self.begin_receive(seconds, **fields))
        codes = [each.status.code for each in answers if each.HasField("status")]
        messages = [each.message for each in answers if each.HasField("message")]
        return codes[-1], messages

    def begin_receive(self, seconds: float, **fields: Any) -> Any:
        """A call of ReceiveMessage: iterate over its answers, or cancel it."""
        request = self.protos.ReceiveMessageRequest(group=self.group, batch_size=32)
        request.message_queue.topic.CopyFrom(self.topic)
        request.invisible_duration.FromSeconds(30)
        request.long_polling_timeout.FromMilliseconds(int(seconds * 1000))
        for name, value in fields.items():
            setattr(request, name, value)
        return self._channel.unary_stream(
            f"/{SERVICE}/ReceiveMessage",
            request_serializer=self.protos.ReceiveMessageRequest.SerializeToString,
            response_deserializer=self.protos.ReceiveMessageResponse.FromString,
        )(request, metadata=METADATA, timeout=seconds + 30)

    def ack(self, *messages: Any, topic: str = "") -> Any:
        """The answer to acknowledgements."""
        request = self.protos.AckMessageRequest(group=self.group, topic=self.topic)
        if topic:
            request.topic.name = topic
        for message in messages:
            system = message.system_properties
            request.entries.add(message_id=system.message_id, receipt_handle=system.receipt_handle)
        return self.made.call("AckMessage", request)

    def change(self, message: Any, milliseconds: int) -> Any:
        """The answer to a change of the invisible time."""
        request = self.protos.ChangeInvisibleDurationRequest(
            group=self.group,
            topic=self.topic,
            receipt_handle=message.system_properties.receipt_handle,
        )
        request.invisible_duration.FromMilliseconds(milliseconds)
        return self.made.call("ChangeInvisibleDuration", request)

    def forward(self, message: Any) -> Any:
        """The answer to a request to make a dead letter of a message."""
        system = message.system_properties
        request = self.protos.ForwardMessageToDeadLetterQueueRequest(
            group=self.group,
            topic=self.topic,
            receipt_handle=system.receipt_handle,
            message_id=system.message_id,
        )
        return self.made.call("ForwardMessageToDeadLetterQueue", request)


@contextmanager
def consuming(
    root: Path, topic: str = "Normal", **settings: Any
) -> Iterator[tuple[Broker, Client, Consumer]]:
    with (
        serving(root, **settings) as (broker, made),
        grpc.insecure_channel(f"127.0.0.1:{broker.config.grpc_port}") as channel,
    ):
        yield broker, made, Consumer(made, channel, topic)


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_what_is_sent_is_received_and_acknowledged_once(tmp_path: Path, flush: str) -> None:
    with consuming(tmp_path, flush=flush) as (_, made, consumer):
        message = made.message("Normal", b"text", tag="t", keys=["k1", "k2"])
        message.user_properties["colour"] = "blue"
        assert made.send(message).status.code == Code.OK
        code, (found,) = consumer.receive()
        assert code == Code.OK
        assert (found.topic.name, found.body, found.user_properties) == (
            "Normal",
            b"text",
            {"colour": "blue"},
        )
        system = found.system_properties
        assert (system.tag, list(system.keys), system.message_id, system.message_type) == (
            "t",
            ["k1", "k2"],
            message.system_properties.message_id,
            1,
        )
        assert system.body_digest.checksum == "1CB251EC0D568DE6A929B520C4AED8D1"
        assert (system.delivery_attempt, system.born_host) == (1, "host")
        answer = consumer.ack(found)
        assert answer.status.code == Code.OK, answer
        (entry,) = answer.entries
        assert entry.receipt_handle == system.receipt_handle
        assert consumer.ack(found).status.code == Code.OK, "an acknowledgement may be repeated"
        assert consumer.receive(0)[0] == Code.MESSAGE_NOT_FOUND


def test_a_poll_waits_and_a_change_brings_a_message_again(tmp_path: Path) -> None:
    with consuming(tmp_path) as (_, made, consumer):
        made.send(made.message("Normal"))
        _, (first,) = consumer.receive()
        changed = consumer.change(first, 2_000)
        assert changed.status.code == Code.OK
        assert changed.receipt_handle != first.system_properties.receipt_handle
        # The old handle is void.
        refused = consumer.ack(first)
        assert refused.status.code == Code.INVALID_RECEIPT_HANDLE
        assert refused.status.message == "INVALID_RECEIPT_HANDLE"
        assert "is not valid" in refused.entries[0].status.message
        code, (again,) = consumer.receive(20)
        assert code == Code.OK
        assert (again.topic.name, again.system_properties.delivery_attempt) == ("Normal", 2)
        assert consumer.ack(again).status.code == Code.OK


def test_lanes_serve_ordinary_consumers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> None:
        raise AssertionError("the event loop serves it")

    for method in ("Receiving.receive", "Settling.ack", "Settling.change"):
        module = "receive" if method.startswith("R") else "settle"
        monkeypatch.setattr(f"congreve.broker.grpc.{module}.{method}", fails)
    with consuming(tmp_path) as (_, made, consumer):
        for body in (b"first", b"second"):
            made.send(made.message("Normal", body))
        found: list[Any] = []
        while len(found) < 2:
            found += consumer.receive()[1]
        assert consumer.ack(found[0]).status.code == Code.OK
        changed = consumer.change(found[1], 0)
        assert changed.status.code == Code.OK
        _, (again,) = consumer.receive(20, auto_renew=True)
        assert (again.body, again.system_properties.delivery_attempt) == (found[1].body, 2)
        assert consumer.ack(again).status.code == Code.OK
        assert consumer.receive(0)[0] == Code.MESSAGE_NOT_FOUND


def test_9253_a_receive_that_was_cancelled_takes_nothing(tmp_path: Path) -> None:
    with consuming(tmp_path) as (broker, made, consumer):
        made.send(made.message("Normal", b"known"))
        consumer.ack(*consumer.receive()[1])  # from now on lanes serve the group
        cancelled = consumer.begin_receive(60)
        assert broker._paths is not None
        (lane,) = broker._paths.lanes
        limit = time.monotonic() + 60
        while not len(lane.pops.polling):
            assert time.monotonic() < limit, "the receive does not wait in its lane"
            time.sleep(0.01)
        cancelled.cancel()
        consumer.receive(0)  # the same connection has taken the cancel before
        made.send(made.message("Normal", b"text"))
        _, (found,) = consumer.receive()
        assert (found.body, found.system_properties.delivery_attempt) == (b"text", 1)


def test_handles_that_are_not_valid_are_refused_for_good(tmp_path: Path) -> None:
    with consuming(tmp_path) as (broker, made, consumer):
        create(broker, "Other")
        made.send(made.message("Normal"))
        _, (found,) = consumer.receive()
        assert consumer.ack(found, topic="Other").status.code == Code.INVALID_RECEIPT_HANDLE
        assert consumer.ack(found, topic="Absent").status.code == Code.INVALID_RECEIPT_HANDLE
        bad = made.protos.Message()
        for text in ("", "garbage", "0 1 2", "0 1 2 3 0 b 0 x 9", "0 1 2 0 0 b 0 999 0"):
            bad.system_properties.receipt_handle = text
            assert consumer.ack(bad).status.code == Code.INVALID_RECEIPT_HANDLE, text
            assert consumer.change(bad, 0).status.code == Code.INVALID_RECEIPT_HANDLE, text
        answer = consumer.ack(found, bad)
        assert answer.status.code == Code.MULTIPLE_RESULTS
        assert [each.status.code for each in answer.entries] == [
            Code.OK,
            Code.INVALID_RECEIPT_HANDLE,
        ]


def test_a_dead_letter_is_the_message_of_the_handle(tmp_path: Path) -> None:
    with consuming(tmp_path) as (broker, made, consumer):
        made.send(made.message("Normal", b"other"))
        made.send(made.message("Normal", b"dead"))
        found = {each.body: each for each in consumer.receive()[1]}
        while len(found) < 2:
            found |= {each.body: each for each in consumer.receive()[1]}
        assert consumer.forward(found[b"dead"]).status.code == Code.OK
        assert consumer.forward(found[b"dead"]).status.code == Code.INVALID_RECEIPT_HANDLE
        (place,) = stored(broker, "%DLQ%g")
        queue = broker.store.queues.get("%DLQ%g", place[0])
        at = broker.store.place_of(queue, place[1])
        assert at is not None
        assert b"dead" in bytes(broker.store.record_at(at))


def test_11049_messages_of_one_request_have_their_own_receipts(tmp_path: Path) -> None:
    with serving(tmp_path) as (broker, made):
        answer = made.send(*(made.message("Normal", b"%d" % number) for number in range(10)))
        assert answer.status.code == Code.OK
        assert [entry.status.code for entry in answer.entries] == [Code.OK] * 10
        assert len(stored(broker, "Normal")) == 10
        mixed = made.send(made.message("Normal"), made.message("Fifo"))
        assert mixed.status.code == Code.MESSAGE_CORRUPTED


def test_faults_of_receivers_have_their_codes(tmp_path: Path) -> None:
    with consuming(tmp_path) as (_, _, consumer):
        assert consumer.receive(0, batch_size=0)[0] == Code.BAD_REQUEST
        consumer.topic.name = "Absent"
        assert consumer.receive(0)[0] == Code.TOPIC_NOT_FOUND
        consumer.topic.name = "TBW102"
        assert consumer.receive(0)[0] == Code.ILLEGAL_TOPIC


def test_members_of_a_group_share_all_queues(tmp_path: Path) -> None:
    with serving(tmp_path) as (_, made):
        resource = made.protos.Resource
        request = made.protos.QueryAssignmentRequest(
            topic=resource(name="Normal"), group=resource(name="g")
        )
        answer = made.call("QueryAssignment", request)
        assert answer.status.code == Code.OK
        (one,) = answer.assignments
        assert (one.message_queue.id, one.message_queue.broker.name) == (-1, "b")


def test_a_delayed_message_that_is_recalled_does_not_come(tmp_path: Path) -> None:
    with consuming(tmp_path, topic="Delay") as (_, made, consumer):
        due_ms = time.time_ns() // 1_000_000 + 3_000
        handles = []
        for body in (b"recalled", b"comes"):
            message = made.message(
                "Delay", body, message_type=DELAY, delivery_timestamp=due_ms + len(handles)
            )
            answer = made.send(message)
            assert answer.status.code == Code.OK, answer
            handles.append(answer.entries[0].recall_handle)
        request = consumer.protos.RecallMessageRequest(
            topic=consumer.topic, recall_handle=handles[0]
        )
        answer = made.call("RecallMessage", request)
        assert (answer.status.code, answer.message_id) == (Code.OK, MESSAGE_ID)
        _, (found,) = consumer.receive(20)
        assert found.body == b"comes"
        assert consumer.receive(0)[0] == Code.MESSAGE_NOT_FOUND
