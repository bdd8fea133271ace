"""Outgoing messages, decoded by the test itself."""

import struct
import zlib

import pytest

from congreve.client.errors import InvalidMessageError
from congreve.client.message import Message
from congreve.client.outgoing import prepare, prepare_batches


def properties(text: str) -> dict[str, str]:
    return dict(entry.split("\x01") for entry in text.split("\x02") if entry)


def elements(body: bytes) -> list[tuple[int, bytes, dict[str, str]]]:
    """(flag, body, properties) of each element of a batch."""
    found, at = [], 0
    while at < len(body):
        size, magic, crc, flag, length = struct.unpack_from(">iiiii", body, at)
        assert (magic, crc) == (0, 0)
        content = body[at + 20 : at + 20 + length]
        (rest,) = struct.unpack_from(">h", body, at + 20 + length)
        text = body[at + 22 + length : at + 22 + length + rest].decode()
        assert size == 22 + length + rest
        found.append((flag, content, properties(text)))
        at += size
    return found


def test_system_properties_are_added_to_a_copy_of_the_message() -> None:
    message = Message(
        topic="T", body=b"x", tags="A", keys="k1 k2", delay_level=3, properties={"ü": "v"}, flag=9
    )
    outgoing = prepare(message, "ID", compress_from=4096)
    assert properties(outgoing.properties) == {
        "ü": "v",
        "KEYS": "k1 k2",
        "TAGS": "A",
        "UNIQ_KEY": "ID",
        "WAIT": "true",
        "DELAY": "3",
    }
    assert (outgoing.flag, outgoing.sys_flag, outgoing.body) == (9, 0, b"x")
    assert message.properties == {"ü": "v"}


def test_a_send_without_waiting_sets_its_property() -> None:
    outgoing = prepare(Message(topic="T", body=b"x", wait=False), "ID", compress_from=4096)
    assert properties(outgoing.properties)["WAIT"] == "false"


@pytest.mark.parametrize(("size", "compressed"), [(4095, False), (4096, True)])
def test_long_bodies_are_compressed_as_java_does(size: int, compressed: bool) -> None:
    outgoing = prepare(Message(topic="T", body=b"x" * size), "ID", compress_from=4096)
    assert outgoing.sys_flag == (0x301 if compressed else 0)
    body = zlib.decompress(outgoing.body) if compressed else outgoing.body
    assert body == b"x" * size


def test_batch_elements_have_their_own_flags_and_properties() -> None:
    messages = [Message(topic="T", body=b"m%d" % i, flag=i, tags=f"t{i}") for i in range(3)]
    ids = iter(["I0", "I1", "I2"])
    (batch,) = prepare_batches(messages, lambda: next(ids), body_max=1000)
    assert batch.is_batch
    assert batch.message_id == "I0,I1,I2"
    assert [
        (flag, body, props["TAGS"], props["UNIQ_KEY"]) for flag, body, props in elements(batch.body)
    ] == [(0, b"m0", "t0", "I0"), (1, b"m1", "t1", "I1"), (2, b"m2", "t2", "I2")]


def test_batch_over_the_limit_is_split_in_order() -> None:
    messages = [Message(topic="T", body=bytes([i]) * 100) for i in range(10)]
    batches = list(prepare_batches(messages, lambda: "I", body_max=500))
    assert len(batches) > 1
    assert all(len(batch.body) <= 500 for batch in batches)
    bodies = [body for batch in batches for _, body, _ in elements(batch.body)]
    assert bodies == [message.body for message in messages]


def test_message_that_fits_no_batch_is_refused() -> None:
    with pytest.raises(InvalidMessageError, match="500"):
        list(prepare_batches([Message(topic="T", body=b"x" * 499)], lambda: "I", body_max=500))


@pytest.mark.parametrize(
    "more",
    [
        {"properties": {"n": "a\x02b"}},
        {"properties": {"n\x01": "v"}},
        {"keys": "k\x02"},
        {"properties": {"n": "x" * 40_000}},
    ],
)
def test_properties_that_no_record_can_hold_are_refused(more: dict[str, object]) -> None:
    with pytest.raises(InvalidMessageError):
        prepare(Message(topic="T", body=b"x", **more), "ID", compress_from=4096)
