"""The record layout compared with Java's bytes, and rejection of inconsistent records."""

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from congreve.records.errors import RecordError
from congreve.records.message.message import Record
from congreve.records.message.property_codec import decode_properties, encode_properties
from congreve.records.record import (
    decode_record,
    decode_records,
    encode_record,
    offset_message_id,
    parse_offset_message_id,
    queue_offsets,
)

VECTORS: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "golden/record_vectors.json").read_text()
)
RECORD = Record(
    topic="TopicTest",
    body=b"Hello RocketMQ",
    properties={"TAGS": "TagA", "KEYS": "k1 k2"},
    queue_id=3,
    born_host=("192.168.1.10", 54321),
    store_host=("2001:db8::7", 10911),
    queue_offset=42,
    physical_offset=1234567,
)


def record_of(vector: dict[str, Any]) -> Record:
    return Record(
        topic=vector["topic"],
        body=bytes.fromhex(vector["body_hex"]),
        properties=decode_properties(bytes.fromhex(vector["props_utf8_hex"])),
        queue_id=vector["queueId"],
        flag=vector["flag"],
        sys_flag=vector["sysFlag"],
        born_timestamp=vector["bornTs"],
        born_host=tuple(vector["born"]),
        store_host=tuple(vector["store"]),
        reconsume_times=vector.get("reconsumeTimes", 0),
        prepared_offset=vector.get("preparedTransactionOffset", vector.get("prepared", 0)),
        store_timestamp=vector["storeTs"],
        queue_offset=vector["queueOffset"],
        physical_offset=vector["physOffset"],
    )


@pytest.mark.parametrize("vector", VECTORS["commitlog_record"], ids=lambda v: v["name"])
def test_a_record_equals_what_java_writes_byte_for_byte(vector: dict[str, Any]) -> None:
    stored = bytes.fromhex(vector["record_hex"])
    at = vector["field_offsets"]
    decoded = decode_record(stored, physical_offset=vector["physOffset"])
    assert decoded.topic == vector["topic"]
    assert decoded.body == bytes.fromhex(vector["body_hex"])
    assert decoded.sys_flag == vector["stored_sysFlag"]
    assert decoded.born_host == tuple(vector["born"])
    assert decoded.store_host == tuple(vector["store"])
    assert decoded.store_timestamp == vector["storeTs"]
    assert decoded.size == vector["total"]
    assert struct.unpack_from(">i", stored, at["bodyCRC"])[0] == decoded.body_crc
    assert encode_record(decoded) == stored


@pytest.mark.parametrize("vector", VECTORS["commitlog_record"], ids=lambda v: v["name"])
def test_host_bits_come_from_the_addresses_and_not_from_the_sys_flag(
    vector: dict[str, Any],
) -> None:
    decoded = decode_record(bytes.fromhex(vector["record_hex"]))
    decoded.sys_flag ^= 0x30
    assert encode_record(decoded) == bytes.fromhex(vector["record_hex"])


def test_the_batch_vector_decodes_to_its_messages() -> None:
    batch = VECTORS["batch"]
    body = bytes.fromhex(batch["records_hex"])
    records = decode_records(body)
    assert queue_offsets(body) == [record.queue_offset for record in records]
    assert [r.body.hex() for r in records] == [m["body_hex"] for m in batch["messages"]]
    assert [r.flag for r in records] == [m["flag"] for m in batch["messages"]]
    assert [r.queue_offset for r in records] == [7, 8, 9]
    host = tuple(batch["store"])
    ids = ",".join(offset_message_id(host, r.physical_offset) for r in records)
    assert ids == batch["msg_id"]


int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
hosts = st.tuples(
    st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)).map(str), st.integers(0, 65535)
)
words = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\1\2"), min_size=1)
records = st.builds(
    Record,
    topic=st.text("abcXYZ019_-%|", min_size=1, max_size=127),
    body=st.binary(max_size=300),
    properties=st.dictionaries(words, words, max_size=5),
    queue_id=int32,
    flag=int32,
    sys_flag=st.integers(0, 15),
    born_timestamp=int64,
    born_host=hosts,
    store_host=hosts,
    reconsume_times=int32,
    prepared_offset=int64,
    store_timestamp=int64,
    queue_offset=int64,
    physical_offset=int64,
)


@given(record=records)
@example(record=RECORD)
def test_an_encoded_record_decodes_to_the_same_message(record: Record) -> None:
    encoded = encode_record(record)
    decoded = decode_record(b"??" + encoded, 2, physical_offset=record.physical_offset)
    assert decoded.size == len(encoded)
    assert encode_record(decoded) == encoded
    decoded.size = decoded.body_crc = 0
    decoded.sys_flag &= ~0x30
    for field in ("born_host", "store_host"):  # the text of an IPv6 address is not unique
        assert getattr(decoded, field)[1] == getattr(record, field)[1]
        setattr(decoded, field, getattr(record, field))
    assert decoded == record


