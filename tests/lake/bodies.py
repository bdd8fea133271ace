"""Bodies with a schema, and some that do not fit it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from . import stores

TABLES = (stores.TOPIC, f"{stores.TOPIC}_dlq")
ORDER = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "n", "type": "int"},
            {"name": "price", "type": "double"},
            {"name": "note", "type": ["null", "string"]},
            {"name": "tags", "type": ["null", {"type": "array", "items": "string"}]},
        ],
    }
)
"""Its field `tags` has the name of a column of messages."""


def schema_file(folder: Path, *more: dict[str, Any], text: str = ORDER) -> Path:
    """The schema in a file, with more fields."""
    schema = json.loads(text)
    schema["fields"] += more
    path = folder / f"order-{len(schema['fields'])}.avsc"
    path.write_text(json.dumps(schema))
    return path


def order(number: int, **more: Any) -> bytes:
    """A body that fits."""
    return json.dumps({"n": number, "price": number / 4, "tags": ["a", "b"], **more}).encode()


def mixed(number: int) -> bytes:
    """Every third body does not fit."""
    return b"body %d" % number if number % 3 == 0 else order(number)
