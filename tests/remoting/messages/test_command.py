"""Frames as bytes on the wire."""

import json
import time
from io import BufferedReader, BytesIO

import pytest
from harness.slowness import limit_s

from congreve.remoting.errors import FrameError, HeaderError
from congreve.remoting.messages.codes import LanguageCode, RequestCode
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.messages.headers import (
    PullMessageRequestHeader,
    QueryConsumerOffsetRequestHeader,
    QueryMessageRequestHeader,
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    UnregisterClientRequestHeader,
)
from congreve.remoting.wire.frame import FRAME_MAX

# protocol fact sheet 1.3: code 105, JAVA, version 401, opaque 1, topic=T
WORKED_EXAMPLE = bytes.fromhex(
    "00000025010000210069000191000000010000000000000000 0000000c0005746f7069630000000154"
)


def frame(header: bytes, body: bytes = b"", serialize_type: int = 0) -> bytes:
    total = 4 + len(header) + len(body)
    mark = (serialize_type << 24) | len(header)
    return total.to_bytes(4, "big") + mark.to_bytes(4, "big") + header + body


def test_the_binary_example_is_encoded_and_decoded():
    command = RemotingCommand(
        code=105, opaque=1, ext_fields={"topic": "T"}, serialize_type=1, version=401
    )
    assert command.encode() == WORKED_EXAMPLE
    assert RemotingCommand.decode(WORKED_EXAMPLE) == command


def test_a_json_header_is_valid_json_with_any_text():
    text = "".join(map(chr, range(0x100))) + "\u20ac\U0001f600"
    data = RemotingCommand(code=-1, remark=text, ext_fields={text: text, "": ""}).encode()
    header = json.loads(data[8:])
    assert (header["code"], header["remark"]) == (-1, text)
    assert header["extFields"] == {text: text, "": ""}


@pytest.mark.parametrize("fields", [{"a": 1}, {"a": None}, {"a": "\ud800"}])
def test_fields_other_than_text_are_refused(fields):
    with pytest.raises((TypeError, UnicodeError)):
        RemotingCommand(code=1, ext_fields=fields).encode()


def test_json_header_of_the_reference():
    header = (
        b'{"code":105,"extFields":{"topic":"TopicTest"},"flag":0,"language":"JAVA","opaque":0,'
        b'"serializeTypeCurrentRPC":"JSON","version":401}'
    )
    command = RemotingCommand.decode(frame(header, b"body"))
    assert command == RemotingCommand(
        code=105, ext_fields={"topic": "TopicTest"}, body=b"body", version=401
    )
    assert command.encode() == frame(header, b"body")


def test_ext_fields_sent_as_numbers_and_booleans_are_text():
    header = (
        b'{"code":11,"language":"CPP","extFields":{"a":1.50,"b":true,"c":-7,"d":null,"e":"x"}}\n'
    )
    command = RemotingCommand.decode(frame(header))
    assert command.ext_fields == {"a": "1.50", "b": "true", "c": "-7", "e": "x"}
    assert command.language is LanguageCode.CPP


def test_unknown_language_is_tolerated():
    assert RemotingCommand.decode(frame(b'{"code":1,"language":"COBOL"}')).language == 7
    assert RemotingCommand.decode(frame(b'{"code":1,"language":null}')).language == 7


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"\0\0\0\4\0\0\0",
        frame(b"{"),
        frame(b"[]"),
        frame(b"null"),
        frame(b'{"code":"x"}'),
        frame(b'{"code":99999999999}'),
        frame(b"{}", serialize_type=2),
        frame(b"\0", serialize_type=1),
        (6).to_bytes(4, "big") + (3).to_bytes(4, "big") + b"{}",
        WORKED_EXAMPLE[:-1],
        WORKED_EXAMPLE[:29] + b"\x7f\xff" + WORKED_EXAMPLE[31:],
    ],
)
def test_invalid_frames_are_refused(bad):
    with pytest.raises(FrameError):
        RemotingCommand.decode(bad)


def test_a_stream_is_split_into_frames_of_any_length():
    commands = [
        RemotingCommand(code=105, opaque=n, body=b"%d" % n * size, serialize_type=n % 2)
        for n, size in enumerate((0, 1, 20, 100, 5000))
    ]
    data = b"".join(command.encode() for command in commands)
    stream = BufferedReader(BytesIO(data), 64)
    assert [RemotingCommand.read(stream) for _ in commands] == commands
    with pytest.raises(ConnectionResetError):
        RemotingCommand.read(stream)
    torn = BufferedReader(BytesIO(commands[-1].encode()[:-1]), 64)
    with pytest.raises(ConnectionResetError):
        RemotingCommand.read(torn)


@pytest.mark.parametrize(
    "header",
    [
        b"{" * 255,
        b"{" * 120 + b":1}" * 120,
        b'{"code":10,"extFields":{"a":' + b"[" * 100_000,
        b'{"code":10,"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"code":10,"x":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_001,
        b'{"code":10,"opaque":' + b"9" * 5_000 + b"}",
    ],
    ids=["openings", "keys", "arrays", "whole arrays", "objects", "digits"],
)
def test_a_header_built_to_be_costly_is_refused_at_once(header):
    frame = (4 + len(header)).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header
    started = time.thread_time()
    with pytest.raises(FrameError):
        RemotingCommand.decode(frame)
    assert time.thread_time() - started < limit_s(1)


