"""The types that columns of a table have for the types of an Arrow schema."""

from __future__ import annotations

import pyarrow as pa
from pyarrow import types

from congreve.lake.errors import BodySchemaError

_SAME = (
    (types.is_boolean, pa.bool_()),
    (types.is_int8, pa.int32()),
    (types.is_int16, pa.int32()),
    (types.is_int32, pa.int32()),
    (types.is_uint8, pa.int32()),
    (types.is_uint16, pa.int32()),
    (types.is_uint32, pa.int64()),
    (types.is_int64, pa.int64()),
    (types.is_float32, pa.float32()),
    (types.is_float64, pa.float64()),
    (types.is_string, pa.string()),
    (types.is_large_string, pa.string()),
    (types.is_binary, pa.binary()),
    (types.is_large_binary, pa.binary()),
    (types.is_date, pa.date32()),
    (types.is_time, pa.time64("us")),
)
MOST_DIGITS = 38
"""Of a decimal in Iceberg."""


def column_type(kind: pa.DataType) -> pa.DataType:
    """The type of a column that has all values of `kind`, and which of its parts may be null.

    Raises BodySchemaError for a type without a counterpart in Iceberg.
    """
    for is_kind, same in _SAME:
        if is_kind(kind):
            return same
    if types.is_timestamp(kind):
        return pa.timestamp("us", tz="UTC" if kind.tz else None)
    if types.is_decimal(kind) and kind.precision <= MOST_DIGITS:
        return pa.decimal128(kind.precision, kind.scale)
    if types.is_dictionary(kind):
        return column_type(kind.value_type)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return pa.list_(column_field(kind.value_field).with_name("element"))
    if types.is_map(kind) and types.is_string(column_type(kind.key_type)):
        return pa.map_(pa.string(), column_field(kind.item_field))
    if types.is_struct(kind) and kind.num_fields:
        return pa.struct([column_field(field) for field in kind])
    raise BodySchemaError(f"type {kind} has no counterpart in Iceberg, or is empty")


def column_field(field: pa.Field) -> pa.Field:
    """The field with the type of a column. Raises BodySchemaError, which names the field."""
    try:
        return pa.field(field.name, column_type(field.type), field.nullable)
    except BodySchemaError as error:
        raise BodySchemaError(f"field {field.name}: {error}") from error


_WIDER = {(pa.int64(), pa.int32()), (pa.float64(), pa.float32())}


def holds(kind: pa.DataType | None, other: pa.DataType) -> bool:
    """Whether a column of type `kind`, if there is one, has a place for all values of `other`."""
    if kind is None or kind == other or (kind, other) in _WIDER:
        return kind is not None
    if types.is_list(kind) and types.is_list(other):
        return holds(kind.value_type, other.value_type)
    if types.is_map(kind) and types.is_map(other):
        return holds(kind.item_type, other.item_type)
    if types.is_struct(kind) and types.is_struct(other):
        known = {field.name: field.type for field in kind}
        return all(holds(known.get(field.name), field.type) for field in other)
    return False


def optional(kind: pa.DataType) -> pa.DataType:
    """The type with parts that may all be null, so that a table can get fields later."""
    if types.is_list(kind):
        return pa.list_(pa.field("element", optional(kind.value_type)))
    if types.is_map(kind):
        return pa.map_(pa.string(), optional(kind.item_type))
    if types.is_struct(kind):
        return pa.struct([pa.field(field.name, optional(field.type)) for field in kind])
    return kind
