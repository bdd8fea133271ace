"""Calls of clients that keep offsets: PullMessage, UpdateOffset, GetOffset, QueryOffset."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from harness.wire import Wire

from congreve.broker.grpc.codecs.codes import Code
from remoting.http2.built import needs_http2

from .clients import Client
from .test_access import guarded, signed
from .test_door import serving, stored

pytestmark = needs_http2

QUERY_CONSUMER_OFFSET = 14
BEGINNING, END, TIMESTAMP = 0, 1, 2


def queue(made: Client, queue_id: int = 0, topic: str = "Normal") -> Any:
    return made.protos.MessageQueue(topic=made.protos.Resource(name=topic), id=queue_id)


def asked(made: Client, offset: int, queue_id: int = 0, **fields: Any) -> Any:
    return made.protos.PullMessageRequest(
        group=made.protos.Resource(name="g"),
        message_queue=queue(made, queue_id, fields.pop("topic", "Normal")),
        offset=offset,
        batch_size=fields.pop("size", 32),
        **fields,
    )


def pull(made: Client, offset: int, queue_id: int = 0, **fields: Any) -> tuple[int, list[Any], int]:
    """The code, the messages and the next offset of a pull."""
    answers = list(made.stream("PullMessage", asked(made, offset, queue_id, **fields)))
    messages = [each.message for each in answers if each.WhichOneof("content") == "message"]
    assert answers[0].WhichOneof("content") == "status"
    return answers[0].status.code, messages, answers[-1].next_offset


def fill(made: Client, count: int, **fields: Any) -> None:
    """Messages of one group are in one queue."""
    for number in range(count):
        message = made.message("Fifo", b"%d" % number, message_type=2, message_group="g", **fields)
        assert made.send(message).status.code == Code.OK


def test_messages_are_pulled_from_any_offset(tmp_path: Path) -> None:
    with serving(tmp_path) as (broker, made):
        fill(made, 5, tag="a")
        fill(made, 1, tag="b")
        ((queue_id, _), *_) = stored(broker, "Fifo")
        where = {"queue_id": queue_id, "topic": "Fifo"}
        code, messages, next_offset = pull(made, 1, size=3, **where)
        assert (code, next_offset) == (Code.OK, 4)
        assert [each.body for each in messages] == [b"1", b"2", b"3"]
        system = messages[0].system_properties
        assert (system.queue_offset, system.tag, system.delivery_attempt) == (1, "a", 1)
        assert not system.HasField("receipt_handle")
        only = {"type": 1, "expression": "b"}
        code, (found,), next_offset = pull(made, 0, filter_expression=only, **where)
        assert (code, found.system_properties.tag, next_offset) == (Code.OK, "b", 6)
        assert pull(made, 6, **where) == (Code.MESSAGE_NOT_FOUND, [], 6)
        assert pull(made, 100, **where) == (Code.ILLEGAL_OFFSET, [], 6)


def test_a_pull_waits_for_a_message(tmp_path: Path) -> None:
    with serving(tmp_path) as (broker, made):
        fill(made, 1)
        ((queue_id, _),) = stored(broker, "Fifo")
        found: list[Any] = []
        wait = {"seconds": 15}

        def wait_for_it() -> None:
            found.append(pull(made, 1, queue_id, topic="Fifo", long_polling_timeout=wait))

        thread = threading.Thread(target=wait_for_it)
        thread.start()
        fill(made, 1)
        thread.join()
        ((code, (message,), next_offset),) = found
        assert (code, message.body, next_offset) == (Code.OK, b"0", 2)


def test_offsets_of_a_group_are_kept(tmp_path: Path) -> None:
    with serving(tmp_path) as (broker, made):
        fill(made, 3)
        ((queue_id, _), *_) = stored(broker, "Fifo")
        p, where = made.protos, queue(made, queue_id, "Fifo")
        group = p.Resource(name="g")
        update = p.UpdateOffsetRequest(group=group, message_queue=where, offset=2)
        assert made.call("UpdateOffset", update).status.code == Code.OK
        found = made.call("GetOffset", p.GetOffsetRequest(group=group, message_queue=where))
        assert (found.status.code, found.offset) == (Code.OK, 2)
        fields = {"consumerGroup": "g", "topic": "Fifo", "queueId": str(queue_id)}
        with Wire(broker.address) as wire:
            assert wire.call(QUERY_CONSUMER_OFFSET, fields).fields == {"offset": "2"}


def test_a_group_without_an_offset_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(tmp_path) as (broker, made):
        fill(made, 1)
        ((queue_id, _),) = stored(broker, "Fifo")
        monkeypatch.setattr(
            "congreve.broker.group.consumer_processor.ConsumerManageProcessor._keeps_all_in_memory",
            lambda *_: False,
        )
        p = made.protos
        request = p.GetOffsetRequest(
            group=p.Resource(name="none"), message_queue=queue(made, queue_id, "Fifo")
        )
        assert made.call("GetOffset", request).status.code == Code.OFFSET_NOT_FOUND


def test_offsets_of_a_queue_are_found(tmp_path: Path) -> None:
    with serving(tmp_path) as (broker, made):
        fill(made, 3)
        ((queue_id, _), *_) = stored(broker, "Fifo")
        first = pull(made, 1, queue_id, topic="Fifo")[1][0]
        times = {TIMESTAMP: first.system_properties.store_timestamp}
        for policy, offsets in ((BEGINNING, {0}), (END, {3}), (TIMESTAMP, {0, 1})):
            found = made.call(
                "QueryOffset",
                made.protos.QueryOffsetRequest(
                    message_queue=queue(made, queue_id, "Fifo"),
                    query_offset_policy=policy,
                    timestamp=times.get(policy),
                ),
            )
            assert found.status.code == Code.OK
            assert found.offset in offsets


def test_what_is_wrong_with_a_request_is_said(tmp_path: Path) -> None:
    with serving(tmp_path, enable_property_filter=True) as (_, made):
        p, group = made.protos, made.protos.Resource(name="g")
        no_sql = {"type": 2, "expression": "a is"}
        pulls = (
            (asked(made, 0, topic="absent"), Code.TOPIC_NOT_FOUND),
            (asked(made, 0, queue_id=8), Code.BAD_REQUEST),
            (asked(made, 0, size=0), Code.BAD_REQUEST),
            (asked(made, -1), Code.ILLEGAL_OFFSET),
            (asked(made, 0, filter_expression=no_sql), Code.ILLEGAL_FILTER_EXPRESSION),
        )
        for request, code in pulls:
            (answer,) = made.stream("PullMessage", request)
            assert answer.status.code == code, answer
        without_time = p.QueryOffsetRequest(message_queue=queue(made), query_offset_policy=2)
        assert made.call("QueryOffset", without_time).status.code == Code.BAD_REQUEST
        negative = p.UpdateOffsetRequest(group=group, message_queue=queue(made), offset=-1)
        assert made.call("UpdateOffset", negative).status.code == Code.ILLEGAL_OFFSET


def test_pulls_and_offsets_need_permissions(tmp_path: Path) -> None:
    with guarded(tmp_path) as (_, made):
        assert made.call(
            "SendMessage",
            made.protos.SendMessageRequest(messages=[made.message("T")]),
            signed("administrator"),
        )
        p, group, where = made.protos, made.protos.Resource(name="G"), queue(made, 0, "T")
        requests = {
            "UpdateOffset": p.UpdateOffsetRequest(group=group, message_queue=where, offset=0),
            "GetOffset": p.GetOffsetRequest(group=group, message_queue=where),
            "QueryOffset": p.QueryOffsetRequest(message_queue=where, query_offset_policy=END),
        }
        for name, request in requests.items():
            for account in ("sub-of-T", "pub-of-T", "other-topic"):
                may = account == "sub-of-T" or (account, name) == ("pub-of-T", "QueryOffset")
                status = made.call(name, request, signed(account)).status
                assert (status.code == Code.OK) is may, (name, account, status)
        request = asked(made, 0, topic="T")
        request.group.name = "G"
        first, *_ = made.stream("PullMessage", request, signed("sub-of-T"))
        assert first.status.code in (Code.OK, Code.MESSAGE_NOT_FOUND)
        (refused,) = made.stream("PullMessage", request, signed("pub-of-T"))
        assert refused.status.code == Code.UNAUTHORIZED
