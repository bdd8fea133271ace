"""Bodies in Avro's binary encoding: the fields of a schema, and a decoder."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from io import BytesIO
from typing import Any

import pyarrow as pa

from congreve.lake.errors import BodyError, BodySchemaError

_PRIMITIVES = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LOGICAL = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time64("us"),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "timestamp-millis"): pa.timestamp("us", tz="UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", tz="UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("us"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
}
NULL = "null"
GUARD = b"\0"
"""Behind each body: a decoder that reads a byte too many is behind the body's end then."""


def arrow_fields(text: str) -> list[pa.Field]:
    """The fields of an Avro schema, which is a record. Raises BodySchemaError."""
    schema = _parsed(text)
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise BodySchemaError("an Avro schema of bodies is a record")
    return list(_Fields().type_of(schema))


def decoder(text: str) -> Callable[[bytes], Any]:
    """A function that decodes one body, by the schema that it was written with.

    The function raises any exception for a body that does not fit. Raises BodySchemaError.
    """
    try:
        from fastavro import parse_schema, schemaless_reader
    except ModuleNotFoundError as error:
        raise BodySchemaError("Avro bodies need fastavro: pip install 'congreve[lake]'") from error
    arrow_fields(text)
    schema = parse_schema(_without_uuids(_parsed(text)))

    def decode(body: bytes) -> Any:
        stream = BytesIO(body + GUARD)
        try:
            found = schemaless_reader(stream, schema, None)
        except EOFError as error:
            raise BodyError("the body ends before the record") from error
        if stream.tell() != len(body):
            raise BodyError(f"the record has another length than the body of {len(body)} bytes")
        return found

    return decode


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise BodySchemaError(f"the Avro schema is not JSON: {error}") from error


def _without_uuids(schema: Any) -> Any:
    """The schema with texts in place of UUIDs, which columns have as texts."""
    if isinstance(schema, list):
        return [_without_uuids(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {name: _without_uuids(value) for name, value in schema.items()}
    return "string" if kept.get("logicalType") == "uuid" else kept


class _Fields:
    """Types of a schema, which may use a named type again by its name."""

    def __init__(self) -> None:
        self._named: dict[str, pa.DataType | None] = {}
        self._endless: set[str] = set()

    def type_of(self, schema: Any) -> pa.DataType:
        """The Arrow type; a union is the business of field()."""
        if isinstance(schema, str):
            return self._by_name(schema)
        if not isinstance(schema, dict):
            raise BodySchemaError(f"{schema!r} is not the schema of one type")
        kind = schema.get("type")
        if not isinstance(kind, str):
            return self.type_of(kind)
        if kind == "array":
            return pa.list_(self.field("element", self._ended(schema.get("items"))))
        if kind == "map":
            return pa.map_(pa.string(), self.field("value", self._ended(schema.get("values"))))
        if kind in ("record", "enum", "fixed"):
            return self._named_type(kind, schema)
        return self._logical(kind, schema) or self.type_of(kind)

    def field(self, name: str, schema: Any) -> pa.Field:
        """A field, which may be null if the schema is a union with null."""
        if not isinstance(schema, list):
            return pa.field(name, self.type_of(schema), nullable=False)
        others = [each for each in schema if each != NULL]
        if len(others) != 1:
            raise BodySchemaError(
                f"field {name}: a column has one type, so a union is null and one other type"
            )
        return pa.field(name, self.type_of(others[0]), nullable=len(others) < len(schema))

    def _by_name(self, name: str) -> pa.DataType:
        found = _PRIMITIVES.get(name, self._named.get(name.rpartition(".")[2]))
        if found is None:
            raise BodySchemaError(f"Avro type {name} is unknown here, or contains itself")
        return found

    def _named_type(self, kind: str, schema: Mapping[str, Any]) -> pa.DataType:
        name = str(schema.get("name", "")).rpartition(".")[2]
        self._named[name] = None
        if kind == "record":
            fields = schema.get("fields") or []
            found = pa.struct([self.field(each["name"], each["type"]) for each in fields])
        elif kind == "enum":
            found = pa.string()
        else:
            found = self._logical(kind, schema) or pa.binary()
        self._named[name] = found
        if not self._fails_at_the_end(schema):
            self._endless.add(name)
        return found

    def _logical(self, kind: str, schema: Mapping[str, Any]) -> pa.DataType | None:
        logical = schema.get("logicalType")
        if logical == "decimal" and kind in ("bytes", "fixed"):
            return pa.decimal128(int(schema["precision"]), int(schema.get("scale", 0)))
        return _LOGICAL.get((kind, str(logical)))

    def _ended(self, schema: Any) -> Any:
        """The schema of elements. Raises BodySchemaError if fastavro would read them from nothing:
        the count in a body of a few bytes could stand for billions of them."""
        if not self._fails_at_the_end(schema):
            raise BodySchemaError(f"elements are {schema!r}, which may have no bytes: use bytes")
        return schema

    def _fails_at_the_end(self, schema: Any) -> bool:
        """Whether fastavro notices that a body has no bytes left."""
        if isinstance(schema, str):
            return schema != NULL and schema.rpartition(".")[2] not in self._endless
        if not isinstance(schema, dict):
            return True
        kind = schema.get("type")
        if kind == "record":
            fields = schema.get("fields") or []
            return any(self._fails_at_the_end(each["type"]) for each in fields)
        return kind != "fixed" and (not isinstance(kind, str) or self._fails_at_the_end(kind))
