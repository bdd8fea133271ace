"""From options to ranges of offsets: which queues, from where to where, in how many pieces."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Protocol

import pyarrow as pa

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


class Source(Protocol):
    """Where messages come from: a store's files (storemode) or brokers (clustermode)."""

    def topics(self) -> list[str]: ...
    def remark(self, topic: str) -> str: ...
    def queues(self, topic: str) -> list[Queue]: ...
    def bounds(self, queue: Queue) -> tuple[int, int]: ...
    def offset_from_time(self, queue: Queue, timestamp_ms: int) -> int: ...
    def stop_within(self, queue: Queue, start: int, stop: int, limit: int) -> int: ...
    def size_of(self, queue: Queue, start: int, stop: int) -> int: ...
    def find_key(self, queues: list[Queue], key: str) -> dict[Queue, list[int]]: ...
    def check(self, parts: list[Range], scan: Scan) -> None: ...
    def read(self, part: Range, scan: Scan) -> Iterator[pa.RecordBatch]: ...
    def commit(self, offsets: Offsets) -> None: ...
    def refresh(self) -> None: ...
    def close(self) -> None: ...


def open_source(options: Options) -> Source:
    """The source that the options name; OptionError where it cannot be reached."""
    # Imported where they are used: a task on files needs no client, one on brokers no engine.
    if options.store_path is not None:
        from congreve.spark.storemode import StoreSource

        return StoreSource(options)
    from congreve.spark.clustermode import ClusterSource

    return ClusterSource(options)


def chosen_queues(source: Source, selection: Selection, *, partly: bool = False) -> list[Queue]:
    """Queues of the chosen topics, sorted; OptionError for a topic that is not there.

    With `partly` only where none is there: a stream may wait for the others.
    """
    if selection.pattern is not None:
        pattern = re.compile(selection.pattern)
        names = [topic for topic in source.topics() if pattern.fullmatch(topic)]
        return sorted(queue for topic in names for queue in source.queues(topic))
    found = {topic: source.queues(topic) for topic in selection.topics}
    missing = [topic for topic, queues in found.items() if not queues]
    if missing and not (partly and len(missing) < len(found)):
        known = source.topics()
        shown = ", ".join(known[:20]) + (", ..." if len(known) > 20 else "")
        raise OptionError(
            f"option {selection.option} names topic {missing[0]!r}, which is not there; "
            f"there are {shown or 'no topics at all'}{source.remark(missing[0])}"
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
    source: Source, queues: Iterable[Queue], position: Position, options: Options, *, start: bool
) -> Offsets:
    """The offset of each queue at a position; OptionError or DataLossError where there is none."""
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
    source: Source, queue: Queue, position: Position, options: Options, *, start: bool
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
            f"option {position.option} is {time}: {queue} has nothing stored since; "
            "startingOffsetsByTimestampStrategy=latest begins at its end"
        )
    return offset


def between(starts: Offsets, stops: Offsets) -> list[Range]:
    """Ranges that hold messages."""
    return [
        Range(queue, start, stops[queue])
        for queue, start in sorted(starts.items())
        if start < stops.get(queue, start)
    ]


def tasks(ranges: list[Range], options: Options) -> list[tuple[Range, ...]]:
    """What each task reads, one range after the other: one range, where not too many tasks come.

    Each task costs Spark as much time as tens of thousands of rows. The limit of records goes
    before that of tasks, which are then as few as it allows.
    """
    max_records, most = options.max_records_per_partition, options.max_partitions
    pieces = cut(ranges, options.min_partitions, max_records)
    if most == 0 or len(pieces) <= most:
        return [(piece,) for piece in pieces]
    if max_records:
        most = max(most, -(-_messages(ranges) // max_records))
    return spread(ranges, most)


def cut(ranges: list[Range], min_partitions: int, max_records: int) -> list[Range]:
    """The ranges in pieces: at least `min_partitions`, none over `max_records` (0: no limit)."""
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
    """The messages of all ranges, in their order, in `count` parts of like size; none is empty."""
    total = _messages(ranges)
    count = min(count, total)
    left = deque(ranges)
    parts: list[tuple[Range, ...]] = []
    for number in range(count):
        room = total * (number + 1) // count - total * number // count
        part: list[Range] = []
        while room:
            queue, start, stop = left.popleft()
            end = min(stop, start + room)
            part.append(Range(queue, start, end))
            if end < stop:
                left.appendleft(Range(queue, end, stop))
            room -= end - start
        parts.append(tuple(part))
    return parts


def _messages(ranges: list[Range]) -> int:
    return sum(stop - start for _, start, stop in ranges)
