"""Files of ParquetFile: pyarrow and DuckDB read the rows that were written, with the schema and the
statistics that pyarrow's own writer gives the same rows."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from congreve.lake.parquet.file_writer import ColumnOptions, ParquetFile
from congreve.lake.parquet.metadata import FIELD_ID, Codec, leaves

MAP = pa.map_(
    pa.field("key", pa.string(), nullable=False, metadata={FIELD_ID: b"8"}),
    pa.field("value", pa.string(), nullable=False, metadata={FIELD_ID: b"9"}),
)
SCHEMA = pa.schema(
    [
        pa.field("i32", pa.int32(), nullable=False, metadata={FIELD_ID: b"1"}),
        pa.field("i64", pa.int64(), nullable=False, metadata={FIELD_ID: b"2"}),
        pa.field("maybe", pa.int64(), metadata={FIELD_ID: b"3"}),
        pa.field("time", pa.timestamp("us", "UTC"), nullable=False, metadata={FIELD_ID: b"4"}),
        pa.field("text", pa.string(), metadata={FIELD_ID: b"5"}),
        pa.field("body", pa.binary(), nullable=False, metadata={FIELD_ID: b"6"}),
        pa.field("properties", MAP, nullable=False, metadata={FIELD_ID: b"7"}),
    ]
)
PATHS = [leaf.path for leaf in leaves(SCHEMA)]
I32, I64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
TIMES = st.integers(-(2**50), 2**50)
TEXTS = st.text(max_size=40)
FEW = st.sampled_from(["", "a", "tag", "TagTag-9", "a longer text of repeated values"])


def rows_of(texts: st.SearchStrategy[str], few: bool) -> st.SearchStrategy[dict[str, Any]]:
    """Rows whose numbers repeat, or do not."""
    small = st.integers(-2, 2)
    return st.fixed_dictionaries(
        {
            "i32": small if few else I32,
            "i64": small if few else I64,
            "maybe": st.none() | (small if few else I64),
            "time": small if few else TIMES,
            "text": st.none() | texts,
            "body": texts.map(str.encode),
            "properties": st.lists(st.tuples(texts, texts), max_size=4),
        }
    )


BATCHES = st.one_of(
    [
        st.lists(rows_of(texts, few), min_size=1, max_size=60)
        for texts in (FEW, TEXTS)
        for few in (True, False)
    ]
)


def batch_of(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


def written(
    batches: list[pa.RecordBatch], *, dictionaries: bool = True, codec: Codec = Codec.ZSTD
) -> bytes:
    sink = io.BytesIO()
    options = ColumnOptions(PATHS if dictionaries else (), PATHS, PATHS, codec)
    file = ParquetFile(sink, SCHEMA, options)
    for batch in batches:
        file.write(batch)
    footer = file.close()
    assert footer.equals(pq.read_metadata(pa.BufferReader(sink.getvalue())))
    return sink.getvalue()


def by_pyarrow(batches: list[pa.RecordBatch]) -> bytes:
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, SCHEMA, store_schema=False) as writer:
        for batch in batches:
            writer.write_table(pa.Table.from_batches([batch]))
    return sink.getvalue()


def statistics_of(data: bytes) -> list[tuple[str, Any, Any, int]]:
    footer = pq.read_metadata(pa.BufferReader(data))
    found = []
    for number in range(footer.num_row_groups):
        for place in range(footer.num_columns):
            chunk = footer.row_group(number).column(place)
            if "." not in chunk.path_in_schema:
                s = chunk.statistics
                found.append((chunk.path_in_schema, s.min, s.max, s.null_count))
    return found


@given(st.lists(BATCHES, min_size=1, max_size=3), st.booleans(), st.sampled_from(Codec), st.data())
@settings(max_examples=60, deadline=None)
def test_readers_find_the_written_rows(
    lists: list[list[dict[str, Any]]], dictionaries: bool, codec: Codec, data: st.DataObject
) -> None:
    batches = []
    for rows in lists:
        begin = data.draw(st.integers(0, len(rows) - 1))
        batches.append(batch_of(rows).slice(begin, data.draw(st.integers(1, len(rows)))))
    file = written(batches, dictionaries=dictionaries, codec=codec)
    theirs = by_pyarrow(batches)
    expected = pa.Table.from_batches(batches)
    found = pq.read_table(pa.BufferReader(file))
    assert found.schema.equals(pq.read_table(pa.BufferReader(theirs)).schema, check_metadata=True)
    assert found.to_pylist() == expected.to_pylist()
    assert statistics_of(file) == statistics_of(theirs)
    mine, other = (pq.ParquetFile(pa.BufferReader(f)).schema for f in (file, theirs))
    assert mine.equals(other)


def as_tuples(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [tuple(dict(v) if isinstance(v, list) else v for v in row.values()) for row in rows]


def repeated(count: int) -> list[dict[str, Any]]:
    """Rows with constant, rising and repeated values, and gaps."""
    return [
        {
            "i32": 7,
            "i64": number,
            "maybe": None if number % 3 else number // 100,
            "time": number // 25 * 1000,
            "text": None if number % 50 == 0 else f"Tag{number % 100}",
            "body": b"%08d" % number * (number % 40),
            "properties": [(f"k{i}", f"v{number * i}") for i in range(number % 6)],
        }
        for number in range(count)
    ]


@pytest.mark.parametrize("dictionaries", [True, False])
def test_chunks_of_several_pages_are_read_by_pyarrow_and_duckdb(
    tmp_path: Path, dictionaries: bool
) -> None:
    rows = repeated(20_000)
    file = written([batch_of(rows), batch_of(rows[5:9])], dictionaries=dictionaries)
    rows += rows[5:9]
    assert pq.read_table(pa.BufferReader(file)).equals(pa.Table.from_pylist(rows, schema=SCHEMA))
    path = tmp_path / "file.parquet"
    path.write_bytes(file)
    query = "select * replace (epoch_us(time) as time) from read_parquet(?)"
    assert duckdb.execute(query, [str(path)]).fetchall() == as_tuples(rows)


def test_a_dictionary_is_abandoned_if_values_do_not_repeat() -> None:
    footer = pq.read_metadata(pa.BufferReader(written([batch_of(repeated(20_000))])))
    chunks = [footer.row_group(0).column(place) for place in range(footer.num_columns)]
    with_dictionary = {c.path_in_schema for c in chunks if c.has_dictionary_page}
    assert with_dictionary == {"i32", "maybe", "time", "text", "properties.key_value.key"}


def test_a_null_in_a_required_column_is_refused() -> None:
    batch = batch_of(repeated(3))
    columns = [pa.nulls(3, pa.int32()), *batch.columns[1:]]
    with pytest.raises(ValueError, match="has nulls"):
        written([pa.RecordBatch.from_arrays(columns, SCHEMA.names)])
