"""The compiled codec compared with the Python one, and with invalid bytes."""

import contextlib
import random
import tracemalloc

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from congreve.remoting.errors import FrameError, HeaderError
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.messages.headers import (
    PullMessageRequestHeader,
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
)
from congreve.remoting.messages.pop_headers import PopMessageRequestHeader
from congreve.remoting.wire import answers, frame
from congreve.remoting.wire.frame import FRAME_MAX
from congreve.remoting.wire.header_decoder import HeaderDecoder

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
INT16 = st.integers(-(2**15), 2**15 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)

COMMANDS = st.builds(
    RemotingCommand,
    code=INT16,
    version=INT16,
    opaque=INT32,
    flag=INT32,
    remark=st.none() | TEXT.filter(bool),
    ext_fields=st.dictionaries(TEXT, TEXT, max_size=6),
    body=st.binary(max_size=40),
    serialize_type=st.sampled_from([0, 1]),
)
SEND_FIELDS = {
    "a": "group",
    "b": "topic",
    "c": "TBW102",
    "d": "4",
    "e": "-1",
    "f": "769",
    "g": "1700000000000",
    "h": "0",
    "i": "UNIQ_KEY\x01AC11\x02WAIT\x01true\x02\u00e9\U0001f600",
    "j": "0",
    "k": "false",
    "l": "16",
    "m": "TRUE",
}
PULL_FIELDS = {
    "consumerGroup": "g",
    "topic": "t",
    "queueId": "3",
    "queueOffset": "99",
    "maxMsgNums": "32",
    "sysFlag": "6",
    "commitOffset": "-1",
    "suspendTimeoutMillis": "15000",
    "subVersion": "0",
    "subscription": "*",
    "expressionType": "TAG",
}


def json_frame(header: bytes, body: bytes = b"") -> bytes:
    total = 4 + len(header) + len(body)
    return total.to_bytes(4, "big") + len(header).to_bytes(4, "big") + header + body


def by_python(data: bytes):
    command = RemotingCommand.decode_any(data)
    return command.code, command.version, command.opaque, command.flag, command.ext_fields


def assert_python_agrees(data: bytes) -> bool:
    """Compiled code decodes every frame as Python does."""
    compiled = HeaderDecoder().head(data)
    if compiled is not None:
        assert compiled == by_python(data)
        assert RemotingCommand.decode(data) == RemotingCommand.decode_any(data)
    return compiled is not None


@given(COMMANDS)
def test_both_codecs_read_every_command_alike(command):
    data = command.encode()
    assert RemotingCommand.decode_any(data) == RemotingCommand.decode(data) == command
    assert HeaderDecoder().head(data) == by_python(data)


@pytest.mark.parametrize(
    "header",
    [
        b' {\n"code" : 10 , "extFields"\t:{ "a" : "b" } }\r\n ',
        b'{"extFields":{"a":"1","a":"2"},"code":1,"code":2}',
        b'{"extFields":{"a":"1"},"extFields":{"b":"2"}}',
        b'{"extFields":{}}',
        b"{}",
        b'{"extFields":{"a":1.50,"b":-0,"c":1e5,"d":true,"e":false}}',
        b'{"extFields":{"a":"\\u0001\\u00e9\\u20ac\\ud83d\\uDE00\\n\\"\\\\\\/"}}',
        b'{"extFields":{"\\u0061":"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"}}',
        b'{"language":"COBOL","remark":"r","other":12,"code":-5}',
    ],
)
def test_compiled_code_reads_plain_json(header):
    assert assert_python_agrees(json_frame(header))


@pytest.mark.parametrize(
    "header",
    [
        b'{"extFields":null}',
        b'{"extFields":{"a":null}}',
        b'{"extFields":{"a":{"b":1}}}',
        b'{"nested":[1,{"a":2}],"code":1}',
        b'{"extFields":{"a":"\\ud83d"}}',
        b'{"extFields":{"a":"\\udc00\\ud800"}}',
        b'{"extFields":{"a":"\xff"}}',
        b'{"extFields":{"a":"\xed\xa0\x80"}}',
        b'{"extFields":{"a":"\x01"}}',
        b'{"code":"7"}',
        b'{"remark":null}',
        b'{"extFields":{' + b",".join(b'"%d":"x"' % i for i in range(60)) + b"}}",
        b'{"code":1.0}',
    ],
)
def test_python_handles_unusual_json(header):
    assert HeaderDecoder().head(json_frame(header)) is None
    RemotingCommand.decode_any(json_frame(header))


@pytest.mark.parametrize(
    "header",
    [b"", b"{", b"{}x", b'{"code":1,}', b'{"code":01}', b'{"code":1 "flag":2}', b'{"a":"\\x"}',
     b'{"a":"\\u12g4"}', b'{"a":"', b'{"a":"\\', b'{"extFields":{"a":tru}}', b'{"code":-}'],
)  # fmt: skip
def test_neither_codec_reads_invalid_json(header):
    assert HeaderDecoder().head(json_frame(header)) is None
    with pytest.raises(FrameError):
        RemotingCommand.decode_any(json_frame(header))


