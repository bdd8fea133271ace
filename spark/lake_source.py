"""The source of the option `lake`: the messages of a table, then the live ones, by offset."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from congreve.records.columns.arrow import schema
from congreve.records.columns.same_message import OF_MESSAGE, fingerprint
from congreve.spark.errors import DataLossError, OptionError
from congreve.spark.offsets import Offsets, Queue, Range
from congreve.spark.options import Options
from congreve.spark.planning import Source
from congreve.spark.rows import Scan
from congreve.spark.table_files import TableFiles

if TYPE_CHECKING:
    from congreve.lake.row_groups import RowGroups
    from congreve.lake.table import TopicTable


class LakeSource:
    """Messages of tables before those of a live source, each of them once.

    Offsets below the end of a queue in its table come from files, all others from the live source.
    The driver reads the tables, and tasks get the row groups that they need as `known`.
    """

    def __init__(
        self, open_live: Callable[[], Source], options: Options, known: TableFiles | None = None
    ) -> None:
        self._open_live = open_live
        self._options = options
        self._live: Source | None = None
        self._tables = TableFiles() if known is None else known
        self._groups: dict[str, RowGroups] = {}
        self._compared: set[tuple[str, str]] = set()

    @property
    def live(self) -> Source:
        """The live source, which is opened when it is needed: many tasks read files only."""
        if self._live is None:
            self._live = self._open_live()
        return self._live

    def close(self) -> None:
        """Close the live source."""
        if self._live is not None:
            self._live.close()

    def refresh(self) -> None:
        """Update topics and queues. Tables are read again when the live source has lost messages
        that they did not have."""
        self.live.refresh()

    def commit(self, offsets: Offsets) -> None:
        """Commit offsets for the group of the option `group`."""
        self.live.commit(offsets)

    def topics(self) -> list[str]:
        """The topics of the live source."""
        return self.live.topics()

    def missing_topic_hint(self, topic: str) -> str:
        """That of the live source."""
        return self.live.missing_topic_hint(topic)

    def queues(self, topic: str) -> list[Queue]:
        """The queues of the live source."""
        return self.live.queues(topic)

    @property
    def tables(self) -> TableFiles:
        """The files of all tables that were read."""
        return self._tables

    def files_for(self, parts: tuple[Range, ...]) -> TableFiles:
        """The files that a task needs for these ranges."""
        return self._tables.narrowed(parts)

    def table_end(self, queue: Queue) -> int:
        """The offset behind the last message that comes from the table."""
        self._load(queue.topic)
        return self._tables.of(queue).end

    def bounds(self, queue: Queue) -> tuple[int, int]:
        """Offset of the first message, in the table or live, and of the next message to arrive.

        Raises DataLossError if the live messages begin behind the end of the table, or if the
        table has those of a topic that was deleted.
        """
        low, high = self.live.bounds(queue)
        if self._gap(queue, low):
            self._load(queue.topic, again=True)
        known = self._tables.of(queue)
        self._check_topic(queue, low, high)
        if self._gap(queue, low) and self._options.fail_on_data_loss:
            raise DataLossError(
                f"{queue} ends at {known.end} in its table, and begins at {low}: the messages "
                "between were deleted; option failOnDataLoss=false skips them"
            )
        return min(known.first, low) if known.groups else low, max(high, known.end)

    def offset_from_time(self, queue: Queue, timestamp_ms: int) -> int:
        """The first offset stored at or after a time, else the queue's end."""
        self._load(queue.topic)
        found = self._tables.offset_from_time(queue, timestamp_ms)
        end = self._tables.of(queue).end
        if found is not None and found < end:
            return found
        return max(self.live.offset_from_time(queue, timestamp_ms), end)

    def stop_within(self, queue: Queue, start: int, stop: int, limit: int) -> int:
        """The largest end of a range whose records have at most `limit` bytes, at least one."""
        end = min(self.table_end(queue), stop)
        if start < end:
            total = np.cumsum(self._tables.sizes(Range(queue, start, end)))
            if len(total) and total[-1] > limit:
                return start + int(np.searchsorted(total, limit, side="right"))
            limit -= int(total[-1]) if len(total) else 0
            start = end
        return start if start >= stop else self.live.stop_within(queue, start, stop, limit)

    def size_of(self, queue: Queue, start: int, stop: int) -> int:
        """Bytes of the records in a range."""
        end = min(self.table_end(queue), stop)
        size = int(self._tables.sizes(Range(queue, start, end)).sum()) if start < end else 0
        start = max(start, end)
        return size + (self.live.size_of(queue, start, stop) if start < stop else 0)

    def fingerprint(self, queue: Queue, offset: int) -> int | None:
        """What tells a message from a later one with its offset; None without such a message."""
        if offset >= self.table_end(queue):
            return self.live.fingerprint(queue, offset)
        rows = self._tables.read(Range(queue, offset, offset + 1), Scan(schema(OF_MESSAGE)))
        return next((fingerprint(batch) for batch in rows if len(batch)), None)

    def find_key(self, queues: list[Queue], key: str) -> dict[Queue, list[int]]:
        """Offsets of the messages with a key, by queue; reads the keys of all rows of tables."""
        found = self.live.find_key(queues, key)
        for queue in queues:
            end = self.table_end(queue)
            live = [offset for offset in found.pop(queue, []) if offset >= end]
            offsets = sorted({*self._tables.with_key(queue, key), *live})
            if offsets:
                found[queue] = offsets
        return found

    def check(self, parts: list[Range], scan: Scan) -> None:
        """Check the live messages of the ranges."""
        live = [tail for part in parts if (tail := self._tail(part)) is not None]
        if live:
            self.live.check(live, scan)

    def read(self, part: Range, scan: Scan) -> Iterator[pa.RecordBatch]:
        """Yield the messages of a range: the rows of the table, then the live ones.

        Raises DataLossError when messages between the two were deleted.
        """
        tail = self._tail(part)
        if tail is not None and self.live.bounds(tail.queue)[0] > tail.start:
            self._load(part.queue.topic, again=True)  # exported since, and then deleted
            tail = self._tail(part)
        end = part.stop if tail is None else tail.start
        if part.start < end:
            yield from self._tables.read(Range(part.queue, part.start, end), scan)
        if tail is not None:
            yield from self.live.read(tail, scan)

    def _tail(self, part: Range) -> Range | None:
        queue, start, stop = part
        start = max(start, self.table_end(queue))
        return Range(queue, start, stop) if start < stop else None

    def _gap(self, queue: Queue, low: int) -> bool:
        """Whether the live messages begin behind the table's end."""
        end = self.table_end(queue)
        return 0 < end < low

    def _check_topic(self, queue: Queue, low: int, high: int) -> None:
        """Compare a message that both have, of one queue of each topic and broker."""
        place, known = (queue.topic, queue.broker), self._tables.of(queue)
        offset = min(known.end, high) - 1
        if place in self._compared or not known.groups or offset < max(low, known.first):
            return
        live, rows = self.live.fingerprint(queue, offset), self.fingerprint(queue, offset)
        if None in (live, rows):
            return
        if live != rows:
            raise DataLossError(
                f"{queue} has another message at {offset} than its table: the table has those of a "
                "deleted topic of this name, or of another broker. Set it aside with `congreve "
                "lake set-aside`, or read without the option lake"
            )
        self._compared.add(place)

    def _load(self, topic: str, *, again: bool = False) -> None:
        if topic in self._tables.files and not again:
            return
        # Imported here because most tasks read files and know what is in them.
        from congreve.lake.row_groups import RowGroups

        groups = self._groups.setdefault(topic, RowGroups())
        groups.refresh(self._table(topic))
        brokers = {broker for broker, _ in groups.of_queue}
        if self._options.store_path and brokers and self._options.broker_name not in brokers:
            raise OptionError(
                f"option brokerName is {self._options.broker_name!r}: the table of {topic} has "
                f"{', '.join(sorted(brokers))}"
            )
        self._tables = self._tables.with_table(topic, groups)

    def _table(self, topic: str) -> TopicTable:
        from congreve.lake.durable import SCHEMA
        from congreve.lake.table import TopicTable, open_catalog

        options = self._options.lake
        assert options is not None, "a LakeSource has the option lake"
        catalog = open_catalog(options.warehouse, options.catalog, dict(options.properties))
        return TopicTable(catalog, options.table or f"rocketmq.{topic}", SCHEMA, "day")