@pytest.mark.parametrize(
    "head",
    ["00000003 00000000", "00000009 00000006", "00ffffff 00000000", "ffffffff 00000000"],
)
def test_a_stream_with_invalid_frame_lengths_is_refused(head):
    stream = BufferedReader(BytesIO(bytes.fromhex(head) + bytes(100)))
    with pytest.raises(FrameError, match="says length"):
        RemotingCommand.read(stream)


def test_a_frame_too_long_for_any_peer_is_not_sent():
    with pytest.raises(FrameError, match="send less"):
        RemotingCommand(code=0, body=bytes(FRAME_MAX)).encode()
    with pytest.raises(FrameError, match="send less"):
        RemotingCommand(code=0, body=bytes(FRAME_MAX)).encode_uncopied()


@pytest.mark.parametrize("serialize_type", [0, 1])
def test_a_body_that_is_not_copied_makes_the_same_frame(serialize_type):
    command = RemotingCommand(
        code=34, ext_fields={"k": "\x01"}, body=bytes(1 << 20), serialize_type=serialize_type
    )
    head, body = command.encode_uncopied()
    assert head + body == command.encode()
    assert body is command.body


@pytest.mark.parametrize("serialize_type", [0, 1])
def test_reply_keeps_opaque_and_serialize_type(serialize_type):
    request = RemotingCommand(code=34, opaque=-5, serialize_type=serialize_type)
    reply = RemotingCommand.decode(request.reply(1, "r\u00e9", {"k": "\x01"}, b"b").encode())
    assert (reply.code, reply.opaque, reply.remark, reply.ext_fields, reply.body) == (
        1,
        -5,
        "r\u00e9",
        {"k": "\x01"},
        b"b",
    )
    assert reply.is_response
    assert not reply.is_oneway
    assert reply.serialize_type == serialize_type


def test_names_in_json_are_those_of_the_reference():
    header = RemotingCommand(code=1, remark="x").reply(2, "why").encode()[8:]
    assert set(json.loads(header)) == {
        "code",
        "flag",
        "language",
        "opaque",
        "remark",
        "serializeTypeCurrentRPC",
        "version",
    }


def test_header_reads_numbers_and_booleans_from_text():
    fields = {
        "a": "g",
        "b": "t",
        "c": "TBW102",
        "d": "4",
        "e": "-1",
        "f": "0",
        "g": "1700000000000",
    }
    command = RemotingCommand(code=310, ext_fields=fields | {"h": "0", "m": "TRUE", "k": "yes"})
    header = SendMessageRequestHeaderV2.read(command)
    assert (header.queue_id, header.batch, header.unit_mode) == (-1, True, False)
    assert header.born_timestamp == 1_700_000_000_000
    assert header.fields() == fields | {"h": "0", "m": "true", "k": "false"}
    assert SendMessageRequestHeader("g", "t", "d", 4, 0, 0, 0, 0).fields()["producerGroup"] == "g"


@pytest.mark.parametrize(
    ("text", "number"),
    [("+1", 1), ("01", 1), ("-0", 0), ("0" * 5000 + "7", 7), ("١", 1)]
    + [(text, None) for text in ("1.0", "1e0", "", " 1", "1_0", "0x1", "+", "true", "9" * 5000)],
)
def test_numbers_are_read_as_java_reads_them(text: str, number: int | None) -> None:
    fields = {"topic": "t", "queueId": text, "consumerGroup": "g"}
    command = RemotingCommand(code=RequestCode.QUERY_CONSUMER_OFFSET, ext_fields=fields)
    if number is None:
        with pytest.raises(HeaderError, match="'queueId' has the value"):
            QueryConsumerOffsetRequestHeader.read(command)
    else:
        assert QueryConsumerOffsetRequestHeader.read(command).queue_id == number


def test_fields_with_irregular_names_are_written():
    assert UnregisterClientRequestHeader("c").fields() == {"clientID": "c"}
    assert "_UNIQUE_KEY_QUERY" in QueryMessageRequestHeader("t", "k", 1, 2, 3, True).fields()


def test_header_error_names_field_and_value():
    command = RemotingCommand(code=RequestCode.PULL_MESSAGE, ext_fields={"consumerGroup": "g"})
    with pytest.raises(HeaderError, match="PullMessageRequestHeader: the field 'topic' is missing"):
        PullMessageRequestHeader.read(command)
    command.ext_fields |= {"topic": "t", "queueId": "zwei"}
    with pytest.raises(HeaderError, match="'queueId' has the value 'zwei'"):
        PullMessageRequestHeader.read(command)
    command.ext_fields |= {"queueId": str(2**31)}
    with pytest.raises(HeaderError, match="'queueId' has the value '2147483648'"):
        PullMessageRequestHeader.read(command)
