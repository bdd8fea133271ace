"""SendMessage, compiled, beside the rules in Python: what one makes of a message, both make."""

from __future__ import annotations

from typing import Any, cast

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from congreve.base.clock import Clock
from congreve.broker.config import BrokerConfig
from congreve.broker.grpc.codecs.codec import SEND_KIND, GrpcCodec, frame_of, messages_of
from congreve.broker.grpc.codecs.codes import Code, code_of
from congreve.broker.grpc.codecs.hashed_names import HashedNames
from congreve.broker.grpc.protocol.calls import SERVICE, GrpcCall
from congreve.broker.grpc.protocol.errors import CallRefusedError
from congreve.broker.grpc.protos import Protos
from congreve.broker.grpc.send import SendRules, bucket_of, java_hash
from congreve.broker.metadata.topics import TopicConfigManager
from congreve.records.message.properties import RESERVED_BY_GRPC
from congreve.records.message.property_codec import decode_properties
from congreve.records.message.topics import SYSTEM_TOPICS
from congreve.remoting.messages.codes import ResponseCode, SerializeType
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.transport.connection import Connection

PATH = f"/{SERVICE}/SendMessage"
STREAM = 7
MAX_BODY = 4 << 20

CODEC = GrpcCodec(
    HashedNames(RESERVED_BY_GRPC | SYSTEM_TOPICS), template="TBW102", max_body_size=MAX_BODY
)
P = Protos()
CLOCK = Clock()
RULES = SendRules(TopicConfigManager(BrokerConfig(), CLOCK), CLOCK, max_body_size=MAX_BODY)

texts = st.one_of(
    st.text(max_size=12),
    st.sampled_from(["", " ", "a|b", "\x01", "\x7f", "\x85", "é", "消息", "a b", "TAGS", "x" * 70]),
)
names = st.one_of(texts, st.sampled_from(sorted(RESERVED_BY_GRPC)))
topics = st.one_of(
    st.text("abcXYZ019_-", min_size=1, max_size=9),
    st.sampled_from([*sorted(SYSTEM_TOPICS), "%RETRY%g", "a|b", "", "x" * 127, "x" * 128, "ü"]),
)


@st.composite
def messages(draw: st.DrawFn) -> Any:
    message = P.Message(body=draw(st.binary(max_size=20)))
    message.topic.name = draw(topics)
    message.topic.resource_namespace = draw(st.sampled_from(["", "space"]))
    for name, value in draw(st.dictionaries(names, texts, max_size=4)).items():
        message.user_properties[name] = value
    system = message.system_properties
    system.message_id = draw(st.one_of(texts, st.just("01" * 17), st.just("i" * 129)))
    system.keys.extend(draw(st.lists(texts, max_size=3)))
    system.body_encoding = draw(st.sampled_from([0, 1, 2]))
    system.message_type = draw(st.sampled_from([0, 1, 1, 1, 2, 3, 4, 5]))
    if draw(st.booleans()):
        system.tag = draw(texts)
    if draw(st.integers(0, 9)):
        system.born_timestamp.seconds = draw(st.integers(-1, 2_000_000_000))
        system.born_timestamp.nanos = draw(st.integers(0, 999_999_999))
    if draw(st.booleans()):
        system.born_host = draw(texts)
        system.trace_context = draw(texts)
    unusual = draw(st.integers(0, 12))
    if unusual == 0:
        system.message_group = draw(texts)
    elif unusual == 1:
        system.delivery_timestamp.seconds = draw(st.integers(0, 3_000_000_000))
    elif unusual == 2:
        system.priority = draw(st.integers(-1, 9))
    elif unusual == 3:
        system.lite_topic = draw(st.sampled_from(["lite", "A-b_9", "x" * 64, "x" * 65, "a b", ""]))
        system.message_type = draw(st.sampled_from([1, 5, 5, 5]))
    system.queue_id = draw(st.integers(0, 3))
    system.body_digest.type, system.body_digest.checksum = 1, "ABC"
    return message


def as_in_python(message: Any) -> RemotingCommand | None:
    """The command that the rules make; None if they refuse the message."""
    call = GrpcCall(cast(Connection, None), STREAM, {})
    try:
        return RULES.command(message, call)
    except CallRefusedError:
        return None


def comparable(command: RemotingCommand) -> tuple[Any, ...]:
    fields = dict(command.ext_fields)
    stored = decode_properties(fields.pop("i").encode())
    return command.code, command.serialize_type, fields, stored, bytes(command.body)


@settings(max_examples=400)
@given(messages())
def test_both_forms_make_the_same_request(message: Any) -> None:
    frame = frame_of(CODEC, PATH, P.SendMessageRequest(messages=[message]).SerializeToString(), 7)
    if frame is None:
        return
    command = RemotingCommand.decode(frame)
    assert command.opaque == STREAM
    expected = as_in_python(message)
    assert expected is not None, "compiled code takes what the rules refuse"
    assert comparable(command) == comparable(expected)


