"""Plans a read: options become ranges of offsets, divided among tasks."""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Protocol

import pyarrow as pa

from congreve.records.message.topics import DLQ_PREFIX, RETRY_PREFIX, is_system_topic
from congreve.spark.errors import DataLossError, OptionError
from congreve.spark.offsets import (
    EARLIEST,
    EARLIEST_OFFSET,
    LATEST,
    LATEST_OFFSET,
    Offsets,
    Position,
    Queue,
    Range,
)
from congreve.spark.options import Options, Selection
from congreve.spark.rows import Scan

RECORDS_OF_TASK = 250_000
"""Messages of files for which a task of their own is worth its cost."""


def cores() -> int:
    """The cores of this machine, which has the files."""
    return os.cpu_count() or 1


class Queues(Protocol):
    """What can be read: queues, and the offsets of their messages."""

    def topics(self) -> list[str]:
        """The names of all topics."""

    def missing_topic_hint(self, topic: str) -> str:
        """Text to append to the error of a missing topic."""

    def queues(self, topic: str) -> list[Queue]:
        """The queues of a topic that can be read."""

    def bounds(self, queue: Queue) -> tuple[int, int]:
        """Offset of the first message of a queue, and of the next message to arrive."""

    def offset_from_time(self, queue: Queue, timestamp_ms: int) -> int:
        """The first offset stored at or after a time in ms, else the queue's end."""


class Source(Queues, Protocol):
    """Where messages come from: a store's files (StoreSource) or brokers (ClusterSource)."""

    def stop_within(self, queue: Queue, start: int, stop: int, limit: int) -> int:
        """The largest end of a range whose records have at most `limit` bytes."""

    def size_of(self, queue: Queue, start: int, stop: int) -> int:
        """Bytes of the records in a range."""

    def fingerprint(self, queue: Queue, offset: int) -> int | None:
        """What tells a message from a later one with its offset (congreve.records.columns); None
        without such a message."""

    def find_key(self, queues: list[Queue], key: str) -> dict[Queue, list[int]]:
        """Offsets of the messages with a key, by queue."""

    def check(self, parts: list[Range], scan: Scan) -> None:
        """Check before tasks start that the ranges can be scanned. Raises SparkError when they
        cannot."""

    def read(self, part: Range, scan: Scan) -> Iterator[pa.RecordBatch]:
        """Yield the messages of a range as Arrow batches. Raises SparkError when that fails."""

    def commit(self, offsets: Offsets) -> None:
        """Commit offsets for the group of the option `group`. Raises SparkError when that fails."""

    def refresh(self) -> None:
        """Update topics and queues."""

    def close(self) -> None:
        """Release connections."""


def open_source(options: Options) -> Source:
    """Open the source that the options name. Raises OptionError when it cannot be opened."""
    # Imported here because a task on files needs no client, and one on brokers no engine.
    if options.store_path is not None:
        from congreve.spark.sources.store_source import StoreSource

        return StoreSource(options)
    from congreve.spark.sources.cluster_source import ClusterSource

    return ClusterSource(options)


def planned(source: Queues, options: Options) -> list[Range]:
    """The ranges of a batch. Raises OptionError when the starting offset of a queue is after its
    ending offset."""
    queues = chosen_queues(source, options.selection)
    starts = resolve(source, queues, options.starting, options, start=True)
    stops = resolve(source, queues, options.ending, options, start=False)
    for queue in queues:
        if starts[queue] > stops[queue] and options.ending.offsets is not None:
            raise OptionError(
                f"{queue} would be read from {starts[queue]} to {stops[queue]}: options "
                f"{options.starting.option} and {options.ending.option} are the wrong way round"
            )
    return between(starts, stops)


def chosen_queues(source: Queues, selection: Selection, *, partly: bool = False) -> list[Queue]:
    """The queues of the selected topics, sorted.

    Raises OptionError when a topic does not exist; with `partly` only when none exists, because a
    stream may wait for the others.
    """
    if selection.pattern is not None:
        pattern = re.compile(selection.pattern)
        names = [topic for topic in source.topics() if pattern.fullmatch(topic)]
        return sorted(queue for topic in names for queue in source.queues(topic))
    found = {topic: source.queues(topic) for topic in selection.topics}
    missing = [topic for topic, queues in found.items() if not queues]
    if missing and not (partly and len(missing) < len(found)):
        known = [
            topic
            for topic in source.topics()
            if not is_system_topic(topic) and not topic.startswith((RETRY_PREFIX, DLQ_PREFIX))
        ]
        shown = ", ".join(known[:20]) + (", ..." if len(known) > 20 else "")
        raise OptionError(
            f"option {selection.option} names topic {missing[0]!r}, which does not exist; "
            f"there are {shown or 'no topics at all'}{source.missing_topic_hint(missing[0])}"
        )
    if selection.queues is None:
        return sorted(queue for queues in found.values() for queue in queues)
    return sorted(_assigned(selection.queues, found))


