"""AckMessage and ChangeInvisibleDuration, compiled, beside the rules in Python."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from congreve.broker.grpc.codecs.codec import (
    ACK_KIND,
    CHANGE_KIND,
    GrpcCodec,
    frame_of,
    messages_of,
)
from congreve.broker.grpc.codecs.codes import Code, code_of_settling
from congreve.broker.grpc.codecs.hashed_names import HashedNames
from congreve.broker.grpc.protocol.calls import SERVICE, GrpcCall
from congreve.broker.grpc.protocol.errors import CallRefusedError
from congreve.broker.grpc.protos import Protos
from congreve.broker.grpc.settle import Settling
from congreve.records.message.topics import COMMAND_GROUP, SYSTEM_GROUPS, SYSTEM_TOPICS
from congreve.remoting.lanes.call import CallField
from congreve.remoting.messages.codes import RequestCode, ResponseCode
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.transport.connection import Connection

ACK, CHANGE = (f"/{SERVICE}/{name}" for name in ("AckMessage", "ChangeInvisibleDuration"))
STREAM = 7
HANDLE = "100 1700000000123 30000 0 {} broker-a 3 104 123456"

CODEC = GrpcCodec(
    HashedNames((*SYSTEM_TOPICS, *SYSTEM_GROUPS, COMMAND_GROUP)), template="TBW102", max_body_size=1
)
P = Protos()

topics = st.one_of(
    st.text("abcXYZ019_-", min_size=1, max_size=9),
    st.sampled_from([*sorted(SYSTEM_TOPICS), "rmq_sys_x", "%RETRY%g", "a|b", "", "x" * 128, "ü"]),
)
groups = st.one_of(
    st.text("abcXYZ019_-", min_size=1, max_size=9),
    st.sampled_from([*SYSTEM_GROUPS, COMMAND_GROUP, "CID_RMQ_SYS_x", "a|b", "", "x" * 121]),
)
numbers = st.one_of(
    st.integers(0, 10**18 - 1), st.sampled_from([-1, 2**31 - 1, 2**31, 10**18, 2**63])
)
handles = st.one_of(
    st.sampled_from([HANDLE.format(kind) for kind in "0123"]),
    st.lists(
        st.one_of(numbers.map(str), st.sampled_from(["", "b", "bröker", 'a"b', "1", "2"])),
        min_size=6,
        max_size=10,
    ).map(" ".join),
    st.builds(
        "{} {} {} 0 {} b {} {} {}".format,
        *(numbers, numbers, numbers),
        st.integers(0, 3),
        *(numbers, numbers, numbers),
    ),
)


class AskedError(Exception):
    """A rule makes this request."""

    def __init__(self, command: RemotingCommand) -> None:
        self.command = command


class _Call(GrpcCall):
    async def ask(self, code: int, fields: dict[str, str], body: bytes = b"", **_: Any) -> Any:
        raise AskedError(RemotingCommand(code=code, ext_fields=fields, body=body))


def as_in_python(request: Any) -> RemotingCommand | None:
    """The request that the rules make; None if they refuse, or do not ask for it."""
    call = _Call(cast(Connection, None), STREAM, {CallField.CLIENT_ID: "c"})
    rules = Settling(P)
    serve = rules.ack if isinstance(request, P.AckMessageRequest) else rules.change
    try:
        asyncio.run(serve(call, request))
    except AskedError as asked:
        return asked.command
    except CallRefusedError:
        pass
    return None


def assert_same(frame: bytes | None, request: Any) -> None:
    if frame is None:
        return
    command = RemotingCommand.decode(frame)
    assert command.opaque == STREAM
    expected = as_in_python(request)
    assert expected is not None, "compiled code takes what the rules refuse"
    fields = {name: text for name, text in expected.ext_fields.items() if name != "suspend"}
    for name in ("queueId", "offset"):  # handles may have zeros in front
        assert int(command.ext_fields[name]) == int(fields[name])
        fields[name] = command.ext_fields[name]
    assert (command.code, command.ext_fields) == (expected.code, fields)


@settings(max_examples=300)
@given(groups, topics, st.lists(handles, max_size=2), st.booleans())
def test_acknowledgements_become_the_same_request(
    group: str, topic: str, texts: list[str], lite: bool
) -> None:
    request = P.AckMessageRequest()
    request.group.name, request.topic.name = group, topic
    for text in texts:
        entry = request.entries.add(message_id="01AB", receipt_handle=text)
        if lite:
            entry.lite_topic = "lite"
    assert_same(frame_of(CODEC, ACK, request.SerializeToString(), STREAM), request)


@settings(max_examples=300)
@given(groups, topics, handles, st.integers(-2, 50_000), st.integers(0, 999_999_999), st.booleans())
def test_changes_become_the_same_request(
    group: str, topic: str, handle: str, seconds: int, nanos: int, suspend: bool
) -> None:
    request = P.ChangeInvisibleDurationRequest(receipt_handle=handle, message_id="01AB")
    request.group.name, request.topic.name = group, topic
    request.invisible_duration.seconds = seconds
    request.invisible_duration.nanos = nanos if seconds >= 0 else 0
    if suspend:
        request.suspend = True
    assert_same(frame_of(CODEC, CHANGE, request.SerializeToString(), STREAM), request)


@pytest.mark.parametrize("kind", [0, 1, 2])
def test_ordinary_requests_are_compiled(kind: int) -> None:
    ack = P.AckMessageRequest()
    ack.group.name, ack.topic.name = "group", "Topic"
    ack.entries.add(message_id="01AB", receipt_handle=HANDLE.format(kind))
    change = P.ChangeInvisibleDurationRequest(receipt_handle=HANDLE.format(kind))
    change.group.name, change.topic.name = "group", "Topic"
    change.invisible_duration.seconds = 7
    for path, request, code in (
        (ACK, ack, RequestCode.ACK_MESSAGE),
        (CHANGE, change, RequestCode.CHANGE_MESSAGE_INVISIBLETIME),
    ):
        frame = frame_of(CODEC, path, request.SerializeToString(), STREAM)
        assert frame is not None
        command = RemotingCommand.decode(frame)
        assert command.code == code
        wanted = ("Topic", "%RETRY%group_Topic", "%RETRY%group+Topic")[kind]
        assert command.ext_fields["topic"] == wanted
        assert_same(frame, request)


@given(st.binary(max_size=60), st.integers(0, 120), st.booleans())
def test_bytes_that_are_no_request_are_left_to_python(noise: bytes, at: int, cut: bool) -> None:
    whole = P.AckMessageRequest()
    whole.group.name, whole.topic.name = "group", "Topic"
    whole.entries.add(message_id="01AB", receipt_handle=HANDLE.format(0))
    data = whole.SerializeToString()
    data = data[:at] + noise if cut else data[:at] + noise + data[at:]
    frame = frame_of(CODEC, ACK, data, STREAM)
    if frame is not None:
        assert_same(frame, P.AckMessageRequest.FromString(data))


def answer(code: int, remark: str | None, fields: dict[str, str] | None = None) -> bytes:
    """A frame with a JSON header, which names escape."""
    request = RemotingCommand(code=200051, opaque=STREAM)
    return request.reply(code, remark, fields or {}).encode()


@pytest.mark.parametrize("code", [*map(int, ResponseCode), 9999])
@pytest.mark.parametrize("remark", [None, 'a "quoted" text', "é" * 1000])
def test_answers_have_the_code_and_the_remark(code: int, remark: str | None) -> None:
    entry = P.AckMessageEntry(message_id="01AB", receipt_handle="h").SerializeToString()
    (message,), _ = messages_of(CODEC, answer(code, remark), ACK_KIND, entry)
    response = P.AckMessageResponse.FromString(message)
    (found,) = response.entries
    assert (found.message_id, found.receipt_handle) == ("01AB", "h")
    assert found.status.code == response.status.code == code_of_settling(code)
    text = found.status.message
    if response.status.code == Code.INVALID_RECEIPT_HANDLE:
        assert response.status.message == "INVALID_RECEIPT_HANDLE"
    else:
        assert response.status.message == text
    assert text == "OK" if code == 0 else (remark or "").startswith(text)
    assert code == 0 or len(text) >= min(len(remark or ""), 500)


@given(numbers, numbers)
def test_a_change_has_a_new_handle(pop_ms: int, invisible_ms: int) -> None:
    fields = {"popTime": str(pop_ms), "invisibleTime": str(invisible_ms), "reviveQid": "0"}
    old = HANDLE.format(0)
    (message,), _ = messages_of(CODEC, answer(0, "any", fields), CHANGE_KIND, old.encode())
    response = P.ChangeInvisibleDurationResponse.FromString(message)
    assert (response.status.code, response.status.message) == (Code.OK, "OK")
    assert response.receipt_handle == old.replace("1700000000123", str(pop_ms), 1).replace(
        "30000", str(invisible_ms), 1
    )
    (message,), _ = messages_of(CODEC, answer(13, "no"), CHANGE_KIND, old.encode())
    response = P.ChangeInvisibleDurationResponse.FromString(message)
    assert (response.status.code, response.receipt_handle) == (Code.INVALID_RECEIPT_HANDLE, "")