@pytest.mark.parametrize("serialize_type", [0, 1])
@pytest.mark.parametrize("fields", [SEND_FIELDS, PULL_FIELDS])
def test_no_mutated_frame_is_read_differently_or_kept_in_memory(serialize_type, fields, quick):
    whole = RemotingCommand(
        code=310, ext_fields=fields, remark="r\u00e9", serialize_type=serialize_type
    ).encode()
    chance = random.Random(7)
    decoder = HeaderDecoder()
    readable = 0

    def mutate(rounds: int) -> None:
        nonlocal readable
        for _ in range(rounds):
            data = bytearray(whole)
            for _ in range(chance.randint(1, 3)):
                data[chance.randrange(8, len(data))] = chance.choice(
                    b'\x00\x01"\\{},:u0d\x80\xc3\xff'
                )
            if chance.random() < 0.3:
                del data[chance.randrange(8, len(data)) :]
                data[:4] = (len(data) - 4).to_bytes(4, "big")
                data[5:8] = (len(data) - 8).to_bytes(3, "big")
            readable += assert_python_agrees(bytes(data))
            for read in (decoder.send, decoder.pull):
                read(bytes(data))

    mutate(2_000 if quick else 20_000)
    tracemalloc.start()
    mutate(1_000)
    before, _ = tracemalloc.get_traced_memory()
    mutate(1_000 if quick else 4_000)
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert after - before < 20_000
    assert readable > 100


@given(st.binary(max_size=200), st.sampled_from([0, 1]))
def test_random_bytes_as_a_header_do_no_harm(header, serialize_type):
    data = json_frame(header, b"body")
    data = data[:4] + bytes([serialize_type]) + data[5:]
    if HeaderDecoder().head(data) is None:
        with contextlib.suppress(FrameError):
            RemotingCommand.decode_any(data)
    else:
        assert_python_agrees(data)


@given(st.text('{}[]":,\\ \n0123456789.-+eEtruefalsn\u00e9', max_size=60))
def test_random_json_text_is_read_alike(text):
    assert_python_agrees(json_frame(b'{"code":1,"extFields":{"a":' + text.encode() + b"}}"))


SENDS = st.fixed_dictionaries(
    {"a": TEXT, "b": TEXT, "c": TEXT}
    | dict.fromkeys("defh", INT32.map(str) | st.sampled_from(["", "x", "007", "2147483648"]))
    | {"g": INT64.map(str) | st.just("9223372036854775808")},
    optional={"i": TEXT, "j": INT32.map(str), "l": INT32.map(str)}
    | {"m": st.sampled_from(["tRue", "1"])},
)  # fmt: skip


@given(SENDS, st.sampled_from([0, 1]))
@example(SEND_FIELDS, 0)
@example(SEND_FIELDS, 1)
def test_send_headers_are_read_alike(fields, serialize_type):
    command = RemotingCommand(code=310, ext_fields=fields, serialize_type=serialize_type)
    compiled = HeaderDecoder().send(command.encode())
    try:
        header = SendMessageRequestHeaderV2.read(command)
    except HeaderError:
        assert compiled is None
        return
    if compiled is None:
        assert "007" in fields.values()
        return
    assert compiled == (
        header.producer_group, header.topic, header.default_topic, header.default_topic_queue_nums,
        header.queue_id, header.sys_flag, header.born_timestamp, header.flag, header.properties,
        header.reconsume_times or 0, header.batch,
    )  # fmt: skip
    long_names = SendMessageRequestHeader(
        **{name: getattr(header, name) for name in header.__struct_fields__}
    ).fields()
    command = RemotingCommand(code=10, ext_fields=long_names, serialize_type=serialize_type)
    assert HeaderDecoder().send(command.encode()) == compiled


@pytest.mark.parametrize("serialize_type", [0, 1])
def test_pull_header_is_read_alike(serialize_type):
    command = RemotingCommand(code=11, ext_fields=PULL_FIELDS, serialize_type=serialize_type)
    header = PullMessageRequestHeader.read(command)
    assert HeaderDecoder().pull(command.encode()) == (
        header.consumer_group, header.topic, header.queue_id, header.queue_offset,
        header.max_msg_nums, header.sys_flag, header.commit_offset, header.suspend_timeout_millis,
        header.sub_version, header.subscription, header.expression_type,
    )  # fmt: skip
    for name in PULL_FIELDS.keys() - {"subscription", "expressionType"}:
        fields = {key: value for key, value in PULL_FIELDS.items() if key != name}
        data = RemotingCommand(code=11, ext_fields=fields, serialize_type=serialize_type).encode()
        assert HeaderDecoder().pull(data) is None


