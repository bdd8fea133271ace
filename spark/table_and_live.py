"""Which messages of a topic are in its table, and which are live only, for union()."""

from __future__ import annotations

from dataclasses import dataclass

from congreve.lake.data_files import DataFiles, RowGroup, first_at
from congreve.lake.durable import SCHEMA
from congreve.lake.row_groups import RowGroups
from congreve.lake.table import TopicTable, open_catalog
from congreve.records.columns.same_message import OF_MESSAGE, fingerprint
from congreve.spark.errors import DataLossError, OptionError
from congreve.spark.offsets import Queue
from congreve.spark.options import Options
from congreve.spark.planning import Source


@dataclass(frozen=True)
class QueueFiles:
    """The row groups of a queue, which have all of its messages before `end`."""

    end: int
    groups: tuple[RowGroup, ...] = ()

    def within(self, start: int, stop: int) -> tuple[RowGroup, ...]:
        """The row groups that a range needs."""
        return tuple(g for g in self.groups if g.first < stop and start < g.stop)

    @property
    def first(self) -> int:
        """The first offset in the table; `end` without any message."""
        return min((group.first for group in self.groups), default=self.end)


class TableAndLive:
    """The queues of tables and of a live source as one: offsets below the end of a queue in its
    table are in files, all others live."""

    def __init__(self, live: Source, options: Options) -> None:
        self.live = live
        self._options = options
        self._files: dict[str, DataFiles] = {}
        self._groups: dict[str, RowGroups] = {}
        self._compared: set[tuple[str, str]] = set()
        self.queue_files: dict[Queue, QueueFiles] = {}
        """The files of the queues of all tables that were read."""

    def close(self) -> None:
        """Close the live source."""
        self.live.close()

    def topics(self) -> list[str]:
        """The topics of the live source."""
        return self.live.topics()

    def missing_topic_hint(self, topic: str) -> str:
        """That of the live source."""
        return self.live.missing_topic_hint(topic)

    def queues(self, topic: str) -> list[Queue]:
        """The queues of the live source."""
        return self.live.queues(topic)

    def of(self, queue: Queue) -> QueueFiles:
        """The files of a queue; none if its table does not have the queue."""
        self._load(queue.topic)
        return self.queue_files.get(queue, QueueFiles(0))

    def bounds(self, queue: Queue) -> tuple[int, int]:
        """Offset of the first message, in the table or live, and of the next message to arrive.

        Raises DataLossError if the live messages begin behind the end of the table, or if the
        table has those of a topic that was deleted.
        """
        low, high = self.live.bounds(queue)
        if 0 < self.of(queue).end < low:
            self._load(queue.topic, again=True)  # exported since, and then deleted
        known = self.of(queue)
        self._check_topic(queue, low, high)
        if 0 < known.end < low and self._options.fail_on_data_loss:
            raise DataLossError(
                f"{queue} ends at {known.end} in its table, and begins at {low}: the messages "
                "between were deleted; option failOnDataLoss=false skips them"
            )
        return min(known.first, low) if known.groups else low, max(high, known.end)

    def offset_from_time(self, queue: Queue, timestamp_ms: int) -> int:
        """The first offset stored at or after a time, else the queue's end."""
        known, place = self.of(queue), (queue.broker, queue.queue_id)
        found = first_at(self._files[queue.topic], known.groups, place, timestamp_ms)
        if found is not None and found < known.end:
            return found
        return max(self.live.offset_from_time(queue, timestamp_ms), known.end)

    def _check_topic(self, queue: Queue, low: int, high: int) -> None:
        """Compare a message that both have, of one queue of each topic and broker."""
        place, known = (queue.topic, queue.broker), self.of(queue)
        offset = min(known.end, high) - 1
        if place in self._compared or not known.groups or offset < max(low, known.first):
            return
        live, row = self.live.fingerprint(queue, offset), self._fingerprint(queue, offset)
        if None in (live, row):
            return
        if live != row:
            raise DataLossError(
                f"{queue} has another message at {offset} than its table: the table has those of a "
                "deleted topic of this name, or of another broker. Set it aside with `congreve "
                "lake set-aside`, or read without the table"
            )
        self._compared.add(place)

    def _fingerprint(self, queue: Queue, offset: int) -> int | None:
        """That of a message in the table, None without such a row."""
        for group in self.of(queue).within(offset, offset + 1):
            place = queue.broker, queue.queue_id
            rows = self._files[queue.topic].read(group, place, OF_MESSAGE)
            offsets = rows["queueOffset"].to_pylist()
            if offset in offsets:
                return fingerprint(rows, offsets.index(offset))
        return None

    def _load(self, topic: str, *, again: bool = False) -> None:
        if topic in self._files and not again:
            return
        groups = self._groups.setdefault(topic, RowGroups())
        groups.refresh(self._table(topic))
        brokers = {broker for broker, _ in groups.of_queue}
        if self._options.store_path and brokers and self._options.broker_name not in brokers:
            raise OptionError(
                f"option brokerName is {self._options.broker_name!r}: the table of {topic} has "
                f"{', '.join(sorted(brokers))}"
            )
        self._files[topic] = groups.files
        for broker, ends in groups.ends.items():
            for queue_id, end in ends.items():
                of_queue = tuple(groups.of_queue.get((broker, queue_id), ()))
                self.queue_files[Queue(topic, broker, queue_id)] = QueueFiles(end, of_queue)

    def _table(self, topic: str) -> TopicTable:
        options = self._options.lake
        assert options is not None, "a union has the option lake"
        catalog = open_catalog(options.warehouse, options.catalog, dict(options.properties))
        return TopicTable(catalog, options.table or f"rocketmq.{topic}", SCHEMA, "day")
