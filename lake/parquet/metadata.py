"""The metadata of a Parquet file: headers of pages and the footer, as parquet.thrift has them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

import pyarrow as pa

from congreve import __version__
from congreve.lake.parquet import thrift
from congreve.lake.parquet.thrift import Value

MAGIC = b"PAR1"
FIELD_ID = b"PARQUET:field_id"
LONGEST_BOUND = 4096
"""Longer least or greatest values are left out."""


class Physical(IntEnum):
    """Type in the format."""

    INT32 = 1
    INT64 = 2
    FLOAT = 4
    DOUBLE = 5
    BYTE_ARRAY = 6


class Encoding(IntEnum):
    """Encoding in the format."""

    PLAIN = 0
    RLE = 3
    RLE_DICTIONARY = 8


class Codec(IntEnum):
    """CompressionCodec in the format."""

    UNCOMPRESSED = 0
    SNAPPY = 1
    ZSTD = 6
    LZ4_RAW = 7


class Repetition(IntEnum):
    """FieldRepetitionType in the format."""

    REQUIRED = 0
    OPTIONAL = 1
    REPEATED = 2


UTF8, MAP, DATE, TIMESTAMP_MICROS = 0, 1, 6, 10
"""Values of ConvertedType, for old readers."""
STRING_TYPE = thrift.union(1)
MAP_TYPE = thrift.union(2)
DATE_TYPE = thrift.union(6)
TIMESTAMP_TYPE = thrift.union(8, thrift.struct({1: thrift.boolean(value=True), 2: thrift.union(2)}))
"""Values of the union LogicalType; times are UTC, in microseconds."""

_PHYSICAL = {
    pa.int32(): Physical.INT32,
    pa.int64(): Physical.INT64,
    pa.float32(): Physical.FLOAT,
    pa.float64(): Physical.DOUBLE,
    pa.date32(): Physical.INT32,
    pa.timestamp("us", tz="UTC"): Physical.INT64,
    pa.string(): Physical.BYTE_ARRAY,
    pa.binary(): Physical.BYTE_ARRAY,
}
_ENCODINGS = {
    last: thrift.array(map(thrift.i32, dict.fromkeys((Encoding.PLAIN, Encoding.RLE, last))))
    for last in (Encoding.PLAIN, Encoding.RLE_DICTIONARY)
}
"""All encodings of a chunk, by that of its data pages."""
_LEVELS = {3: thrift.i32(Encoding.RLE), 4: thrift.i32(Encoding.RLE)}
_WIDTH = {
    Physical.INT32: 4,
    Physical.INT64: 8,
    Physical.FLOAT: 4,
    Physical.DOUBLE: 8,
    Physical.BYTE_ARRAY: 0,
}


@dataclass(frozen=True)
class Leaf:
    """A column of the file: a field of the schema, or the keys or values of a map."""

    path: str
    column: int
    part: int
    """0 for a field, 1 for the keys and 2 for the values of a map."""
    physical: Physical
    optional: bool

    @property
    def width(self) -> int:
        """Bytes of a number, 0 for texts."""
        return _WIDTH[self.physical]

    @cached_property
    def path_in_schema(self) -> Value:
        """The parts of the path."""
        return thrift.array(map(thrift.text, self.path.split(".") if self.part else [self.path]))


@dataclass
class Chunk:
    """The footer's entry for a column in one row group; offsets are positions in the file."""

    begin: int
    dictionary_at: int | None = None
    data_at: int = 0
    values: int = 0
    plain_bytes: int = 0
    """Bytes of the pages before compression, with headers."""
    file_bytes: int = 0
    encoding: Encoding = Encoding.PLAIN
    codec: Codec = Codec.UNCOMPRESSED
    statistics: Value | None = None


def has_leaves(schema: pa.Schema) -> bool:
    """Whether leaves() supports a schema."""
    return all(
        (field.type in _PHYSICAL)
        or (
            pa.types.is_map(field.type)
            and not field.nullable
            and not field.type.item_field.nullable
            and {field.type.key_type, field.type.item_type} <= _PHYSICAL.keys()
        )
        for field in schema
    )


def leaves(schema: pa.Schema) -> list[Leaf]:
    """The columns of a file with a supported schema."""
    found = []
    for number, field in enumerate(schema):
        if pa.types.is_map(field.type):
            for part, inner in enumerate((field.type.key_field, field.type.item_field), 1):
                path = f"{field.name}.key_value.{('key', 'value')[part - 1]}"
                found.append(Leaf(path, number, part, _PHYSICAL[inner.type], optional=False))
        else:
            kind = _PHYSICAL[field.type]
            found.append(Leaf(field.name, number, 0, kind, optional=field.nullable))
    return found


def dictionary_header(count: int, plain_bytes: int, file_bytes: int) -> bytes:
    """The header of a dictionary of `count` values."""
    about = thrift.struct({1: thrift.i32(count), 2: thrift.i32(Encoding.PLAIN)})
    return _page_header(2, plain_bytes, file_bytes, {7: about})


