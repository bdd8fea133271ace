"""The messages of tables by offset, key, time and physical offset: reads beyond retention."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from congreve.engine.exported_queues import ExportedQueues
from congreve.lake.data_files import BrokerQueue, DataFiles, RowGroup, first_at
from congreve.lake.errors import TableError
from congreve.lake.queue_batches import queue_batches
from congreve.lake.row_groups import RowGroups
from congreve.lake.table import TopicTable
from congreve.records.columns.stored import COLUMNS, StoredRows, stored_rows
from congreve.records.message.properties import KEY_SEPARATOR

T = TypeVar("T")

MOST_READERS = 16


class TableArchive:
    """Messages of one broker that are no longer in its log, as the records that the log had.

    One thread uses it. It holds the rows of one row group while it searches, a decoded page of each
    column of the MOST_READERS queues that were read last, and an entry for each row group of the
    tables. All methods raise LakeError or OSError when a table cannot be read, or when it is not
    known yet whether its messages are those of the broker's present topic.
    """

    def __init__(
        self, tables: Mapping[str, TopicTable], broker: str, exported: ExportedQueues
    ) -> None:
        """The tables by topic; `exported` knows which queues their messages are of."""
        self._tables = tables
        self._broker = broker
        self._exported = exported
        self._known: dict[str, RowGroups] = {}
        self._readers: dict[tuple[str, int], _QueueReader] = {}

    def first_offset(self, topic: str, queue_id: int) -> int | None:
        """The offset of a queue's first message, None if there is none."""
        groups = self._of_queue(self._groups(topic), topic, queue_id)
        return groups[0].first if groups else None

    def first_time(self, topic: str, queue_id: int) -> int | None:
        """Store time in ms of a queue's first message, None if there is none."""
        groups = self._of_queue(self._groups(topic), topic, queue_id)
        return groups[0].begin_ms if groups else None

    def read(self, topic: str, queue_id: int, offset: int, max_bytes: int) -> StoredRows | None:
        """The messages from the first one at or after `offset` on, without a gap between them.

        About `max_bytes` bytes of records, at least one. None if there is no such message.
        """
        place = topic, queue_id
        self._groups(topic)
        reader = self._readers.pop(place, None) if self._is_current(*place) else None
        found: StoredRows | None = None
        if reader is not None and reader.next_offset == offset:
            with suppress(FileNotFoundError):  # upkeep has merged and removed the next file
                found = reader.read()
        if found is None:

            def begin(groups: RowGroups) -> tuple[_QueueReader, StoredRows | None]:
                queue, parts = (self._broker, queue_id), self._of_queue(groups, topic, queue_id)
                reader = _QueueReader(groups.files, parts, topic, queue, offset, max_bytes)
                return reader, reader.read()

            reader, found = self._read(topic, begin)
            if found is None:  # perhaps they were committed since the last look at the table
                reader, found = begin(self._refreshed(topic))
        if found is not None and reader is not None:
            self._readers[place] = reader
            if len(self._readers) > MOST_READERS:
                del self._readers[next(iter(self._readers))]
        return found

    def offset_at(self, topic: str, queue_id: int, timestamp_ms: int) -> int | None:
        """The first offset stored at or after a time, None if all messages are older."""
        queue = self._broker, queue_id

        def find(groups: RowGroups) -> int | None:
            of_queue = self._of_queue(groups, topic, queue_id)
            return first_at(groups.files, of_queue, queue, timestamp_ms)

        found = self._read(topic, find)
        return self._read(topic, find, self._refreshed) if found is None else found

    def record_at(self, physical_offset: int) -> bytes | None:
        """The record that began at this physical offset, None if there is none."""
        for groups_of in (self._groups, self._refreshed):
            for topic in self._tables:
                read = partial(self._at_place, topic, physical_offset)
                found = self._read(topic, read, groups_of)
                if found is not None:
                    return found
        return None

    def _at_place(self, topic: str, physical_offset: int, groups: RowGroups) -> bytes | None:
        for queue, group in self._newest_first(groups, topic):
            if group.first_place <= physical_offset <= group.last_place:
                rows = groups.files.read(group, queue, COLUMNS)
                rows = rows.filter(pc.equal(rows["commitLogOffset"], physical_offset))
                if len(rows):
                    return _stored(rows, topic, queue[1]).records
        return None

    def query(
        self,
        topic: str,
        key: str,
        max_count: int,
        max_bytes: int,
        times_ms: tuple[int, int],
        log_begins: Mapping[int, int],
    ) -> list[bytes]:
        """The newest records with a key, stored between two times, that the log does not have.

        A key is one of KEYS, or the unique key (RocketMQ: queryMessage). `log_begins` are the first
        offsets of the queues in the log. The method reads the keys of all messages of that time,
        the newest row groups first, until the records have `max_bytes` bytes or more.
        """

        if max_count <= 0 or max_bytes <= 0:
            return []

        def find(groups: RowGroups) -> list[bytes]:
            newest = _Newest(max_count, max_bytes)
            for queue, group in self._newest_first(groups, topic):
                if newest.is_full and group.last_place < newest.records[-1][0]:
                    break
                if group.end_ms < times_ms[0] or group.begin_ms > times_ms[1]:
                    continue
                stop = log_begins.get(queue[1], group.stop)
                if group.first < stop:
                    newest.add(_with_key(groups, topic, (queue, group), key, times_ms, stop))
            return [record for _, record in newest.records]

        return self._read(topic, find, partial(self._groups_up_to, log_begins))

    def _read(
        self,
        topic: str,
        read: Callable[[RowGroups], T],
        groups_of: Callable[[str], RowGroups] | None = None,
    ) -> T:
        try:
            return read((groups_of or self._groups)(topic))
        except FileNotFoundError:  # upkeep has merged a file, and removed it later
            return read(self._refreshed(topic))

    def _groups(self, topic: str) -> RowGroups:
        """The row groups of the table that has the topic; raises TableError if none is known."""
        known, table = self._known.get(topic), self._table(topic)
        if known is not None and known.of_queue and known.table == table:
            return known
        return self._refreshed(topic)

    def _table(self, topic: str) -> str:
        table = self._exported.table(topic)
        if table is None:
            self._exported.refresh()
            table = self._exported.table(topic)
        if table is None:
            raise TableError(
                f"which messages of {topic} tables have is not known before the first export after "
                "the start: try again"
            )
        return table

    def _is_current(self, topic: str, queue_id: int) -> bool:
        """Whether the known row groups have the messages of the broker's present queue."""
        for look in (self._exported.refresh, None):
            groups = self._known.get(topic)
            is_table = groups is not None and groups.table == self._exported.table(topic)
            if is_table and self._exported.has(topic, queue_id):
                return True
            if look is not None:
                look()
        return False

    def _of_queue(self, groups: RowGroups, topic: str, queue_id: int) -> Sequence[RowGroup]:
        """The row groups of a queue, none if they have messages of a topic that was deleted."""
        found = groups.of_queue.get((self._broker, queue_id), [])
        return found if found and self._is_current(topic, queue_id) else []

    def _groups_up_to(self, log_begins: Mapping[int, int], topic: str) -> RowGroups:
        """The row groups of a topic; the known ones if they have all messages before the log."""
        known = self._groups(topic)
        ends = known.ends.get(self._broker, {})
        if all(begin <= ends.get(queue_id, 0) for queue_id, begin in log_begins.items()):
            return known
        return self._refreshed(topic)

    def _refreshed(self, topic: str) -> RowGroups:
        groups = self._known.setdefault(topic, RowGroups())
        before = groups.table
        groups.refresh(self._tables[topic])
        if groups.table != before:
            for place in [place for place in self._readers if place[0] == topic]:
                del self._readers[place]
        return groups

    def _newest_first(self, groups: RowGroups, topic: str) -> list[tuple[BrokerQueue, RowGroup]]:
        found = [
            (queue, group)
            for queue in groups.of_queue
            if queue[0] == self._broker
            for group in self._of_queue(groups, topic, queue[1])
        ]
        return sorted(found, key=lambda pair: pair[1].last_place, reverse=True)


