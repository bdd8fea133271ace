"""Schemas of bodies: their columns, and which bodies fit."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from fastavro import parse_schema, schemaless_writer
from hypothesis import given, settings
from hypothesis import strategies as st

from congreve.lake.bodies.body_reader import BodyReader
from congreve.lake.bodies.body_schema import BodySchema, load_schema
from congreve.lake.errors import BodySchemaError

KINDS: dict[str, tuple[Any, pa.DataType, st.SearchStrategy[Any]]] = {
    "b": ("boolean", pa.bool_(), st.booleans()),
    "i": ("int", pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "l": ("long", pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "d": ("double", pa.float64(), st.floats(allow_nan=False, allow_infinity=False)),
    "s": ("string", pa.string(), st.text(max_size=9)),
    "y": ("bytes", pa.binary(), st.binary(max_size=9)),
    "e": (
        {"type": "enum", "name": "E", "symbols": ["A", "B"]},
        pa.string(),
        st.sampled_from(["A", "B"]),
    ),
    "day": (
        {"type": "int", "logicalType": "date"},
        pa.date32(),
        st.dates(date(1900, 1, 1), date(2200, 1, 1)),
    ),
    "at": (
        {"type": "long", "logicalType": "timestamp-micros"},
        pa.timestamp("us", tz="UTC"),
        st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC)),
    ),
    "m": (
        {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        pa.decimal128(9, 2),
        st.integers(-(10**9) + 1, 10**9 - 1).map(lambda n: Decimal(n).scaleb(-2)),
    ),
    "list": (
        {"type": "array", "items": ["null", "long"]},
        pa.list_(pa.field("element", pa.int64())),
        st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), max_size=3),
    ),
    "map": (
        {"type": "map", "values": "string"},
        pa.map_(pa.string(), pa.string()),
        st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=3),
    ),
}
ALL = {
    "type": "record",
    "name": "All",
    "fields": [{"name": name, "type": ["null", kind]} for name, (kind, _, _) in KINDS.items()],
}


def loaded(folder: Path, kind: str, schema: dict[str, Any]) -> BodySchema:
    path = folder / "schema.avsc"
    path.write_text(json.dumps(schema))
    return load_schema(f"{kind}:{path}")


def read(schema: BodySchema, *bodies: bytes) -> tuple[dict[str, list[Any]], dict[int, str]]:
    columns, failed = BodyReader(schema, schema.columns()).read(pa.array(bodies, pa.binary()))
    return {name: column.to_pylist() for name, column in columns.items()}, failed


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("schemas")


def test_columns_have_the_types_of_the_fields(folder: Path) -> None:
    columns = loaded(folder, "json", ALL).columns()
    assert {name: field.type for name, field in columns.items()} == {
        name: kind for name, (_, kind, _) in KINDS.items()
    }
    assert all(field.nullable for field in columns.values())


rows = st.lists(
    st.fixed_dictionaries({name: st.none() | values for name, (_, _, values) in KINDS.items()}),
    max_size=4,
)


@settings(max_examples=40, deadline=None)
@given(rows=rows)
def test_avro_bodies_have_the_values_that_were_written(
    folder: Path, rows: list[dict[str, Any]]
) -> None:
    avro = parse_schema(ALL)

    def body(row: dict[str, Any]) -> bytes:
        stream = BytesIO()
        schemaless_writer(stream, avro, row)
        return stream.getvalue()

    schema = loaded(folder, "avro", ALL)
    whole = [body(row) for row in rows]
    columns, failed = read(schema, *whole)
    assert not failed
    assert columns == {name: [as_read(row[name]) for row in rows] for name in KINDS}
    # One byte less, or more: none of them fits.
    _, failed = read(schema, *(data[:-1] for data in whole), *(data + b"\0" for data in whole))
    assert len(failed) == 2 * len(whole)


def as_read(value: Any) -> Any:
    return [*value.items()] if isinstance(value, dict) else value


@settings(max_examples=40, deadline=None)
@given(rows=rows)
def test_json_bodies_have_the_values_that_were_written(
    folder: Path, rows: list[dict[str, Any]]
) -> None:
    schema = loaded(folder, "json", ALL)
    given_bodies = [msgspec.json.encode({**row, "unknown": [{}]}) for row in rows]
    columns, failed = read(schema, *given_bodies)
    assert not failed
    assert columns == {name: [as_read(row[name]) for row in rows] for name in KINDS}


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "truncated"),
        (b"{", "truncated"),
        (b"[]", "Expected `object`"),
        (b'{"i": 2147483648}', "int"),
        (b'{"l": 9223372036854775808}', "int"),
        (b'{"i": "1"}', "Expected `int"),
        (b'{"at": "2026-01-01T00:00:00"}', "timezone"),
        (b'{"m": 12345678.9}', "precision"),
        (b'{"s": "\xff"}', "utf-8"),
        (b'{"i": 1} {"i": 2}', "trailing"),
        (b'{"list": [1, "2"]}', "$.list[1]"),
        (b"[" * 100_000, "Expected `object`"),
        (b'{"unknown":' + b"[" * 100_000, "recursion"),
    ],
)
def test_the_reason_says_why_a_body_does_not_fit(folder: Path, body: bytes, reason: str) -> None:
    schema = loaded(folder, "json", ALL)
    columns, failed = read(schema, b'{"i": 1}', body, b'{"i": 3}')
    assert columns["i"] == [1, 3]
    assert [*failed] == [1]
    assert reason.lower() in failed[1].lower()


def test_the_reason_for_a_short_avro_body_says_so(folder: Path) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "s", "type": "string"}]}
    columns, failed = read(loaded(folder, "avro", schema), b"\x02a", b"\x08a")
    assert columns == {"s": ["a"]}
    assert failed == {1: "BodyError: the body ends before the record"}


def test_a_required_field_may_neither_be_missing_nor_null(folder: Path) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "i", "type": "int"}]}
    columns, failed = read(loaded(folder, "json", schema), b"{}", b'{"i":null}', b'{"i":1}')
    assert columns == {"i": [1]}
    assert [*failed] == [0, 1]


def test_the_schema_can_be_one_of_arrow(tmp_path: Path) -> None:
    fields = pa.schema(
        [
            pa.field("n", pa.uint8(), nullable=False),
            pa.field("at", pa.timestamp("ms")),
            pa.field("Body", pa.large_string()),
            pa.field("s", pa.struct([pa.field("x", pa.float32(), nullable=False)])),
        ]
    )
    path = tmp_path / "order.arrow"
    path.write_bytes(fields.serialize())
    schema = load_schema(f"json:{path}")
    assert {name: field.name for name, field in schema.columns().items()} == {
        **{"n": "n", "at": "at", "Body": "body_Body", "s": "s"}
    }
    columns, failed = read(schema, b'{"n":1,"s":{"x":2}}', b'{"n":1,"s":{}}', b'{"at":null}')
    assert columns["s"] == [{"x": 2.0}]
    assert [*failed] == [1, 2]


RECORD = {"type": "record", "name": "R", "fields": []}


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ([], "no fields"),
        ([{"name": "u", "type": ["int", "string"]}], "one type"),
        ([{"name": "r", "type": ["null", "R"]}], "contains itself"),
        ([{"name": "n", "type": {"type": "array", "items": "null"}}], "may have no bytes"),
        (
            [
                {"name": "f", "type": {"type": "fixed", "name": "F", "size": 2}},
                {"name": "n", "type": {"type": "array", "items": "F"}},
            ],
            "may have no bytes",
        ),
        ([{"name": "A", "type": "int"}, {"name": "a", "type": "int"}], "named a"),
        ([{"name": "flag", "type": "int"}, {"name": "body_flag", "type": "int"}], "body_flag"),
        ([{"name": "x", "type": "wrong"}], "wrong"),
        ([{"name": "x"}], "type"),
    ],
)
def test_schemas_without_columns_are_refused(
    folder: Path, fields: list[dict[str, Any]], reason: str
) -> None:
    with pytest.raises(BodySchemaError, match=reason):
        loaded(folder, "avro", {**RECORD, "fields": fields})


@pytest.mark.parametrize("text", ["json", "json:", "xml:a.avsc", "json:/does/not/exist.avsc"])
def test_a_missing_schema_is_refused(text: str) -> None:
    with pytest.raises(BodySchemaError):
        load_schema(text)


def test_avro_bodies_need_a_schema_of_avro(tmp_path: Path) -> None:
    path = tmp_path / "schema.arrow"
    path.write_bytes(pa.schema([("n", pa.int32())]).serialize())
    with pytest.raises(BodySchemaError, match="schema of Avro"):
        load_schema(f"avro:{path}")
    path.write_bytes(b"nothing")
    with pytest.raises(BodySchemaError, match="no schema in Arrow"):
        load_schema(f"json:{path}")
