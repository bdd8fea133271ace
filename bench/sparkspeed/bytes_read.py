"""Counts the bytes of entries and records that a read looks at."""

from pathlib import Path

from congreve.spark.batch import BatchReader
from congreve.spark.options import parse
from congreve.spark.schema import checked_schema, wanted_schema
from congreve.spark.sources.store_source import StoreSource


def bytes_read(root: Path, topic: str, options: dict[str, str]) -> int:
    """Bytes read by planning and reading together."""
    parsed = parse({"storePath": str(root), "topic": topic, **options})
    reader = BatchReader(parsed, checked_schema(wanted_schema(parsed), parsed))
    source = StoreSource(parsed)
    for part in reader.plan(source):
        for _ in source.read(part, reader.scan()):
            pass
    return source.bytes_read


def share_read(root: Path, topic: str, options: dict[str, str]) -> float:
    """Their share of the bytes that a full read looks at."""
    return bytes_read(root, topic, options) / bytes_read(root, topic, {})