LAST_MS = 2**63 // 1000 - 1
"""The last time that a column of microseconds can have; clients send 2**63 - 1 ms for no end."""
KEYED = ("keys", "msgId", "storeTimestamp")

Placed = tuple[int, bytes]
"""A record and its physical offset in the log that had it."""


class _Newest:
    """The newest records, of which the last one reaches or exceeds the number or the bytes."""

    def __init__(self, max_count: int, max_bytes: int) -> None:
        self._max_count, self._max_bytes = max_count, max_bytes
        self.records: list[Placed] = []
        """The newest first."""

    @property
    def is_full(self) -> bool:
        """Whether a record that is older than all of these is not one of the newest."""
        return self._is_enough(len(self.records), sum(len(record) for _, record in self.records))

    def add(self, found: Iterator[Placed]) -> None:
        """Add records, which come newest first; it takes as many as there can be."""
        added = list(self._until_full(found))
        newest_first = sorted([*self.records, *added], reverse=True)
        self.records = list(self._until_full(newest_first))

    def _until_full(self, records: Iterable[Placed]) -> Iterator[Placed]:
        nbytes = 0
        for number, placed in enumerate(records, 1):
            yield placed
            nbytes += len(placed[1])
            if self._is_enough(number, nbytes):
                return

    def _is_enough(self, count: int, nbytes: int) -> bool:
        return count >= self._max_count or nbytes >= self._max_bytes


