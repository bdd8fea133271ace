"""Bytes of entries and records that a read looks at."""

from pathlib import Path

from congreve.spark.batch import BatchReader
from congreve.spark.options import parse
from congreve.spark.schema import checked_schema, wanted_schema
from congreve.spark.storemode import StoreSource


def bytes_touched(root: Path, topic: str, options: dict[str, str]) -> int:
    """Of planning and reading together."""
    parsed = parse({"storePath": str(root), "topic": topic, **options})
    reader = BatchReader(parsed, checked_schema(wanted_schema(parsed), parsed))
    source = StoreSource(parsed)
    for part in reader.plan(source):
        for _ in source.read(part, reader.scan()):
            pass
    return source.bytes_touched


def share_touched(root: Path, topic: str, options: dict[str, str]) -> float:
    """Of what a read of everything touches."""
    return bytes_touched(root, topic, options) / bytes_touched(root, topic, {})
