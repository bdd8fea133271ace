"""Splitting a chunk of 32 sends, decoding their headers, and writing answers.

`send` builds a Python tuple for each frame, which the broker's fast path does not.
"""

import pytest

from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.wire import answers, frame
from congreve.remoting.wire.header_decoder import HeaderDecoder

SENDS = 32
FIELDS = {
    "a": "bench_group",
    "b": "TopicBenchmark",
    "c": "TBW102",
    "d": "4",
    "e": "1",
    "f": "0",
    "g": "1700000000000",
    "h": "0",
    "i": "UNIQ_KEY\x017F0000010A2B18B4AAC20000000A0000\x02WAIT\x01true\x02TAGS\x01TagA\x02",
    "j": "0",
    "k": "false",
    "m": "false",
}
KINDS = pytest.mark.parametrize("kind", [0, 1], ids=["json", "binary"])


def send(kind: int) -> bytes:
    return RemotingCommand(
        code=310, opaque=123_456, ext_fields=FIELDS, serialize_type=kind, body=bytes(128)
    ).encode()


@KINDS
def test_split_32_sends(benchmark, kind):
    frames, taken, bad = benchmark(frame.split, send(kind) * SENDS)
    assert (len(frames), taken, bad) == (SENDS, SENDS * len(send(kind)), False)


@KINDS
def test_decode_32_send_headers(benchmark, kind):
    frames = [send(kind)] * SENDS
    decoder = HeaderDecoder()
    headers = benchmark(lambda: [decoder.send(each) for each in frames])
    assert headers[0][1] == "TopicBenchmark"


@KINDS
def test_decode_32_commands_in_python(benchmark, kind):
    frames = [send(kind)] * SENDS
    commands = benchmark(lambda: [RemotingCommand.decode_any(each) for each in frames])
    assert commands[0].ext_fields == FIELDS


@KINDS
def test_write_a_send_response(benchmark, kind):
    more = answers.send_response_constants({"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"})
    message_id = b"7F00000100002A9F0000000000000ABC"
    data = benchmark(answers.send_response, kind, 7, message_id, 3, 1_000_000, more[kind])
    assert RemotingCommand.decode(data).ext_fields["queueOffset"] == "1000000"
