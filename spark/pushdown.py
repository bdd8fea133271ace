"""Derives limits on queues and offsets from options and Spark's filters, so that a read skips other
rows.

A limit never excludes a row that Spark's own filter would pass, and Spark filters again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import datasource as ds

from congreve.spark.offsets import Queue, Range
from congreve.spark.planning import Source

Equal = ds.EqualTo | ds.EqualNullSafe


@dataclass(frozen=True)
class Limits:
    """Limits of a read; None means no limit. Offsets are [start, stop); times in ms include both
    ends."""

    topics: frozenset[str] | None = None
    brokers: frozenset[str] | None = None
    queue_ids: frozenset[int] | None = None
    tags: frozenset[str] | None = None
    codes: frozenset[int] | None = None
    start: int = 0
    stop: int | None = None
    begin_ms: int | None = None
    end_ms: int | None = None
    key: str | None = None

    def admits(self, queue: Queue) -> bool:
        """Whether a queue may hold wanted rows."""
        return (
            (self.topics is None or queue.topic in self.topics)
            and (self.brokers is None or queue.broker in self.brokers)
            and (self.queue_ids is None or queue.queue_id in self.queue_ids)
        )

    def narrow(self, source: Source, part: Range) -> Range:
        """The part of a range that may hold wanted rows; it may be empty."""
        queue, start, stop = part
        start = max(start, self.start)
        if self.stop is not None:
            stop = min(stop, self.stop)
        if start < stop and self.begin_ms is not None:
            start = max(start, source.offset_from_time(queue, self.begin_ms))
        if start < stop and self.end_ms is not None:
            stop = min(stop, source.offset_from_time(queue, self.end_ms + 1))
        return Range(queue, start, max(start, stop))


def limits(filters: Iterable[ds.Filter]) -> Limits:
    """The limits that all filters together allow."""
    found = Limits()
    for condition in filters:
        found = _with(found, condition)
    return found


def _with(known: Limits, condition: ds.Filter) -> Limits:
    name = ".".join(getattr(condition, "attribute", ()))
    if isinstance(condition, Equal) and condition.value is not None:
        return _with_values(known, name, (condition.value,))
    if isinstance(condition, ds.In):
        return _with_values(known, name, tuple(v for v in condition.value if v is not None))
    if isinstance(condition, ds.GreaterThan | ds.GreaterThanOrEqual):
        return _with_least(known, name, condition)
    if isinstance(condition, ds.LessThan | ds.LessThanOrEqual):
        return _with_most(known, name, condition)
    return known


SETS = {
    "topic": "topics",
    "brokerName": "brokers",
    "queueId": "queue_ids",
    "tags": "tags",
    "tagsCode": "codes",
}


def _with_values(known: Limits, name: str, values: tuple[Any, ...]) -> Limits:
    if name in SETS:
        before = getattr(known, SETS[name])
        changed: Any = {
            SETS[name]: frozenset(values) if before is None else before & frozenset(values)
        }
        return replace(known, **changed)
    if name == "queueOffset" and values:
        return _between(known, min(values), max(values) + 1)
    if name == "storeTimestamp" and values:
        times = [_ms(value) for value in values]
        return _at_times(known, min(times), max(times))
    if name in ("keys", "msgId") and len(values) == 1 and values[0]:
        # The index holds each key of KEYS separately.
        return replace(known, key=str(values[0]).split(" ")[0] or None)
    return known


def _with_least(known: Limits, name: str, condition: Any) -> Limits:
    if name == "queueOffset":
        return _between(known, condition.value + isinstance(condition, ds.GreaterThan), None)
    if name == "storeTimestamp":
        return _at_times(known, _ms(condition.value), None)
    return known


def _with_most(known: Limits, name: str, condition: Any) -> Limits:
    if name == "queueOffset":
        return _between(known, 0, condition.value + isinstance(condition, ds.LessThanOrEqual))
    if name == "storeTimestamp":
        return _at_times(known, None, _ms(condition.value))
    return known


def _between(known: Limits, start: int, stop: int | None) -> Limits:
    ends = [end for end in (known.stop, stop) if end is not None]
    return replace(known, start=max(known.start, start), stop=min(ends) if ends else None)


def _at_times(known: Limits, begin: int | None, end: int | None) -> Limits:
    begins = [time for time in (known.begin_ms, begin) if time is not None]
    ends = [time for time in (known.end_ms, end) if time is not None]
    return replace(
        known,
        begin_ms=max(begins) if begins else None,
        end_ms=min(ends) if ends else None,
    )


def _ms(value: datetime) -> int:
    """Store times are whole milliseconds: the one that contains the microsecond."""
    moment = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)
