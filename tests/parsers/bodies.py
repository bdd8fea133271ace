"""Parsers of bodies that become columns of a table."""

from __future__ import annotations

import json
from collections.abc import Iterator

from congreve.lake.bodies import avro, json_bodies

from .parser import Parser

ORDER = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "n", "type": "long"},
            {"name": "note", "type": ["null", "string"]},
            {"name": "items", "type": {"type": "array", "items": "bytes"}},
            {"name": "prices", "type": {"type": "map", "values": "double"}},
            {"name": "id", "type": {"type": "fixed", "name": "F", "size": 4}},
        ],
    }
)
JSON = b'{"n":7,"note":"a","items":["YQ=="],"prices":{"x":1.5},"id":"YWJjZA==","more":[{"a":1}]}'
AVRO = b"\x0e\x02\x02a\x02\x02a\x00\x02\x02x\x00\x00\x00\x00\x00\x00\xf8\x3f\x00abcd"


def parsers() -> Iterator[Parser]:
    """All of them."""
    # What the reader of bodies catches: they become dead letters, whatever the reason.
    refuses = (Exception,)
    fields = avro.arrow_fields(ORDER)
    yield Parser(
        "a JSON body", ("lake/bodies/json_bodies.py",), json_bodies.decoder(fields), [JSON], refuses
    )
    yield Parser("an Avro body", ("lake/bodies/avro.py",), avro.decoder(ORDER), [AVRO], refuses)