def _assigned(
    wanted: dict[str, dict[str | None, tuple[int, ...]]], found: dict[str, list[Queue]]
) -> Iterator[Queue]:
    for topic, brokers in wanted.items():
        for broker, ids in brokers.items():
            for queue_id in ids:
                queues = [
                    queue
                    for queue in found[topic]
                    if queue.queue_id == queue_id and broker in (None, queue.broker)
                ]
                if found[topic] and not queues:
                    raise OptionError(
                        f"option assign names queue {queue_id} of topic {topic}"
                        + (f" on {broker}" if broker else "")
                        + f"; there are {', '.join(map(str, found[topic]))}"
                    )
                yield from queues


def resolve(
    source: Queues, queues: Iterable[Queue], position: Position, options: Options, *, start: bool
) -> Offsets:
    """The offset of each queue at a position.

    Raises OptionError when the position does not apply to a queue, DataLossError when the offset
    has been deleted.
    """
    queues = list(queues)
    named = position.offsets if position.offsets is not None else position.timestamps
    for queue in named or {}:
        if queue not in queues:
            raise OptionError(
                f"option {position.option} names {queue}, which is not read; "
                f"there are {', '.join(map(str, queues)) or 'none'}"
            )
    return {queue: _offset(source, queue, position, options, start=start) for queue in queues}


def _offset(
    source: Queues, queue: Queue, position: Position, options: Options, *, start: bool
) -> int:
    low, high = source.bounds(queue)
    default = low if start else high
    if position in (EARLIEST, LATEST):
        return low if position == EARLIEST else high
    if position.offsets is not None:
        wanted = position.offsets.get(queue)
        if wanted is None or wanted in (EARLIEST_OFFSET, LATEST_OFFSET):
            return {None: default, EARLIEST_OFFSET: low, LATEST_OFFSET: high}[wanted]
        if not low <= wanted <= high and options.fail_on_data_loss:
            raise DataLossError(
                f"option {position.option} asks for offset {wanted} of {queue}, which has {low} "
                f"to {high}; option failOnDataLoss=false takes the nearest"
            )
        return min(max(wanted, low), high)
    if position.timestamps is None:
        time: int | None = position.timestamp_ms
    else:
        time = position.timestamps.get(queue)
    if time is None or low == high:
        return default
    offset = source.offset_from_time(queue, time)
    if start and offset == high and options.strategy == "error":
        raise OptionError(
            f"option {position.option} is {time}: {queue} holds no message stored since then; "
            "startingOffsetsByTimestampStrategy=latest begins at its end"
        )
    return offset


def between(starts: Offsets, stops: Offsets) -> list[Range]:
    """The non-empty ranges."""
    return [
        Range(queue, start, stops[queue])
        for queue, start in sorted(starts.items())
        if start < stops.get(queue, start)
    ]


def tasks(ranges: list[Range], options: Options) -> list[tuple[Range, ...]]:
    """The ranges that each task reads: one range a task, unless that makes too many tasks.

    Each task costs Spark as much time as tens of thousands of rows, so the queues of files share
    tasks. The limit of records takes precedence over that of tasks.
    """
    max_records, most = options.max_records_per_partition, options.max_partitions
    pieces = cut(ranges, options.min_partitions, max_records)
    if not most and options.store_path is not None:
        worth = max(-(-_messages(ranges) // RECORDS_OF_TASK), cores())
        most = max(worth, options.min_partitions)
    if most == 0 or len(pieces) <= most:
        return [(piece,) for piece in pieces]
    if max_records:
        most = max(most, -(-_messages(ranges) // max_records))
    return spread(ranges, most)


def cut(ranges: list[Range], min_partitions: int, max_records: int) -> list[Range]:
    """Cut the ranges into at least `min_partitions` pieces of at most `max_records` messages (0:
    no limit)."""
    total = _messages(ranges)
    per_piece = max_records or total
    if min_partitions > len(ranges):
        per_piece = min(per_piece, max(total // min_partitions, 1))
    pieces: list[Range] = []
    for queue, start, stop in ranges:
        count = -(-(stop - start) // per_piece)
        edges = [start + (stop - start) * number // count for number in range(count + 1)]
        pieces += [Range(queue, low, high) for low, high in pairwise(edges)]
    return pieces


def spread(ranges: list[Range], count: int) -> list[tuple[Range, ...]]:
    """Divide the messages of all ranges, in order, into `count` parts of similar size; no part
    is empty."""
    total = _messages(ranges)
    count = min(count, total)
    left = deque(ranges)
    parts: list[tuple[Range, ...]] = []
    for number in range(count):
        wanted = total * (number + 1) // count - total * number // count
        part: list[Range] = []
        while wanted:
            queue, start, stop = left.popleft()
            end = min(stop, start + wanted)
            part.append(Range(queue, start, end))
            if end < stop:
                left.appendleft(Range(queue, end, stop))
            wanted -= end - start
        parts.append(tuple(part))
    return parts


def _messages(ranges: list[Range]) -> int:
    return sum(stop - start for _, start, stop in ranges)
