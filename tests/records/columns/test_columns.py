"""The columns builder, compared with the record codec, and given bytes that are not records."""

import json
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from congreve.records.columns import arrow
from congreve.records.columns.builder import KINDS, RecordColumns
from congreve.records.errors import CorruptRecordError, RecordError
from congreve.records.message.message import Record
from congreve.records.record import decode_record, encode_record, string_hash

VECTORS: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "golden/record_vectors.json").read_text()
)
TYPES = {**arrow.TYPES, "propertiesJson": pa.string()}

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02"), min_size=1)
RECORDS = st.builds(
    Record,
    topic=st.just("T"),
    body=st.binary(max_size=60),
    properties=st.dictionaries(TEXTS | st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY"]), TEXTS),
    queue_id=st.integers(0, 9),
    flag=st.integers(-(2**31), 2**31 - 1),
    sys_flag=st.sampled_from([0, 4, 8]),
    born_timestamp=st.integers(0, 2**42),
    store_timestamp=st.integers(0, 2**42),
    born_host=st.sampled_from([("10.0.0.7", 5), ("2001:db8::7", 70000), ("10.0.0.8", 5)]),
    store_host=st.sampled_from([("127.0.0.1", 10911), ("::1", 1)]),
    reconsume_times=st.integers(0, 20),
)


def log_of(records: list[Record], base: int = 0) -> tuple[bytes, list[Record]]:
    """The records in sequence, as in a log, and the codec's results for them."""
    log = b""
    for offset, record in enumerate(records):
        record.queue_offset, record.physical_offset = offset, base + len(log)
        log += encode_record(record)
    positions = [record.physical_offset - base for record in records]
    return log, [decode_record(log, position) for position in positions]


def entries(records: list[Record], codes: list[int] | None = None) -> tuple[Any, ...]:
    return (
        np.array([record.physical_offset for record in records], np.int64),
        np.array([record.size for record in records], np.int32),
        np.array([record.queue_offset for record in records], np.int64),
        np.array(codes or [code_of(record) for record in records], np.int64),
    )


def code_of(record: Record) -> int:
    return string_hash(record.properties.get("TAGS", ""))


def table(columns: RecordColumns) -> dict[str, list[Any]]:
    return {
        name: arrow.to_array(column, TYPES[name]).to_pylist()
        for name, column in columns.take().items()
    }


def host(pair: tuple[str, int]) -> str:
    return f"[{pair[0]}]:{pair[1]}" if ":" in pair[0] else f"{pair[0]}:{pair[1]}"


def expected(record: Record) -> dict[str, Any]:
    raw = (
        bytes(map(int, record.store_host[0].split(".")))
        if "." in record.store_host[0]
        else (bytes(15) + b"\x01")
    )
    place = (raw + struct.pack(">iq", record.store_host[1], record.physical_offset)).hex().upper()
    return {
        "queueId": record.queue_id,
        "flag": record.flag,
        "sysFlag": record.sys_flag,
        "bodyCRC": record.body_crc,
        "storeSize": record.size,
        "reconsumeTimes": record.reconsume_times,
        "queueOffset": record.queue_offset,
        "commitLogOffset": record.physical_offset,
        "tagsCode": code_of(record),
        "bornTimestamp": record.born_timestamp,
        "storeTimestamp": record.store_timestamp,
        "body": record.body,
        "tags": record.properties.get("TAGS"),
        "keys": record.properties.get("KEYS"),
        "msgId": record.properties.get("UNIQ_KEY", place),
        "offsetMsgId": place,
        "bornHost": host(record.born_host),
        "storeHost": host(record.store_host),
        "properties": record.properties,
        "propertiesJson": record.properties,
    }


def compare(found: dict[str, list[Any]], records: list[Record]) -> None:
    for name in ("bornTimestamp", "storeTimestamp"):
        found[name] = [int(value.timestamp() * 1000 + 0.5) for value in found[name]]
    found["properties"] = [dict(pairs) for pairs in found["properties"]]
    found["propertiesJson"] = [json.loads(text) for text in found["propertiesJson"]]
    wanted = [expected(record) for record in records]
    assert found == {name: [row[name] for row in wanted] for name in KINDS}


@settings(max_examples=60)
@given(st.lists(RECORDS, min_size=1, max_size=6), st.sampled_from([0, 1 << 30]))
def test_columns_equal_the_values_that_the_codec_decodes(records: list[Record], base: int) -> None:
    log, decoded = log_of(records, base)
    columns = RecordColumns(KINDS, verify_crc=True)
    assert columns.add_entries(log, base, *entries(decoded)) == len(records)
    compare(table(columns), decoded)
    assert columns.add_records(log) == len(records)
    compare(table(columns), decoded)


def test_rows_of_several_chunks_keep_their_order() -> None:
    records = [
        Record(topic="T", body=b"%d" % i, properties={"TAGS": f"T{i % 3}"} if i % 5 else {})
        for i in range(1000)
    ]
    log, decoded = log_of(records)
    columns = RecordColumns(["queueOffset", "body", "tags"])
    columns.add_entries(log, 0, *entries(decoded[:700]))
    columns.add_records(log, begin_offset=700, end_offset=990)
    found = table(columns)
    assert found["queueOffset"] == list(range(990))
    assert found["body"] == [record.body for record in records[:990]]
    assert found["tags"] == [record.properties.get("TAGS") for record in records[:990]]


@pytest.mark.parametrize("vector", VECTORS["commitlog_record"], ids=lambda v: v["name"])
def test_records_that_java_wrote_become_rows(vector: dict[str, Any]) -> None:
    columns = RecordColumns(["body", "queueOffset", "storeTimestamp", "bornHost"], verify_crc=True)
    columns.add_records(bytes.fromhex(vector["record_hex"]))
    row = table(columns)
    assert row["body"] == [bytes.fromhex(vector["body_hex"])]
    assert row["queueOffset"] == [vector["queueOffset"]]
    assert row["storeTimestamp"][0].timestamp() == pytest.approx(vector["storeTs"] / 1000)
    assert row["bornHost"] == [host(tuple(vector["born"]))]


def test_a_tag_filter_compares_the_tag_and_not_its_hash() -> None:
    # Aa and BB have the same hash
    log, decoded = log_of(
        [Record(topic="T", body=b"", properties={"TAGS": tag}) for tag in ("Aa", "BB", "AaB", "Aa")]
    )
    columns = RecordColumns(["queueOffset"], tags=["Aa"])
    assert columns.add_entries(log, 0, *entries(decoded)) == 2
    assert table(columns) == {"queueOffset": [0, 3]}


def test_only_body_columns_read_bodies() -> None:
    log, decoded = log_of([Record(topic="T", body=bytes(1000)) for _ in range(10)])
    touched = {}
    for name in KINDS:
        columns = RecordColumns([name])
        columns.add_entries(log, 0, *entries(decoded))
        touched[name] = columns.bytes_read
    assert touched.pop("body") == len(log)
    assert set(touched.values()) == {len(log) - 10_000}


def test_a_damaged_record_is_an_error_or_a_row_of_nulls() -> None:
    log, decoded = log_of([Record(topic="T", body=b"body") for _ in range(4)])
    damaged = bytearray(log)
    damaged[decoded[1].physical_offset + 4] ^= 1  # magic
    damaged[decoded[2].physical_offset + 88] ^= 1  # body
    with pytest.raises(CorruptRecordError, match=r"queue offset 1, physical offset 9\d: no record"):
        RecordColumns(["body"]).add_entries(damaged, 0, *entries(decoded))
    columns = RecordColumns(["queueOffset", "flag", "body"], verify_crc=True, keep_corrupt=True)
    assert columns.add_entries(damaged, 0, *entries(decoded)) == 4
    assert [(row, why.split(":")[0]) for row, why in columns.corrupt] == [
        (1, "no record"),
        (2, "the body's CRC is wrong"),
    ]
    found = table(columns)
    assert found["queueOffset"] == [0, 1, 2, 3]
    assert found["flag"] == [0, None, 0, 0]
    assert found["body"][0] == b"body"
    assert found["body"][1] is None


def test_entries_with_wrong_positions_cause_no_crash() -> None:
    log, decoded = log_of([Record(topic="T", body=b"body")])
    for physical in (-1, -(2**63), len(log), 2**62, 5):
        lying = list(entries(decoded))
        lying[0] = np.array([physical], np.int64)
        with pytest.raises(CorruptRecordError):
            RecordColumns(["body"]).add_entries(log, 0, *lying)
    for size in (0, -5, 2**31 - 1):
        lying = list(entries(decoded))
        lying[1] = np.array([size], np.int32)
        with pytest.raises(CorruptRecordError):
            RecordColumns(["body"]).add_entries(log, 0, *lying)


@given(st.data())
@settings(max_examples=60)
def test_flipped_bytes_never_give_another_body(data: st.DataObject) -> None:
    log, decoded = log_of([Record(topic="T", body=b"body%d" % i) for i in range(3)])
    damaged = bytearray(log)
    damaged[data.draw(st.integers(0, len(log) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    columns = RecordColumns(["body"], verify_crc=True, keep_corrupt=True)
    columns.add_entries(damaged, 0, *entries(decoded))
    bad = {row for row, _ in columns.corrupt}
    found = table(columns)["body"]
    assert all(found[i] == b"body%d" % i for i in range(3) if i not in bad)


def test_a_compressed_body_is_decompressed_unless_the_caller_wants_it_stored() -> None:
    plain = b"x" * 10_000
    log, decoded = log_of(
        [
            Record(topic="T", body=zlib.compress(plain), sys_flag=1),
            Record(topic="T", body=b"no zlib", sys_flag=1),
            Record(topic="T", body=b"after"),
        ]
    )
    columns = RecordColumns(["body"], keep_corrupt=True)
    columns.add_entries(log, 0, *entries(decoded))
    assert columns.corrupt == [(1, "the body cannot be decompressed")]
    assert table(columns)["body"] == [plain, None, b"after"]
    columns = RecordColumns(["body"], decompress=False)
    columns.add_entries(log, 0, *entries(decoded))
    assert table(columns)["body"] == [record.body for record in decoded]


@pytest.mark.parametrize(
    "one",
    [
        Record(topic="T", body=zlib.compress(b"x" * 100), sys_flag=1),
        Record(topic="T", body=b"", properties={"TAGS": "no UTF-8"}),
    ],
    ids=["compressed", "no UTF-8"],
)
def test_many_values_with_invalid_utf8_do_not_double_the_memory_each(one: Record) -> None:
    # 40 messages once asked for 2 ** 40 bytes.
    log, decoded = log_of([one] * 200)
    columns = RecordColumns(["body", "tags"])
    columns.add_entries(log.replace(b"no UTF-8", b"no \xffTF-8"), 0, *entries(decoded))
    found = table(columns)
    assert len(found["body"]) == 200
    assert set(found["tags"]) <= {None, "no \ufffdTF-8"}
    assert set(found["body"]) <= {b"", b"x" * 100}


def test_invalid_utf8_is_decoded_as_by_the_codec() -> None:
    log, decoded = log_of([Record(topic="T", body=b"", properties={"TAGS": "abcd", "k": "wxyz"})])
    damaged = log.replace(b"abcd", b"a\xff\xc3\xa9").replace(b"wxyz", b"\xe2\x82\xe2\x82")
    columns = RecordColumns(["tags", "properties", "propertiesJson"])
    columns.add_entries(damaged, 0, *entries(decoded))
    found = table(columns)
    wanted = decode_record(damaged).properties
    assert found["tags"] == [wanted["TAGS"]]
    assert dict(found["properties"][0]) == wanted
    assert json.loads(found["propertiesJson"][0]) == wanted


def test_the_last_of_equal_property_names_wins() -> None:
    log, decoded = log_of([Record(topic="T", body=b"", properties={"a": "1", "b": "2"})])
    columns = RecordColumns(["properties"])
    columns.add_entries(log.replace(b"b\x01", b"a\x01"), 0, *entries(decoded))
    assert table(columns)["properties"] == [[("a", "2")]]


def test_the_error_for_an_unknown_column_names_it() -> None:
    with pytest.raises(RecordError, match="no column is named 'bodie'"):
        RecordColumns(["bodie"])
    with pytest.raises(RecordError, match="no column is named 'bodie'"):
        arrow.schema(["bodie"])
    with pytest.raises(RecordError, match="no valid record at byte 0"):
        RecordColumns(["body"]).add_records(b"x" * 200)


def test_a_batch_has_its_schema_and_nulls_for_absent_values() -> None:
    log, decoded = log_of([Record(topic="T", body=b"b") for _ in range(3)])
    columns = RecordColumns(["body", "queueOffset"])
    columns.add_entries(log, 0, *entries(decoded))
    wanted = arrow.schema(["queueOffset", "topic", "body", "tags"])
    given_columns = {**columns.take(), "topic": arrow.repeated("T", pa.string(), 3)}
    batch = arrow.to_batch(given_columns, wanted, 3)
    batch.validate(full=True)
    assert batch.schema == wanted
    assert batch.to_pylist()[2] == {"queueOffset": 2, "topic": "T", "body": b"b", "tags": None}
