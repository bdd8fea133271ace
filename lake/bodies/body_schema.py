"""The schema of a topic's bodies: from a file, for one of the formats."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from congreve.lake.bodies import avro, json_bodies
from congreve.lake.column_types import column_field, optional
from congreve.lake.errors import BodySchemaError
from congreve.records.columns.arrow import TYPES

FORMATS = ("json", "avro")
PREFIX = "body_"
"""Before the name of a field that a column of messages has, too."""
AVRO_SUFFIXES = (".avsc", ".json")


@dataclass(frozen=True)
class BodySchema:
    """The fields of bodies, and how a body is decoded into a dict of them."""

    format: str
    fields: tuple[pa.Field, ...]
    decode: Callable[[bytes], Any]
    errors: tuple[type[Exception], ...]
    """What decode() raises for a body that does not fit."""

    def columns(self) -> dict[str, pa.Field]:
        """By the name of a field: its column, which may be null. Raises BodySchemaError."""
        found: dict[str, pa.Field] = {}
        metadata = {name.lower() for name in TYPES}
        names: set[str] = set()
        for field in self.fields:
            name = f"{PREFIX}{field.name}" if field.name.lower() in metadata else field.name
            # Spark's names are the same in upper and lower case.
            if name.lower() in names or name.lower() in metadata:
                raise BodySchemaError(f"two columns would be named {name}")
            names.add(name.lower())
            found[field.name] = pa.field(name, optional(field.type))
        return found


def load_schema(text: str) -> BodySchema:
    """The schema for `FORMAT:FILE`: json or avro, and a schema in Avro's JSON (.avsc, .json) or
    Arrow's IPC format. Raises BodySchemaError."""
    kind, colon, name = text.partition(":")
    if kind not in FORMATS or not colon or not name:
        raise BodySchemaError(f"bodies as {text!r}: write {':FILE or '.join(FORMATS)}:FILE")
    path = Path(name)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BodySchemaError(f"schema {path} cannot be read: {error.strerror}") from error
    try:
        return _schema(kind, path, data)
    except (BodySchemaError, KeyError, TypeError, ValueError) as error:
        raise BodySchemaError(f"schema {path}: {error}") from error


def _schema(kind: str, path: Path, data: bytes) -> BodySchema:
    is_avro = path.suffix in AVRO_SUFFIXES
    if kind == "avro" and not is_avro:
        raise BodySchemaError(f"Avro bodies need a schema of Avro ({' or '.join(AVRO_SUFFIXES)})")
    found = avro.arrow_fields(data.decode()) if is_avro else list(_ipc_schema(data))
    fields = tuple(column_field(field) for field in found)
    if not fields:
        raise BodySchemaError("it has no fields")
    if kind == "avro":
        # fastavro raises what it meets: IndexError, StopIteration, ReadError and others.
        schema = BodySchema(kind, fields, avro.decoder(data.decode()), (Exception,))
    else:
        errors = (msgspec.MsgspecError, ValueError, RecursionError)
        schema = BodySchema(kind, fields, json_bodies.decoder(fields), errors)
    schema.columns()  # names that contradict each other
    return schema


def _ipc_schema(data: bytes) -> pa.Schema:
    """The schema alone (`Schema.serialize()`), or that of a stream or file."""
    try:
        if data.startswith(b"ARROW1"):
            return pa.ipc.open_file(data).schema
        return pa.ipc.read_schema(pa.py_buffer(data))
    except pa.ArrowException as error:
        raise BodySchemaError(f"it is no schema in Arrow's IPC format: {error}") from error
