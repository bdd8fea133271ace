"""Groups whose members receive messages in order (spec: RocketMQ 5.5's consumeMessageOrderly)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness.wire import Wire

from congreve.broker.broker import Broker
from congreve.broker.grpc.codecs.codes import Code
from remoting.http2.built import needs_http2

from .clients import FIFO, Client
from .test_door import serving, stored

pytestmark = needs_http2

CREATE_GROUP = 200


@contextmanager
def ordered(root: Path, attempts: int = 17) -> Iterator[tuple[Broker, Client]]:
    """A broker with the ordered group g, and three messages of each of two message groups, which
    are in different queues."""
    with serving(root) as (broker, made):
        group = b'{"groupName":"g","consumeMessageOrderly":true,"retryMaxTimes":%d}' % (
            attempts - 1
        )
        with Wire(broker.address) as wire:
            assert wire.call(CREATE_GROUP, {}, group).code == 0
        for number in range(3):
            for name in ("a", "c"):
                message = made.message(
                    *("Fifo", b"%s%d" % (name.encode(), number)),
                    message_type=FIFO,
                    message_group=name,
                )
                assert made.send(message).status.code == Code.OK
        assert len({queue_id for queue_id, _ in stored(broker, "Fifo")}) == 2
        yield broker, made


def receive(made: Client, topic: str = "Fifo", **fields: Any) -> list[Any]:
    """The messages that a receive of ten gets, without waiting."""
    p = made.protos
    request = p.ReceiveMessageRequest(
        group=p.Resource(name="g"),
        message_queue=p.MessageQueue(topic=p.Resource(name=topic), id=-1),
        batch_size=fields.pop("batch_size", 10),
        invisible_duration={"seconds": 60},
        long_polling_timeout={"seconds": fields.pop("poll", 0)},
        **fields,
    )
    answers = list(made.stream("ReceiveMessage", request))
    messages = [each.message for each in answers if each.WhichOneof("content") == "message"]
    (status,) = [each.status for each in answers if each.WhichOneof("content") == "status"]
    assert (status.code == Code.OK) is bool(messages), status
    return messages


def shown(messages: list[Any]) -> list[tuple[bytes, int]]:
    """The bodies, and which delivery of each it is."""
    return [(each.body, each.system_properties.delivery_attempt) for each in messages]


def acknowledge(made: Client, message: Any, topic: str = "Fifo") -> None:
    p, system = made.protos, message.system_properties
    request = p.AckMessageRequest(group=p.Resource(name="g"), topic=p.Resource(name=topic))
    request.entries.add(message_id=system.message_id, receipt_handle=system.receipt_handle)
    assert made.call("AckMessage", request).status.code == Code.OK


def return_at_once(made: Client, message: Any) -> None:
    p, system = made.protos, message.system_properties
    request = p.ChangeInvisibleDurationRequest(
        group=p.Resource(name="g"),
        topic=p.Resource(name="Fifo"),
        receipt_handle=system.receipt_handle,
        message_id=system.message_id,
        invisible_duration={"nanos": 1_000_000},
    )
    assert made.call("ChangeInvisibleDuration", request).status.code == Code.OK


def test_one_batch_of_a_queue_and_so_of_a_message_group_is_out(tmp_path: Path) -> None:
    with ordered(tmp_path) as (_, made):
        first = receive(made, batch_size=2)
        name = first[0].body[:1]
        other = b"c" if name == b"a" else b"a"
        assert shown(first) == [(name + b"0", 1), (name + b"1", 1)]
        # The other queue is free; a batch of each is out then.
        assert shown(receive(made)) == [(other + b"%d" % number, 1) for number in range(3)]
        assert receive(made) == []
        acknowledge(made, first[1])
        assert receive(made) == []
        acknowledge(made, first[0])
        (last,) = receive(made)
        assert shown([last]) == [(name + b"2", 1)]
        acknowledge(made, last)
        assert receive(made) == []


def test_order_holds_through_redelivery(tmp_path: Path) -> None:
    with ordered(tmp_path) as (_, made):
        name, both = b"a", receive(made)
        batch = [message for message in both if message.body.startswith(name)]
        for message in both:
            if message not in batch:
                acknowledge(made, message)
        acknowledge(made, batch[0])
        acknowledge(made, batch[2])
        return_at_once(made, batch[1])
        # What was acknowledged behind it comes again behind it; then all are settled.
        again = receive(made, batch_size=3, poll=5)
        bodies = [body for body, _ in shown(again) if body.startswith(name)]
        assert bodies in ([name + b"1"], [name + b"1", name + b"2"])
        assert shown(again)[0] == (name + b"1", 2)
        for message in again:
            acknowledge(made, message)
        left = receive(made)
        assert not [body for body, _ in shown(left) if body.startswith(name)]


def test_10827_1321_a_lost_answer_is_given_again_to_the_same_attempt(tmp_path: Path) -> None:
    with ordered(tmp_path) as (_, made):
        first = receive(made, attempt_id="one")
        assert len(first) == 6
        again = receive(made, attempt_id="one")
        assert sorted(shown(again)) == sorted(shown(first))
        assert receive(made, attempt_id="two") == []
        for message in again:
            acknowledge(made, message)


def test_a_dead_letter_follows_the_last_attempt(tmp_path: Path) -> None:
    with ordered(tmp_path, attempts=2) as (broker, made):
        batch = {message.body: message for message in receive(made, attempt_id="1")}
        assert len(batch) == 6
        message = batch.pop(b"a0")
        for other in batch.values():
            acknowledge(made, other)
        return_at_once(made, message)
        (message,) = receive(made, poll=5, attempt_id="2")
        assert shown([message]) == [(b"a0", 2)]
        return_at_once(made, message)
        assert receive(made, poll=1, attempt_id="3") == []
        (dead,) = receive(made, "%DLQ%g")
        assert dead.body == b"a0"
        assert dead.system_properties.dead_letter_queue.topic == "Fifo"
        assert broker.store.max_offset("%DLQ%g", 0) == 1
