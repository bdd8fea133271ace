"""Messages out of a store's files: `storePath`. A broker may be writing to them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from congreve.engine.errors import StoreFormatError
from congreve.engine.files import Entries, QueueFile, StoreFiles
from congreve.records.arrow import schema
from congreve.records.column import Column
from congreve.records.columns import RecordColumns
from congreve.records.errors import CorruptRecordError, RecordError
from congreve.records.properties import KEY_SEPARATOR
from congreve.spark.errors import DamagedError, DataLossError, OptionError, lost
from congreve.spark.keyindex import KeyIndex
from congreve.spark.offsets import Offsets, Queue, Range
from congreve.spark.options import Options, record_filter
from congreve.spark.rows import BATCH_BYTES, BATCH_ROWS, QueueRows, Scan
from congreve.spark.schema import CORRUPT

ENTRY_BYTES = 20
EXT_ADDRESS = -(2**31)
WINDOW = 32_768
"""Entries that are looked at together."""


class StoreSource:
    """The topics and queues of one store, all of one broker (option `brokerName`)."""

    def __init__(self, options: Options) -> None:
        path = options.store_path or ""
        self._named = f"option storePath is {path!r}"
        self._broker = options.broker_name
        log = options.store_path_commit_log
        if log:
            self._named += f", storePathCommitLog {log!r}"
        try:
            self._files = StoreFiles(Path(path), Path(log) if log else None)
        except StoreFormatError as error:
            raise self._unreadable(error) from error
        self._index_sizes = options.max_hash_slot_num, options.max_index_num
        self._queues: dict[Queue, QueueFile] = {}
        self.bytes_touched = 0
        """Of entries and records, by all that was read through this object."""

    def close(self) -> None:
        """Nothing is held but mappings, which end with this object."""

    def refresh(self) -> None:
        """Take up what came and went in the store's folder."""
        self._files.refresh()
        self._queues.clear()

    def commit(self, offsets: Offsets) -> None:
        """Files hold no groups: OptionError."""
        raise OptionError("option commitOffsetsToGroup needs nameServer: files hold no groups")

    def topics(self) -> list[str]:
        """Topics of the store."""
        return self._files.topics()

    def remark(self, topic: str) -> str:
        """What else there is to say of a topic that is not there: nothing."""
        return ""

    def queues(self, topic: str) -> list[Queue]:
        """Queues of a topic, none where the store has no such topic."""
        if topic not in self._files.topics():
            return []
        return [Queue(topic, self._broker, queue_id) for queue_id in self._files.queues(topic)]

    def bounds(self, queue: Queue) -> tuple[int, int]:
        """First offset that can be read, and that of the next message."""
        file = self._queue(queue)
        return file.min_offset, file.max_offset

    def offset_from_time(self, queue: Queue, timestamp_ms: int) -> int:
        """First offset stored at or after a time (by binary search), else the queue's end."""
        return self._queue(queue).offset_from(
            lambda physical, size: self._store_time(physical, size) >= timestamp_ms
        )

    def stop_within(self, queue: Queue, start: int, stop: int, limit: int) -> int:
        """Largest end of a range from `start` whose records have at most `limit` bytes.

        At least one message, however large it is: a stream must go on.
        """
        while start < stop:
            sizes = self._entries(queue, start, min(start + WINDOW, stop))["size"]
            total = np.cumsum(sizes, dtype=np.int64)
            if not len(total) or total[-1] > limit:
                return start + int(np.searchsorted(total, limit, side="right"))
            limit -= int(total[-1])
            start += len(total)
        return stop

    def size_of(self, queue: Queue, start: int, stop: int) -> int:
        """Bytes of the records in a range."""
        return int(self._entries(queue, start, stop)["size"].sum(dtype=np.int64))

    def check(self, parts: list[Range], scan: Scan) -> None:
        """DamagedError where a range ends in what is no record: a torn tail."""
        if scan.entries_suffice or CORRUPT in scan.schema.names:
            return
        for queue, _, stop in parts:
            for _ in self.read(
                Range(queue, stop - 1, stop), replace(scan, fail_on_data_loss=False)
            ):
                pass

    def read(self, part: Range, scan: Scan) -> Iterator[pa.RecordBatch]:
        """Batches of a range; DataLossError or DamagedError names the queue and what is wrong."""
        queue, start, stop = part
        low, high = self.bounds(queue)
        if (start < low or stop > high) and scan.fail_on_data_loss:
            raise lost(part, low, high)
        start, stop = max(start, low), min(stop, high)
        rows = QueueRows(scan, queue, None if scan.sql is None else record_filter(scan.sql))
        if scan.entries_suffice:
            yield from self._read_entries(rows, queue, start, stop, scan)
            return
        try:
            yield from self._read_records(rows, queue, start, stop, scan)
        except CorruptRecordError as error:
            raise DamagedError(
                f"{self._named}: {queue}: {error}. Ask for the column _corrupt to get a row for it"
            ) from error
        except StoreFormatError as error:
            raise DataLossError(f"{self._named}: {queue}: {error}") from error
        finally:
            self.bytes_touched += rows.gather.bytes_touched

    def find_key(self, queues: list[Queue], key: str) -> dict[Queue, list[int]]:
        """Offsets of messages that carry a key: by the index, and by reading what it lacks."""
        index = KeyIndex(self._files, *self._index_sizes)
        begin, end = index.covered()
        found: dict[Queue, set[int]] = {queue: set() for queue in queues}
        for topic in {queue.topic for queue in queues}:
            for record in index.find(topic, key):
                self.bytes_touched += record.size
                queue = Queue(topic, self._broker, record.queue_id)
                if queue in found:
                    found[queue].add(record.queue_offset)
        for queue, offsets in found.items():
            low, high = self.bounds(queue)
            file = self._queue(queue)
            first = min(file.offset_from(lambda place, _: place >= begin), high)
            last = file.offset_from(lambda place, _: place > end)
            parts = [(low, high)] if end < begin else [(low, first), (last, high)]
            for start, stop in parts:
                offsets.update(self._scan_keys(Range(queue, start, stop), key))
        return {queue: sorted(offsets) for queue, offsets in found.items() if offsets}

    def _scan_keys(self, part: Range, key: str) -> Iterator[int]:
        scan = Scan(schema=schema(["queueOffset", "keys", "msgId"]), fail_on_data_loss=False)
        for batch in self.read(part, scan) if part.start < part.stop else ():
            for offset, keys, unique in zip(*batch.to_pydict().values(), strict=True):
                if key == unique or key in (keys or "").split(KEY_SEPARATOR):
                    yield offset

    def _read_entries(
        self, rows: QueueRows, queue: Queue, start: int, stop: int, scan: Scan
    ) -> Iterator[pa.RecordBatch]:
        for first in range(start, stop, WINDOW):
            physical, sizes, offsets, codes = self._window(
                queue, first, min(first + WINDOW, stop), scan
            )
            columns: dict[str, Column | pa.Array] = {
                "queueOffset": pa.array(offsets),
                "commitLogOffset": pa.array(physical),
                "storeSize": pa.array(sizes),
                "tagsCode": pa.array(codes),
            }
            if len(offsets):
                yield rows.batch(columns, len(offsets))

    def _read_records(
        self, rows: QueueRows, queue: Queue, start: int, stop: int, scan: Scan
    ) -> Iterator[pa.RecordBatch]:
        held = 0
        for first in range(start, stop, WINDOW):
            window = self._window(queue, first, min(first + WINDOW, stop), scan)
            taken, count = 0, len(window[0])
            sizes = np.cumsum(np.maximum(window[1], 0), dtype=np.int64)
            while taken < count:
                spent = int(sizes[taken - 1]) if taken else 0
                end = int(np.searchsorted(sizes, spent + BATCH_BYTES - held, side="right"))
                end = min(max(end, taken + 1), taken + BATCH_ROWS - rows.gather.rows, count)
                self._gather(rows.gather, [column[taken:end] for column in window])
                held += int(sizes[end - 1]) - spent
                taken = end
                if rows.gather.rows >= BATCH_ROWS or held >= BATCH_BYTES:
                    held = 0
                    if rows.gather.rows:
                        yield rows.take()
        if rows.gather.rows:
            yield rows.take()

    def _gather(self, gather: RecordColumns, window: list[Any]) -> None:
        """Records of entries, segment by segment."""
        for base, part in self._files.runs(window[0]):
            gather.add_entries(
                self._files.segment(base), base, *(column[part] for column in window)
            )

    def _window(self, queue: Queue, start: int, stop: int, scan: Scan) -> tuple[Any, Any, Any, Any]:
        """Physical offsets, sizes, offsets, tags codes of entries that may pass the filter."""
        entries = self._entries(queue, start, stop)
        offsets = np.arange(start, start + len(entries), dtype=np.int64)
        if scan.codes is not None:
            hashes = entries["tags_code"].astype(np.int64)
            # an address in a consumequeue_ext file stands where its unit has the hash
            mask = _among(hashes, scan.codes) | (hashes < EXT_ADDRESS)
            entries, offsets = entries[mask], offsets[mask]
        return (
            entries["physical_offset"].astype(np.int64),
            entries["size"].astype(np.int32),
            offsets,
            entries["tags_code"].astype(np.int64),
        )

    def _entries(self, queue: Queue, start: int, stop: int) -> Entries:
        entries = self._queue(queue).entries(start, stop)
        self.bytes_touched += len(entries) * ENTRY_BYTES
        return entries

    def _queue(self, queue: Queue) -> QueueFile:
        if queue not in self._queues:
            try:
                self._queues[queue] = self._files.queue(queue.topic, queue.queue_id)
            except StoreFormatError as error:
                raise self._unreadable(error) from error
        return self._queues[queue]

    def _unreadable(self, error: StoreFormatError) -> OptionError:
        return OptionError(f"{self._named}: {error}")

    def _store_time(self, physical_offset: int, size: int) -> int:
        """In ms; 0 for what is no record, as the reference has it."""
        gather = RecordColumns(["storeTimestamp"], keep_corrupt=True)
        try:
            gather.add_records(self._files.record(physical_offset, size))
        except RecordError:
            return 0
        self.bytes_touched += gather.bytes_touched + ENTRY_BYTES
        column = gather.take()["storeTimestamp"]
        return int(np.frombuffer(memoryview(column.values), np.int64)[0]) // 1000


def _among(values: Any, wanted: tuple[int, ...]) -> Any:
    return np.isin(values, np.array(wanted, np.int64)) if len(wanted) != 1 else values == wanted[0]
