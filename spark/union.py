"""A topic as one DataFrame: its table through Spark's own Parquet reader, and the live messages."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from congreve.spark.batch import BatchReader
from congreve.spark.errors import OptionError
from congreve.spark.lake_source import LakeSource
from congreve.spark.offsets import Queue, Range, to_json
from congreve.spark.options import parse
from congreve.spark.planning import open_source
from congreve.spark.schema import checked_schema, wanted_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FILTERS = ("tags", "subExpression", "expressionType", "key", "pushdown")
"""Options that only the source applies; a query filters the union instead."""
ENDS = (
    *("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets"),
    *("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets"),
)


def union(session: SparkSession, options: Mapping[str, str]) -> DataFrame:
    """The messages of one topic: those of its table, read by Spark, and the others, each once.

    `options` are those of ``format("rocketmq")``, with `lake` and without filters. Spark skips
    columns, files and row groups of the table as it does for every Parquet file. The result is that
    of one moment. Raises OptionError, DataLossError if messages between table and live topic were
    deleted, and what format("rocketmq") raises.
    """
    given = {name.lower(): name for name in options}
    for name in FILTERS:
        if name.lower() in given:
            raise OptionError(f"option {name} is not for a union: filter its result")
    parsed = parse(options)
    if parsed.lake is None:
        raise OptionError("a union needs the option lake: the folder of the tables")
    schema = wanted_schema(parsed)
    source = open_source(parsed)
    assert isinstance(source, LakeSource), "the option lake is there"
    try:
        reader = BatchReader(parsed, checked_schema(schema, parsed))
        ranges = reader.plan(source)
        paths, condition = _of_table(source, ranges)
        tail = _of_live(session, options, source, ranges)
    finally:
        source.close()
    if not paths:
        return tail
    rows = session.read.parquet(*paths)
    if condition:
        rows = rows.where(condition)
    return rows.select(*schema.names).union(tail)


def _of_table(source: LakeSource, ranges: list[Range]) -> tuple[list[str], str]:
    """The files of the ranges, and the condition for their rows; empty if they have no others."""
    paths: dict[str, None] = {}
    wanted: list[str] = []
    whole = {queue for queue, known in source.tables.queues.items() if known.groups}
    for queue, start, end in ranges:
        stop = min(end, source.table_end(queue))
        if start >= stop:
            continue
        groups = source.tables.of(queue).within(start, stop).groups
        paths.update(dict.fromkeys(group.path for group in groups))
        wanted.append(
            f"(brokerName = '{queue.broker}' AND queueId = {queue.queue_id}"
            f" AND queueOffset >= {start} AND queueOffset < {stop})"
        )
        if _has_all(source, queue, start, stop):
            whole.discard(queue)
    return [*paths], " OR ".join(wanted) if whole else ""


def _has_all(source: LakeSource, queue: Queue, start: int, stop: int) -> bool:
    groups = source.tables.of(queue).groups
    return all(start <= group.first and group.stop <= stop for group in groups)


def _of_live(
    session: SparkSession, options: Mapping[str, str], source: LakeSource, ranges: list[Range]
) -> DataFrame:
    """The messages of the ranges behind the ends of the table, by the source."""
    starts = {part.queue: max(part.start, source.table_end(part.queue)) for part in ranges}
    stops = {part.queue: max(part.stop, starts[part.queue]) for part in ranges}
    # A queue that no range reads gets an empty one.
    for topic in {part.queue.topic for part in ranges}:
        for queue in source.queues(topic):
            starts.setdefault(queue, source.bounds(queue)[1])
            stops.setdefault(queue, starts[queue])
    kept = {
        name: value
        for name, value in options.items()
        if not name.lower().startswith("lake") and name.lower() not in map(str.lower, ENDS)
    }
    return (
        session.read.format("rocketmq")
        .options(**kept)
        .option("startingOffsets", json.dumps(to_json(starts)))
        .option("endingOffsets", json.dumps(to_json(stops)))
        .load()
    )
