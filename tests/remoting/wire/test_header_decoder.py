"""A decoder that remembers headers decodes each one like a new decoder."""

import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.wire.header_decoder import HeaderDecoder

FIELDS = {
    "a": "group",
    "b": "topic-0001",
    "c": "TBW102",
    "d": "4",
    "e": "3",
    "f": "0",
    "g": "1700000000000",
    "h": "-7",
    "i": "UNIQ_KEY\x017F0000010A2B18B4\x02WAIT\x01true\x02K\x01\u00e9\U0001f600",
    "m": "false",
}


def send(opaque: int = 100_000, **changed: str) -> bytes:
    return RemotingCommand(code=310, opaque=opaque, ext_fields=FIELDS | changed).encode()


def test_headers_that_differ_only_in_plain_characters_share_one_cached_shape():
    decoder = HeaderDecoder()
    for number in range(1000):
        uniq = f"UNIQ_KEY\x01{number:016X}\x02WAIT\x01true\x02K\x01\u00e9\U0001f600"
        changed = {"b": f"topic-{number:04}", "e": str(number % 8), "i": uniq}
        head = decoder.head(send(opaque=100_000 + number, **changed))
        assert head == (310, 401, 100_000 + number, 0, FIELDS | changed)
        assert decoder.send(send(opaque=100_000 + number, **changed)) == (
            "group", f"topic-{number:04}", "TBW102", 4, number % 8, 0, 1_700_000_000_000, -7,
            uniq, 0, False,
        )  # fmt: skip
    assert decoder.remembered == 1


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"b": "ab\\"}, {"b": "ab\x07"[:2] + '"'}),  # one escape for another
        ({"b": "abcdef"}, {"b": "\x01"}),  # an escape where characters were
        ({"b": "\x01"}, {"b": "abcdef"}),
        ({"b": "ab"}, {"b": "\u00e9"}),  # two bytes of UTF-8 for two of ASCII
        ({"b": "\u00e9"}, {"b": "\u00ea"}),
        ({"b": "abc", "c": "d"}, {"b": "a", "c": "bcd"}),  # the same length, cut elsewhere
        ({"b": "1"}, {"x": "1"}),
    ],
)
def test_a_header_of_the_same_length_with_another_shape_is_parsed_again(first, second):
    decoder = HeaderDecoder()
    for fields in (first, second, first):
        command = RemotingCommand(code=310, opaque=7, ext_fields=fields)
        assert decoder.head(command.encode()) == (310, 401, 7, 0, fields)


@pytest.mark.parametrize("opaque", [99_999, 10_000, -1_234])
def test_every_opaque_is_read(opaque):
    decoder = HeaderDecoder()
    decoder.head(send(opaque=12_345))
    assert decoder.head(send(opaque=opaque)) == (310, 401, opaque, 0, FIELDS)


@pytest.mark.parametrize("digits", [b"01234", b"1234x", b"12 34", b"1e234", b'"123"', b"12-34"])
def test_python_handles_an_opaque_other_than_a_number(digits):
    data = send(opaque=12_345)
    decoder = HeaderDecoder()
    assert decoder.head(data)
    assert decoder.head(data.replace(b'"opaque":12345', b'"opaque":' + digits)) is None


MUTATION = st.tuples(st.integers(0, 10_000), st.sampled_from(b'a0"\\{},:un\x01\x80\xc3\xa9'))


@given(st.lists(st.lists(MUTATION, max_size=3), min_size=1, max_size=12))
def test_no_history_of_headers_changes_how_one_is_read(history):
    decoder = HeaderDecoder()
    for mutations in [[], *history, []]:
        data = bytearray(send())
        for at, sign in mutations:
            data[8 + at % (len(data) - 8)] = sign
        assert decoder.head(bytes(data)) == HeaderDecoder().head(bytes(data))
        assert decoder.send(bytes(data)) == HeaderDecoder().send(bytes(data))


def test_no_random_history_of_headers_changes_how_one_is_read():
    chance = random.Random(11)
    decoder = HeaderDecoder()
    read = 0
    for _ in range(30_000):
        data = bytearray(send(opaque=chance.randrange(100_000, 1_000_000)))
        for _ in range(chance.randrange(3)):
            data[chance.randrange(8, len(data))] = chance.choice(b'ab01"\\{},:u \x01\xc3\xa9')
        found = decoder.head(bytes(data))
        assert found == HeaderDecoder().head(bytes(data))
        read += found is not None
    assert read > 10_000
    assert decoder.remembered < read


def framed(header: bytes, body: bytes = b"") -> bytes:
    return struct.pack(">II", 4 + len(header) + len(body), len(header)) + header + body


def test_an_empty_header_is_never_read_like_an_earlier_one():
    """Otherwise its fields would come from the bytes behind it: another request, or other
    memory."""
    known = b'{"code":10,"opaque":123456,"extFields":{"a":"' + b"b" * 16 + b'"}}'
    assert len(known) == 64, "as many as there are shapes: an empty header looks at the same one"
    decoder = HeaderDecoder()
    assert decoder.head(framed(known)) == (10, 0, 123456, 0, {"a": "b" * 16})
    escaped = known.replace(b'"a":"bbbbb', b'"\\u0061":"')  # it cannot be remembered
    assert decoder.head(framed(escaped)) == (10, 0, 123456, 0, {"a": "b" * 11})
    assert decoder.head(framed(b"", known)) is None