def test_a_stream_is_split_alike_wherever_it_is_cut():
    frames = [
        RemotingCommand(code=310, ext_fields=SEND_FIELDS, body=b"x" * 9).encode(),
        RemotingCommand(code=34, serialize_type=1).encode(),
        RemotingCommand(code=1, body=b"end").encode(),
    ]
    stream = b"".join(frames)
    for cut in range(len(stream) + 1):
        first, taken, bad = frame.split(stream[:cut])
        rest, taken_later, bad_later = frame.split(stream[taken:])
        assert first + rest == frames
        assert taken + taken_later == len(stream)
        assert not bad
        assert not bad_later


@pytest.mark.parametrize(
    "head",
    [
        b"GET / HTTP/1.1\r\n",
        b"\x16\x03\x01\x02\x00",
        (3).to_bytes(4, "big"),
        (-1).to_bytes(4, "big", signed=True),
        (FRAME_MAX - 3).to_bytes(4, "big"),
        (8).to_bytes(4, "big") + b"\x00\x00\x00\x05",
        (8).to_bytes(4, "big") + b"\x02\x00\x00\x04",
    ],
)
def test_a_stream_without_frames_is_recognised_from_its_first_bytes(head):
    good = RemotingCommand(code=1).encode()
    assert frame.split(good + head) == ([good], len(good), True)


def test_the_longest_frame_is_allowed():
    data = (FRAME_MAX - 4).to_bytes(4, "big") + (2).to_bytes(4, "big") + b"{}"
    assert frame.split(data) == ([], 0, False)


@given(
    INT32,
    st.text("0123456789ABCDEF,", max_size=80),
    INT32,
    INT64,
    st.sampled_from([0, 1]),
    st.text("AZaz09-_=", max_size=900),
)
def test_a_compiled_send_response_equals_that_of_python(
    opaque, message_id, queue_id, offset, kind, handle
):
    constants = {"MSG_REGION": 'De"fault\u00e9', "TRACE_ON": "true"}
    more = answers.send_response_constants(constants)[kind]
    data = answers.send_response(
        kind, opaque, message_id.encode(), queue_id, offset, more, handle.encode()
    )
    fields = {"recallHandle": handle} if handle else {}
    fields |= {"msgId": message_id, "queueId": str(queue_id), "queueOffset": str(offset)}
    request = RemotingCommand(code=310, opaque=opaque, serialize_type=kind)
    assert RemotingCommand.decode(data) == request.reply(0, None, constants | fields)


@given(INT32, INT64, INT64, INT64, st.sampled_from([0, 1]), st.sampled_from(["", "FOUND"]))
def test_a_compiled_pull_response_equals_that_of_python(
    opaque, following, least, most, kind, remark
):
    data = answers.pull_response(kind, opaque, 19, remark.encode(), 1, following, least, most, 3)
    fields = {
        "suggestWhichBrokerId": "1",
        "nextBeginOffset": str(following),
        "minOffset": str(least),
        "maxOffset": str(most),
    }
    request = RemotingCommand(code=11, opaque=opaque, serialize_type=kind)
    assert RemotingCommand.decode(data + b"abc") == request.reply(
        19, remark or None, fields, b"abc"
    )


def test_a_long_or_unusual_remark_does_not_break_a_response():
    for kind in (0, 1):
        data = answers.pull_response(kind, -1, 1, b'"\\\x01' * 500, 2**63 - 1, *[-(2**63)] * 3, 0)
        assert RemotingCommand.decode(data).remark == "?" * 128


POP = {
    **{"consumerGroup": "G", "topic": "T", "queueId": "-1", "maxMsgNums": "32"},
    **{"invisibleTime": "60000", "pollTime": "15000", "bornTime": "7", "initMode": "1"},
    **{"exp": "A || B", "expType": "TAG", "order": "TRUE"},
}


def test_the_header_of_a_pop_is_read_as_python_reads_it() -> None:
    command = RemotingCommand(code=200_050, ext_fields=POP)
    header = PopMessageRequestHeader.read(command)
    found = HeaderDecoder().pop(command.encode())
    assert found == (
        *(header.consumer_group, header.topic, header.exp, header.exp_type, header.queue_id),
        *(header.max_msg_nums, header.init_mode, header.invisible_time, header.poll_time),
        *(header.born_time, header.order),
    )
    optional = {"bornTime", "exp", "expType", "order"}
    for name in POP:
        command.ext_fields = {key: value for key, value in POP.items() if key != name}
        assert (HeaderDecoder().pop(command.encode()) is None) == (name not in optional)
    for name in ("queueId", "maxMsgNums", "invisibleTime", "pollTime", "bornTime", "initMode"):
        command.ext_fields = POP | {name: "x"}
        assert HeaderDecoder().pop(command.encode()) is None