def _with_key(
    groups: RowGroups,
    topic: str,
    place: tuple[BrokerQueue, RowGroup],
    key: str,
    times_ms: tuple[int, int],
    stop: int,
) -> Iterator[Placed]:
    """The records of a row group with a key, before the offset `stop`, the last one first."""
    queue, group = place
    rows = groups.files.read(group, queue, KEYED)
    times = rows["storeTimestamp"].cast(pa.int64())
    # A key in KEYS may be a part of another one: what these conditions leave is compared below.
    named = pc.or_kleene(pc.match_substring(rows["keys"], key), pc.equal(rows["msgId"], key))
    begin, end = (min(max(time_ms, 0), LAST_MS) * 1000 for time_ms in times_ms)
    in_time = pc.and_(pc.greater_equal(times, begin), pc.less_equal(times, end))
    before = pc.less(rows["queueOffset"], stop)
    rows = rows.filter(pc.and_kleene(named, pc.and_(in_time, before)))
    found = rows.select(["queueOffset", "keys", "msgId"]).to_pydict()
    offsets = [
        offset
        for offset, keys, unique in zip(*found.values(), strict=True)
        if key == unique or key in (keys or "").split(KEY_SEPARATOR)
    ]
    if offsets:
        rows = groups.files.read(group, queue, COLUMNS)
    for offset in reversed(offsets):
        one = rows.filter(pc.equal(rows["queueOffset"], offset))
        yield one["commitLogOffset"][0].as_py(), _stored(one, topic, queue[1]).records


class _QueueReader:
    """The messages of a queue from `offset` on, which are decoded as they are read."""

    def __init__(
        self,
        files: DataFiles,
        groups: Sequence[RowGroup],
        topic: str,
        queue: BrokerQueue,
        offset: int,
        part_bytes: int,
    ) -> None:
        self._topic, self._queue_id = topic, queue[1]
        self._batches = queue_batches(
            *(files, groups, queue, COLUMNS),
            start=offset,
            batch_bytes=part_bytes,
        )
        self.next_offset = offset

    def read(self) -> StoredRows | None:
        """The next messages, without a gap between them; None at the end. Raises OSError."""
        batch = next(self._batches, None)
        if batch is None:
            return None
        rows = stored_rows(batch, self._topic, self._queue_id)
        self.next_offset = rows.stop
        return rows


def _stored(rows: pa.Table, topic: str, queue_id: int) -> StoredRows:
    batch = rows.combine_chunks().to_batches()[0]
    return stored_rows(batch, topic, queue_id)