def data_header(count: int, encoding: Encoding, plain_bytes: int, file_bytes: int) -> bytes:
    """The header of a page of `count` values, nulls included."""
    about = thrift.struct({1: thrift.i32(count), 2: thrift.i32(encoding), **_LEVELS})
    return _page_header(0, plain_bytes, file_bytes, {5: about})


def statistics(minimum: bytes | None, maximum: bytes | None, nulls: int) -> Value:
    """Statistics of a chunk; values that are long, or None, are left out."""
    known = minimum is not None and maximum is not None
    if not known or max(len(minimum or b""), len(maximum or b"")) > LONGEST_BOUND:
        return thrift.struct({3: thrift.i64(nulls)})
    return thrift.struct(
        {
            3: thrift.i64(nulls),
            5: thrift.binary(maximum or b""),
            6: thrift.binary(minimum or b""),
        }
    )


def row_group(columns: Sequence[Leaf], chunks: Sequence[Chunk], rows: int, number: int) -> Value:
    """A row group; `chunks` are those of `columns`."""
    return thrift.struct(
        {
            1: thrift.array(map(_column, columns, chunks)),
            2: thrift.i64(sum(chunk.plain_bytes for chunk in chunks)),
            3: thrift.i64(rows),
            5: thrift.i64(chunks[0].begin),
            6: thrift.i64(sum(chunk.file_bytes for chunk in chunks)),
            7: thrift.i16(number & 0x7FFF),
        }
    )


def footer(schema: pa.Schema, rows: int, groups: Sequence[Value]) -> bytes:
    """The end of a file: its metadata, the length of that, and the magic bytes."""
    ordered = [thrift.union(1) for _ in leaves(schema)]
    _, data = thrift.struct(
        {
            1: thrift.i32(2),
            2: thrift.array(_schema_elements(schema)),
            3: thrift.i64(rows),
            4: thrift.array(groups),
            6: thrift.text(f"congreve version {__version__}"),
            7: thrift.array(ordered),
        }
    )
    return data + len(data).to_bytes(4, "little") + MAGIC


def _page_header(kind: int, plain_bytes: int, file_bytes: int, about: dict[int, Value]) -> bytes:
    sizes = {1: thrift.i32(kind), 2: thrift.i32(plain_bytes), 3: thrift.i32(file_bytes)}
    return thrift.struct({**sizes, **about})[1]


def _column(leaf: Leaf, chunk: Chunk) -> Value:
    dictionary = chunk.dictionary_at
    about = thrift.struct(
        {
            1: thrift.i32(leaf.physical),
            2: _ENCODINGS[chunk.encoding],
            3: leaf.path_in_schema,
            4: thrift.i32(chunk.codec),
            5: thrift.i64(chunk.values),
            6: thrift.i64(chunk.plain_bytes),
            7: thrift.i64(chunk.file_bytes),
            9: thrift.i64(chunk.data_at),
            11: None if dictionary is None else thrift.i64(dictionary),
            12: chunk.statistics,
        }
    )
    return thrift.struct({2: thrift.i64(0), 3: about})


def _schema_elements(schema: pa.Schema) -> Iterator[Value]:
    yield thrift.struct({4: thrift.text("schema"), 5: thrift.i32(len(schema))})
    for field in schema:
        if not pa.types.is_map(field.type):
            yield _leaf_element(field, field.name)
            continue
        yield thrift.struct(
            {
                3: thrift.i32(Repetition.REQUIRED),
                4: thrift.text(field.name),
                5: thrift.i32(1),
                6: thrift.i32(MAP),
                9: _field_id(field),
                10: MAP_TYPE,
            }
        )
        entry = {3: thrift.i32(Repetition.REPEATED), 4: thrift.text("key_value"), 5: thrift.i32(2)}
        yield thrift.struct(entry)
        yield _leaf_element(field.type.key_field, "key")
        yield _leaf_element(field.type.item_field, "value")


def _leaf_element(field: pa.Field, name: str) -> Value:
    converted, logical = {
        pa.string(): (thrift.i32(UTF8), STRING_TYPE),
        pa.date32(): (thrift.i32(DATE), DATE_TYPE),
        pa.timestamp("us", tz="UTC"): (thrift.i32(TIMESTAMP_MICROS), TIMESTAMP_TYPE),
    }.get(field.type, (None, None))
    repetition = Repetition.OPTIONAL if field.nullable else Repetition.REQUIRED
    return thrift.struct(
        {
            1: thrift.i32(_PHYSICAL[field.type]),
            3: thrift.i32(repetition),
            4: thrift.text(name),
            6: converted,
            9: _field_id(field),
            10: logical,
        }
    )


def _field_id(field: pa.Field) -> Value | None:
    number = (field.metadata or {}).get(FIELD_ID)
    return None if number is None else thrift.i32(int(number))