def ordinary() -> Any:
    message = P.Message(body=b"body")
    message.topic.name = "Orders"
    message.user_properties["region"] = "EU"
    message.user_properties["país"] = "España"
    system = message.system_properties
    system.message_id, system.tag = "01" * 17, "created"
    system.keys.extend(["k1", "k2"])
    system.message_type, system.body_encoding = 1, 1
    system.born_timestamp.FromMilliseconds(1_700_000_000_123)
    system.born_host, system.trace_context = "host", "00-abc"
    return message


def test_a_message_of_a_lite_topic_is_compiled() -> None:
    message = ordinary()
    message.system_properties.message_type = 5
    message.system_properties.lite_topic = "session-1"
    request = P.SendMessageRequest(messages=[message]).SerializeToString()
    frame = frame_of(CODEC, PATH, request, STREAM)
    assert frame is not None
    stored = decode_properties(RemotingCommand.decode(frame).ext_fields["i"].encode())
    assert stored["__LITE_TOPIC"] == "session-1"


def test_an_ordinary_message_is_compiled() -> None:
    request = P.SendMessageRequest(messages=[ordinary()]).SerializeToString()
    frame = frame_of(CODEC, PATH, request, STREAM)
    assert frame is not None
    command = RemotingCommand.decode(frame)
    assert command.serialize_type == SerializeType.ROCKETMQ
    assert command.ext_fields["e"] == "-1"
    assert decode_properties(command.ext_fields["i"].encode()) == {
        "UNIQ_KEY": "01" * 17,
        "TAGS": "created",
        "KEYS": "k1 k2",
        "region": "EU",
        "país": "España",
        "__BORNHOST": "host",
        "TRACE_CONTEXT": "00-abc",
        "BORN_TIMESTAMP": "1700000000123",
        "PGROUP": "Orders",
    }
    assert frame_of(CODEC, PATH + "s", request, STREAM) is None


@given(st.binary(max_size=60), st.integers(0, 200), st.booleans())
@example(b"", 0, True)
def test_bytes_that_are_no_request_are_left_to_python(noise: bytes, at: int, cut: bool) -> None:
    whole = P.SendMessageRequest(messages=[ordinary()]).SerializeToString()
    data = whole[:at] + noise if cut else whole[:at] + noise + whole[at:]
    frame = frame_of(CODEC, PATH, data, STREAM)
    if frame is None:
        return
    # protobuf reads it, too, as the same message.
    request = P.SendMessageRequest.FromString(data)
    expected = as_in_python(request.messages[0])
    assert expected is not None
    assert comparable(RemotingCommand.decode(frame)) == comparable(expected)


ids = st.text("0123456789ABCDEF", min_size=1, max_size=64).map(str.encode)


@given(ids, st.integers(0, 2**63 - 1), st.one_of(st.none(), st.text("abc=", max_size=80)))
def test_an_answer_has_the_offset_and_the_ids(note: bytes, offset: int, handle: str | None) -> None:
    fields = {"msgId": "ignored", "queueId": "3", "queueOffset": str(offset), "MSG_REGION": "r"}
    if handle:
        fields["recallHandle"] = handle
    request = RemotingCommand(code=310, opaque=STREAM, serialize_type=SerializeType.ROCKETMQ)
    frame = request.reply(ResponseCode.SUCCESS, None, fields).encode()
    (message,), _ = messages_of(CODEC, frame, SEND_KIND, note)
    response = P.SendMessageResponse.FromString(message)
    assert (response.status.code, response.status.message) == (Code.OK, "OK")
    (entry,) = response.entries
    assert entry == P.SendResultEntry(
        status=P.Status(code=Code.OK, message="OK"),
        message_id=note.decode(),
        transaction_id=note.decode(),
        offset=offset,
        recall_handle=handle or "",
    )


@pytest.mark.parametrize("code", [*map(int, ResponseCode), 9999])
@pytest.mark.parametrize("remark", [None, "", "no", "é" * 1000])
def test_a_refusal_has_its_code_and_remark(code: int, remark: str | None) -> None:
    request = RemotingCommand(code=310, opaque=STREAM, serialize_type=SerializeType.ROCKETMQ)
    frame = request.reply(code, remark).encode()
    (message,), _ = messages_of(CODEC, frame, SEND_KIND, b"id")
    response = P.SendMessageResponse.FromString(message)
    assert response.status.code == code_of(code)
    if code:
        assert not response.entries
        assert (remark or "").startswith(response.status.message)
        assert len(response.status.message) >= min(len(remark or ""), 500)


def test_java_hashes_and_jump_hashing() -> None:
    # Values of Java's String.hashCode and Guava's Hashing.consistentHash.
    assert [java_hash(text) for text in ("", "a", "order-1", "消息")] == [
        0,
        97,
        -1207111310,
        893927,
    ]
    assert bucket_of(java_hash(""), 8) == 0
    assert all(0 <= bucket_of(number, 8) < 8 for number in range(-1000, 1000))
    spread = [bucket_of(java_hash(f"group-{number}"), 8) for number in range(4000)]
    assert min(spread.count(bucket) for bucket in range(8)) > 400
    # One more bucket moves only those that go there.
    for number in range(500):
        assert bucket_of(number, 9) in (bucket_of(number, 8), 8)
