"""ReceiveMessage, compiled, beside the rules in Python."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from congreve.base.clock import ManualClock
from congreve.broker.config import BrokerConfig
from congreve.broker.grpc.codecs.codec import RECEIVE_KIND, GrpcCodec, frame_of, messages_of
from congreve.broker.grpc.codecs.codes import Code, code_of
from congreve.broker.grpc.codecs.hashed_names import HashedNames
from congreve.broker.grpc.codecs.messages import ReceivedMessages
from congreve.broker.grpc.codecs.receives import ReceiveCodec
from congreve.broker.grpc.protocol.calls import SERVICE, GrpcCall
from congreve.broker.grpc.protocol.errors import CallRefusedError
from congreve.broker.grpc.protos import Protos
from congreve.broker.grpc.receive import Receiving
from congreve.broker.grpc.received import HIDDEN, Received
from congreve.broker.grpc.renewals import RENEWED_MS, Renewals
from congreve.broker.metadata.groups import SubscriptionGroupManager
from congreve.records.message import properties
from congreve.records.message.message import RECONSUME_TIMES_MAX, Record, one_more
from congreve.records.message.pop_handle import PopHandle
from congreve.records.message.topics import COMMAND_GROUP, SYSTEM_GROUPS, SYSTEM_TOPICS
from congreve.records.record import encode_record
from congreve.remoting.lanes.call import CallField
from congreve.remoting.messages.codes import ResponseCode
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.signatures.md5 import load_md5
from congreve.remoting.transport.connection import Connection

PATH = f"/{SERVICE}/ReceiveMessage"
STREAM = 7
NOW = 1_700_000_000_000

CLOCK = ManualClock(NOW)
P = Protos()
CONFIG = BrokerConfig(broker_name="bröker-a")
MD5 = load_md5()
assert MD5 is not None
CODEC = GrpcCodec(
    HashedNames((*SYSTEM_TOPICS, *SYSTEM_GROUPS, COMMAND_GROUP)),
    template="TBW102",
    max_body_size=1,
    receives=ReceiveCodec(
        HashedNames((*SYSTEM_TOPICS, *SYSTEM_GROUPS, COMMAND_GROUP)),
        HashedNames(["ordered"]),
        ReceivedMessages(MD5, CONFIG.broker_name, HIDDEN),
        CLOCK,
        renewed_ms=RENEWED_MS,
    ),
)

topics = st.one_of(
    st.text("abcXYZ019_-", min_size=1, max_size=9),
    st.sampled_from([*sorted(SYSTEM_TOPICS), "rmq_sys_x", "%RETRY%g", "a|b", "", "ü"]),
)
groups = st.one_of(
    st.text("abcXYZ019_-", min_size=1, max_size=9),
    st.sampled_from([*SYSTEM_GROUPS, COMMAND_GROUP, "CID_RMQ_SYS_x", "a|b", "", "x" * 121]),
)
filters = st.sampled_from(["", "*", "a || b", " a", "a ", '"a"', "a\\b", "é", "\x01", "a > 1"])


class AskedError(Exception):
    """A rule makes this request."""

    def __init__(self, fields: dict[str, str]) -> None:
        self.fields = fields


class _Call(GrpcCall):
    async def ask(self, code: int, fields: dict[str, str], body: bytes = b"", **_: Any) -> Any:
        raise AskedError(fields)


class NoLites:
    """No group consumes lite topics."""

    def is_lite(self, header: Any) -> bool:
        return False


def as_in_python(request: Any, timeout: str = "") -> dict[str, str] | None:
    """The fields of the pop that the rules ask for; None if they refuse."""
    headers = {CallField.CLIENT_ID: "c", CallField.TIMEOUT: timeout}
    call = _Call(cast(Connection, None), STREAM, headers)
    renewals = Renewals(cast(Any, None), CLOCK, lambda _: True)
    groups = SubscriptionGroupManager(BrokerConfig(), CLOCK)
    rules = Receiving(CONFIG, groups, renewals, cast(Any, NoLites()), CLOCK, P)
    try:
        asyncio.run(rules.receive(call, request))
    except AskedError as asked:
        return asked.fields
    except CallRefusedError:
        pass
    return None


@settings(max_examples=300)
@given(
    *(groups, topics, st.integers(-1, 40), st.booleans(), filters, st.sampled_from([0, 1, 2])),
    st.one_of(st.none(), st.integers(0, 43_200_001)),
    st.one_of(st.none(), st.integers(0, 60_000)),
    st.sampled_from(["", "900m", "2S", "23S", "1H", "0m"]),
)
def test_both_forms_make_the_same_pop(
    group: str,
    topic: str,
    batch: int,
    renew: bool,
    expression: str,
    kind: int,
    invisible_ms: int | None,
    poll_ms: int | None,
    timeout: str,
) -> None:
    request = P.ReceiveMessageRequest(batch_size=batch, auto_renew=renew, attempt_id="a")
    request.group.name, request.message_queue.topic.name = group, topic
    request.filter_expression.expression, request.filter_expression.type = expression, kind
    if invisible_ms is not None:
        request.invisible_duration.FromMilliseconds(invisible_ms)
    if poll_ms is not None:
        request.long_polling_timeout.FromMilliseconds(poll_ms)
    frame = frame_of(CODEC, PATH, request.SerializeToString(), STREAM, timeout)
    if frame is None:
        return
    expected = as_in_python(request, timeout)
    assert expected is not None, "compiled code takes what the rules refuse"
    command = RemotingCommand.decode(frame)
    del expected["attemptId"]  # that of an ordered pop
    assert (command.code, command.opaque, command.ext_fields) == (200050, STREAM, expected)


@pytest.mark.parametrize(("timeout", "poll_ms"), [("1S", 500), ("4S", 2_500), ("1H", 10_000)])
def test_a_poll_ends_before_its_client_gives_up(timeout: str, poll_ms: int) -> None:
    request = P.ReceiveMessageRequest(batch_size=32, auto_renew=True)
    request.group.name, request.message_queue.topic.name = "group", "Topic"
    request.long_polling_timeout.FromSeconds(10)
    found = as_in_python(request, timeout)
    assert found is not None
    assert found["pollTime"] == str(poll_ms)


def test_ordinary_requests_are_compiled() -> None:
    request = P.ReceiveMessageRequest(batch_size=32, auto_renew=True)
    request.group.name, request.message_queue.topic.name = "group", "Topic"
    assert frame_of(CODEC, PATH, request.SerializeToString(), STREAM) is not None
    request.group.name = "ordered"
    assert frame_of(CODEC, PATH, request.SerializeToString(), STREAM) is None


@given(st.binary(max_size=60), st.integers(0, 60), st.booleans())
def test_bytes_that_are_no_request_are_left_to_python(noise: bytes, at: int, cut: bool) -> None:
    whole = P.ReceiveMessageRequest(batch_size=32, auto_renew=True)
    whole.group.name, whole.message_queue.topic.name = "group", "Topic"
    data = whole.SerializeToString()
    data = data[:at] + noise if cut else data[:at] + noise + data[at:]
    frame = frame_of(CODEC, PATH, data, STREAM)
    if frame is not None:
        request = P.ReceiveMessageRequest.FromString(data)
        assert as_in_python(request) is not None


def answer(code: int, remark: str | None, fields: dict[str, str], body: bytes = b"") -> bytes:
    request = RemotingCommand(code=200050, opaque=STREAM)
    return request.reply(code, remark, fields, body).encode()


names = st.one_of(st.text("abKEYS_é", min_size=1, max_size=6), st.sampled_from(sorted(HIDDEN)))
values = st.one_of(
    st.text(st.characters(exclude_characters="\x01\x02", codec="utf-8"), min_size=1, max_size=12),
    st.sampled_from(["true", "1700000000123", "-1", "k1 k2", " ", "123456789", "1234567890"]),
)
any_times = st.integers(-(1 << 63), (1 << 63) - 1)  # a producer may send any
handle_texts = st.just("5 1700000000001 60000 0 1 b 2 9")


@st.composite
def records(draw: st.DrawFn) -> Record:
    stored = draw(st.dictionaries(names, values, max_size=8))
    stored.pop(properties.POP_CK, None)
    if draw(st.booleans()):
        stored[properties.POP_CK] = draw(handle_texts)
    return Record(
        topic="Topic",
        body=draw(st.binary(max_size=200)),
        properties=stored,
        queue_id=draw(st.integers(0, 12)),
        sys_flag=draw(st.sampled_from([0, 1])),
        born_timestamp=draw(st.one_of(st.integers(0, 2_000_000_000_000), any_times)),
        born_host=("10.0.0.7", 1234),
        store_host=("127.0.0.1", 10911),
        reconsume_times=draw(st.sampled_from([0, 1, 16, RECONSUME_TIMES_MAX])),
        store_timestamp=draw(st.integers(0, 2_000_000_000_000)),
        queue_offset=draw(st.integers(0, 2**40)),
        physical_offset=draw(st.integers(0, 2**40)),
    )


@settings(max_examples=300)
@given(st.lists(records(), max_size=4), st.sampled_from(["", "0 3 100;1 3 7;0 12 5"]))
def test_both_forms_make_the_same_messages(stored: list[Record], starts: str) -> None:
    fields = {"popTime": str(NOW), "invisibleTime": "60000", "reviveQid": "0", "restNum": "0"}
    fields |= {"startOffsetInfo": starts, "msgOffsetInfo": "0 3 100", "orderCountInfo": ""}
    body = b"".join(map(encode_record, stored))
    first, *found = messages_of(CODEC, answer(0, "FOUND", fields, body), RECEIVE_KIND, b"")[0]
    status = P.ReceiveMessageResponse.FromString(first).status
    assert (status.code, status.message) == (Code.OK, "OK")
    last = P.ReceiveMessageResponse.FromString(found.pop())
    assert last.delivery_timestamp.ToMilliseconds() == NOW
    rules = Received(P)
    for record, message in zip(stored, found, strict=True):
        text = record.properties.get(properties.POP_CK)
        if text is None:
            begin = {3: 100, 12: 5}.get(record.queue_id) if starts else None
            start = record.queue_offset if begin is None else begin
            text = f"{start} {NOW} 60000 0 0 bröker-a {record.queue_id} {record.queue_offset}"
        expected = rules.message(
            record, f"{text} {record.physical_offset}", one_more(record.reconsume_times)
        )
        assert P.ReceiveMessageResponse.FromString(message).message == expected


@pytest.mark.parametrize("code", [*map(int, ResponseCode), 9999])
@pytest.mark.parametrize("remark", [None, 'a "quoted" text'])
def test_a_refusal_is_a_status(code: int, remark: str | None) -> None:
    if code == 0:
        return
    (message,), told = messages_of(CODEC, answer(code, remark, {}), RECEIVE_KIND, b"c\0g\0t")
    status = P.ReceiveMessageResponse.FromString(message).status
    known = {210: (Code.MESSAGE_NOT_FOUND, "no new message")}
    known[209] = (Code.TOO_MANY_REQUESTS, remark or "polling full")
    assert (status.code, status.message) == known.get(code, (code_of(code), remark or ""))
    assert not told


def test_what_is_renewed_is_told_to_the_loop() -> None:
    fields = {"popTime": "5", "invisibleTime": "60000", "reviveQid": "0"}
    fields["msgOffsetInfo"] = "0 3 100,102;1 0 7"
    _, told = messages_of(CODEC, answer(0, None, fields), RECEIVE_KIND, b"client\0g\0t")
    held: list[Any] = []

    class Kept(Renewals):
        def hold(self, *what: Any) -> None:
            held.append(what)

    renewals = Kept(cast(Any, None), CLOCK, lambda _: True)
    groups = SubscriptionGroupManager(BrokerConfig(), CLOCK)
    Receiving(CONFIG, groups, renewals, cast(Any, NoLites()), CLOCK, P).hold(told)
    ((client_id, group, topic, handles),) = held
    assert (client_id, group, topic) == ("client", "g", "t")
    assert [PopHandle.decode(handle.encode()) for handle in handles] == handles
    assert [(handle.kind, handle.queue_id, handle.offset) for handle in handles] == [
        (0, 3, 100),
        (0, 3, 102),
        (1, 0, 7),
    ]
