"""Rows of a table become the records that the log had."""

from __future__ import annotations

import zlib

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from congreve.records.columns.arrow import schema, to_batch
from congreve.records.columns.builder import RecordColumns
from congreve.records.columns.stored import COLUMNS, stored_rows
from congreve.records.errors import RecordError
from congreve.records.message.message import Record
from congreve.records.record import decode_record, encode_record

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), min_size=1, max_size=9)
HOSTS = st.tuples(
    st.sampled_from(["10.0.0.7", "255.255.255.255", "0.0.0.0", "2001:db8::7", "::1"]),
    st.integers(0, 65_535),
)
RECORDS = st.builds(
    Record,
    topic=st.just("orders"),
    body=st.binary(max_size=40),
    properties=st.dictionaries(TEXT, TEXT, max_size=4),
    queue_id=st.just(3),
    flag=st.integers(-(2**31), 2**31 - 1),
    sys_flag=st.sampled_from([0, 2, 8]),
    born_timestamp=st.integers(0, 2**41),
    store_timestamp=st.integers(0, 2**41),
    born_host=HOSTS,
    store_host=HOSTS,
    reconsume_times=st.integers(0, 2**31 - 1),
    physical_offset=st.integers(0, 2**50),
)


def rows_of(records: list[bytes], large: bool = False) -> pa.RecordBatch:
    columns = RecordColumns(COLUMNS)
    columns.add_records(b"".join(records))
    batch = to_batch(columns.take(), schema(COLUMNS), len(records))
    if not large:
        return batch
    wide = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}
    return pa.RecordBatch.from_arrays(
        [column.cast(wide.get(column.type, column.type)) for column in batch.columns],
        batch.schema.names,
    )


@given(st.lists(RECORDS, min_size=1, max_size=9), st.booleans(), st.data())
def test_records_come_back_byte_for_byte(
    records: list[Record], large: bool, data: st.DataObject
) -> None:
    encoded = [
        encode_record(msgspec.structs.replace(record, queue_offset=7 + number))
        for number, record in enumerate(records)
    ]
    start = data.draw(st.integers(0, len(records) - 1))
    found = stored_rows(rows_of(encoded, large).slice(start), "orders", 3)
    assert found.records == b"".join(encoded[start:])
    assert (found.first, found.stop) == (7 + start, 7 + len(records))
    assert np.diff(found.ends, prepend=0).tolist() == [len(one) for one in encoded[start:]]


def test_a_compressed_body_becomes_plain() -> None:
    body = b"text " * 99
    record = Record(topic="orders", body=zlib.compress(body), sys_flag=0x1, queue_id=3)
    found = stored_rows(rows_of([encode_record(record)]), "orders", 3)
    plain = decode_record(found.records)
    assert (plain.body, plain.sys_flag) == (body, 0)


@pytest.mark.parametrize("host", ["10.0.0.7", "10.0.0:1", "10.0.0.256:1", "[::x]:1", "a:1", ":1"])
def test_a_host_that_is_none_is_refused(host: str) -> None:
    rows = rows_of([encode_record(Record(topic="orders", body=b"", queue_id=3))])
    place = rows.schema.names.index("bornHost")
    wrong = rows.set_column(place, "bornHost", pa.array([host]))
    with pytest.raises(RecordError, match="queue offset 0 cannot be encoded"):
        stored_rows(wrong, "orders", 3)