@given(place=st.integers(0, 1000), value=st.integers(0, 255), cut=st.integers(0, 1000))
def test_mutated_bytes_are_refused_or_a_record_within_bounds(
    place: int, value: int, cut: int
) -> None:
    whole = bytearray(encode_record(RECORD))
    whole[place % len(whole)] = value
    part = bytes(whole[: max(1, cut)])
    try:
        decoded = decode_record(part)
    except RecordError:
        return
    assert decoded.size == len(encode_record(RECORD)) <= len(part)


@given(noise=st.binary(max_size=200))
def test_noise_after_a_valid_magic_code_is_refused_or_bounded(noise: bytes) -> None:
    head = struct.pack(">ii", 8 + len(noise), -626843481)
    try:
        decoded = decode_record(head + noise)
    except RecordError:
        return
    assert decoded.size == 8 + len(noise)


@pytest.mark.parametrize("size", [2**31 - 1, -1, -(2**31), 0, 8, 90])
def test_a_wrong_total_size_is_refused(size: int) -> None:  # defect D12
    encoded = bytearray(encode_record(RECORD))
    struct.pack_into(">i", encoded, 0, size)
    with pytest.raises(RecordError):
        decode_record(bytes(encoded))


def test_a_record_at_another_position_than_it_names_is_refused() -> None:  # defect D6
    encoded = encode_record(RECORD)
    assert decode_record(encoded, physical_offset=1234567).queue_offset == 42
    with pytest.raises(RecordError):
        decode_record(encoded, physical_offset=1234568)


def test_a_topic_length_over_127_is_refused() -> None:
    encoded = bytearray(encode_record(Record(topic="a", body=b"")))
    encoded[88] = 0x81
    encoded[89:89] = b"a" * 0x80
    struct.pack_into(">i", encoded, 0, len(encoded))
    with pytest.raises(RecordError):
        decode_record(bytes(encoded))


def test_a_crc_check_finds_a_flipped_bit_in_the_body() -> None:
    encoded = bytearray(encode_record(RECORD))
    encoded[encoded.index(b"Hello")] ^= 4
    with pytest.raises(RecordError):
        decode_record(encoded)
    assert decode_record(encoded, verify_crc=False).body == b"Lello RocketMQ"


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"topic": "t" * 128}, "topic"),
        ({"topic": ""}, "topic"),
        ({"properties": {"k": "v" * 32767}}, "properties"),
        ({"properties": {"k\x01": "v"}}, "separator"),
        ({"properties": {"k": "v\x02"}}, "separator"),
        ({"queue_id": 2**31}, "large"),
        ({"born_host": ("broker-a", 1)}, "broker-a"),
    ],
)
def test_values_that_no_record_can_hold_are_refused_with_a_reason(
    changes: dict[str, Any], word: str
) -> None:
    with pytest.raises(RecordError, match=word):
        encode_record(Record(**{"topic": "t", "body": b"", **changes}))


@pytest.mark.parametrize("vector", VECTORS["properties_encode"], ids=lambda v: ascii(v["string"]))
def test_properties_are_encoded_as_java_does(vector: dict[str, Any]) -> None:
    assert encode_properties(dict(vector["pairs"])).hex() == vector["utf8_hex"]


@pytest.mark.parametrize("vector", VECTORS["properties_decode"], ids=lambda v: ascii(v["string"]))
def test_properties_are_decoded_as_java_does(vector: dict[str, Any]) -> None:
    assert decode_properties(bytes.fromhex(vector["utf8_hex"])) == vector["decoded"]


@given(raw=st.binary(max_size=60) | st.text("ab\1\2").map(str.encode))
def test_any_property_bytes_can_be_read(raw: bytes) -> None:
    for name, value in decode_properties(raw).items():
        assert name and value


@pytest.mark.parametrize("vector", VECTORS["offset_msg_id"], ids=lambda v: v["id"])
def test_offset_message_ids_are_encoded_and_decoded(vector: dict[str, Any]) -> None:
    host = (vector["ip"], vector["port"])
    assert offset_message_id(host, vector["offset"]) == vector["id"]
    assert parse_offset_message_id(vector["id"]) == (host, vector["offset"])


@pytest.mark.parametrize(
    "text", ["", "0A", "z" * 32, "0A000007 2A9F000000000012D687 123", "é" * 32]
)
def test_an_invalid_message_id_is_refused(text: str) -> None:
    with pytest.raises(RecordError):
        parse_offset_message_id(text)
