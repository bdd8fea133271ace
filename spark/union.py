"""A topic as one DataFrame: its table through Spark's own Parquet reader, and the live messages."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from congreve.spark.errors import OptionError
from congreve.spark.offsets import Queue, Range, to_json
from congreve.spark.options import parse
from congreve.spark.planning import open_source, planned
from congreve.spark.schema import wanted_schema
from congreve.spark.snapshot import shares_folders, snapshot
from congreve.spark.table_and_live import TableAndLive

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FILTERS = ("tags", "subExpression", "expressionType", "key", "pushdown")
"""Options that only the source applies; a query filters the union instead."""
ENDS = (
    *("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets"),
    *("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets"),
)

_PLACE = (
    StructField("brokerName", StringType()),
    StructField("queueId", IntegerType()),
    StructField("queueOffset", LongType()),
)
"""Columns by which rows are chosen."""


def union(session: SparkSession, options: Mapping[str, str]) -> DataFrame:
    """The messages of one topic: those of its table, read by Spark, and the others, each once.

    `options` are those of ``format("rocketmq")``, with `lake` and without filters. Spark skips
    columns, files and row groups of the table as it does for every Parquet file, and with
    `storePath` in a local session those of a snapshot() of the others. The result is that of one
    moment. Raises OptionError, DataLossError if messages between table and live topic were
    deleted, and what format("rocketmq") raises.
    """
    given = {name.lower(): name for name in options}
    for name in FILTERS:
        if name.lower() in given:
            raise OptionError(f"option {name} is not for a union: filter its result")
    parsed = parse(options, has_table=True)
    if parsed.lake is None:
        raise OptionError("a union needs the option lake: the folder of the tables")
    if parsed.properties_json:
        raise OptionError("a union has propertiesFormat=map: the table has no other form")
    schema = wanted_schema(parsed)
    source = TableAndLive(open_source(parsed), parsed)
    try:
        ranges = planned(source, parsed)
        paths, condition = _of_table(source, ranges)
        starts, stops = _live_ends(source, ranges)
    finally:
        source.close()
    rows = _read_table(session, paths, schema, condition) if paths else None
    if rows is not None and starts == stops:
        return rows  # Spark would start a worker of Python to find nothing
    tail = _read_live(session, options, starts, stops, files=parsed.store_path is not None)
    return tail if rows is None else rows.union(tail)


def _read_table(
    session: SparkSession, paths: list[str], schema: StructType, condition: str
) -> DataFrame:
    """Rows of files by Spark's own reader, which need not look for the columns of the files."""
    if not condition:
        return session.read.schema(schema).parquet(*paths)
    more = [field for field in _PLACE if field.name not in schema.names]
    rows = session.read.schema(StructType([*schema, *more])).parquet(*paths)
    return rows.where(condition).select(*schema.names)


def _of_table(source: TableAndLive, ranges: list[Range]) -> tuple[list[str], str]:
    """The files of the ranges, and the condition for their rows; empty if they have no others."""
    paths: dict[str, None] = {}
    wanted: list[str] = []
    whole = {queue for queue, known in source.queue_files.items() if known.groups}
    for queue, start, end in ranges:
        stop = min(end, source.of(queue).end)
        if start >= stop:
            continue
        groups = source.of(queue).within(start, stop)
        paths.update(dict.fromkeys(group.path for group in groups))
        wanted.append(
            f"(brokerName = '{queue.broker}' AND queueId = {queue.queue_id}"
            f" AND queueOffset >= {start} AND queueOffset < {stop})"
        )
        if _has_all(source, queue, start, stop):
            whole.discard(queue)
    return [*paths], " OR ".join(wanted) if whole else ""


def _has_all(source: TableAndLive, queue: Queue, start: int, stop: int) -> bool:
    groups = source.of(queue).groups
    return all(start <= group.first and group.stop <= stop for group in groups)


def _live_ends(
    source: TableAndLive, ranges: list[Range]
) -> tuple[dict[Queue, int], dict[Queue, int]]:
    """The range of each queue's messages that the table lacks."""
    starts = {part.queue: max(part.start, source.of(part.queue).end) for part in ranges}
    stops = {part.queue: max(part.stop, starts[part.queue]) for part in ranges}
    # A queue that no range reads gets an empty one.
    for topic in {part.queue.topic for part in ranges}:
        for queue in source.queues(topic):
            starts.setdefault(queue, source.bounds(queue)[1])
            stops.setdefault(queue, starts[queue])
    return starts, stops


def _read_live(
    session: SparkSession,
    options: Mapping[str, str],
    starts: Mapping[Queue, int],
    stops: Mapping[Queue, int],
    *,
    files: bool,
) -> DataFrame:
    """The messages behind the ends of the table: by the source, or a snapshot of `files`."""
    kept = {
        name: value
        for name, value in options.items()
        if not name.lower().startswith("lake") and name.lower() not in map(str.lower, ENDS)
    }
    kept["startingOffsets"] = json.dumps(to_json(starts))
    kept["endingOffsets"] = json.dumps(to_json(stops))
    if files and shares_folders(session):
        return snapshot(session, kept)
    return session.read.format("rocketmq").options(**kept).load()
