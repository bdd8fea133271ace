"""Columns of messages as Arrow arrays: names and types in one place, buffers without a copy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from congreve.records.errors import RecordError

try:
    import pyarrow as pa
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "pyarrow is not installed: pip install 'congreve[arrow]'", name=error.name
    ) from error

if TYPE_CHECKING:
    from congreve.records.columns.column import Column

TIMESTAMP = pa.timestamp("us", tz="UTC")
PROPERTIES = pa.map_(pa.string(), pa.string())

#: Every column of a message, in the order in which tables show them. The first nine are those of
#: rocketmq-spark. `properties` may also be JSON text, which the pass calls propertiesJson.
TYPES: dict[str, pa.DataType] = {
    "topic": pa.string(),
    "flag": pa.int32(),
    "body": pa.binary(),
    "properties": PROPERTIES,
    "brokerName": pa.string(),
    "queueId": pa.int32(),
    "queueOffset": pa.int64(),
    "bornTimestamp": TIMESTAMP,
    "storeTimestamp": TIMESTAMP,
    "tags": pa.string(),
    "keys": pa.string(),
    "msgId": pa.string(),
    "offsetMsgId": pa.string(),
    "commitLogOffset": pa.int64(),
    "storeSize": pa.int32(),
    "tagsCode": pa.int64(),
    "sysFlag": pa.int32(),
    "bodyCRC": pa.int32(),
    "reconsumeTimes": pa.int32(),
    "bornHost": pa.string(),
    "storeHost": pa.string(),
}

#: Columns with the same value in every row of a queue, which the pass therefore does not build.
OF_QUEUE = ("topic", "brokerName", "queueId")

#: Columns whose values repeat, as paths of Parquet, in which they have dictionaries. For all others
#: a dictionary costs more time than it saves bytes: compression makes the plain pages smaller.
REPEATED = (
    *("topic", "brokerName", "tags", "bornHost", "storeHost", "properties.key_value.key"),
    *("flag", "queueId", "sysFlag", "reconsumeTimes", "storeSize", "tagsCode"),
    *("bornTimestamp", "storeTimestamp"),
)


def schema(names: Iterable[str] = TYPES) -> pa.Schema:
    """The Arrow schema of the columns `names`. Raises RecordError for an unknown name."""
    names = list(names)
    unknown = [name for name in names if name not in TYPES]
    if unknown:
        raise RecordError(f"no column is named {unknown[0]!r}: there are {', '.join(TYPES)}")
    return pa.schema([(name, TYPES[name]) for name in names])


def to_array(column: Column, kind: pa.DataType) -> pa.Array:
    """One column as an Arrow array of `kind`, on the column's own memory."""
    rows = column.rows
    validity = pa.py_buffer(column.validity) if column.null_count else None
    values = pa.py_buffer(column.values)
    if pa.types.is_map(kind):
        entries = len(column.name_offsets) // 4 - 1
        pairs = [
            _text(kind.key_type, entries, column.name_offsets, column.names),
            _text(kind.item_type, entries, column.entry_offsets, column.values),
        ]
        struct = pa.StructArray.from_arrays(pairs, fields=[kind.key_field, kind.item_field])
        buffers = [validity, pa.py_buffer(column.offsets)]
        return pa.Array.from_buffers(kind, rows, buffers, column.null_count, children=[struct])
    if len(column.offsets):
        buffers = [validity, pa.py_buffer(column.offsets), values]
    else:
        buffers = [validity, values]
    return pa.Array.from_buffers(kind, rows, buffers, column.null_count)


def to_batch(columns: Mapping[str, Column | pa.Array], of: pa.Schema, rows: int) -> pa.RecordBatch:
    """A batch of `rows`; a name that `columns` lacks becomes a column of nulls.

    Arrays are used as they are, Columns become arrays of the schema's types.
    """
    arrays = [_array(columns.get(field.name), field.type, rows) for field in of]
    return pa.RecordBatch.from_arrays(arrays, schema=of)


def to_table(batches: Iterable[pa.RecordBatch], of: pa.Schema) -> pa.Table:
    """A table of batches that have this schema."""
    return pa.Table.from_batches(batches, of)


def repeated(value: Any, kind: pa.DataType, rows: int) -> pa.Array:
    """A column with the same value in each row."""
    return pa.repeat(pa.scalar(value, kind), rows)


def _array(column: Column | pa.Array | None, kind: pa.DataType, rows: int) -> pa.Array:
    if column is None:
        return pa.nulls(rows, kind)
    return column if isinstance(column, pa.Array) else to_array(column, kind)


def _text(kind: pa.DataType, rows: int, offsets: Any, values: Any) -> pa.Array:
    return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(offsets), pa.py_buffer(values)])
