"""The source of a store's files (option `storePath`); a broker may be writing to them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from congreve.engine.errors import StoreFormatError
from congreve.engine.file_sizes import ENTRY_SIZE
from congreve.engine.state.sizes import kept_sizes
from congreve.engine.store_files.files import Entries, QueueFile, StoreFiles
from congreve.engine.store_files.queue_scan import (
    WINDOW,
    EntryColumns,
    entry_windows,
    gather_batches,
)
from congreve.records.columns.arrow import schema
from congreve.records.columns.builder import RecordColumns
from congreve.records.columns.column import Column
from congreve.records.columns.same_message import fingerprint_of
from congreve.records.errors import CorruptRecordError, RecordError
from congreve.records.message.properties import KEY_SEPARATOR
from congreve.spark.errors import DamagedError, DataLossError, OptionError, lost
from congreve.spark.offsets import Offsets, Queue, Range
from congreve.spark.options import Options, record_filter
from congreve.spark.rows import QueueRows, Scan
from congreve.spark.schema import CORRUPT
from congreve.spark.sources.key_index import KeyIndex


class StoreSource:
    """The topics and queues of one broker's store (option `brokerName`)."""

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
        kept = kept_sizes(self._files.root)
        self._index_sizes = (
            options.max_hash_slot_num or kept.max_hash_slot_num,
            options.max_index_num or kept.max_index_num,
        )
        self._queues: dict[Queue, QueueFile] = {}
        self.bytes_read = 0
        """Bytes of entries and records that were read through this object."""

    def close(self) -> None:
        """Do nothing: the mappings end with this object."""

    def refresh(self) -> None:
        """Update the topics and queues from the store's folder."""
        self._files.refresh()
        self._queues.clear()

    def commit(self, offsets: Offsets) -> None:
        """Raises OptionError: files hold no groups."""
        raise OptionError("option commitOffsetsToGroup needs nameServer: files hold no groups")

    def topics(self) -> list[str]:
        """Topics of the store."""
        return self._files.topics()

    def missing_topic_hint(self, topic: str) -> str:
        """The empty text: a store has no hint about a missing topic."""
        return ""

    def queues(self, topic: str) -> list[Queue]:
        """Queues of a topic, none when the store does not have it."""
        if topic not in self._files.topics():
            return []
        return [Queue(topic, self._broker, queue_id) for queue_id in self._files.queues(topic)]

    def bounds(self, queue: Queue) -> tuple[int, int]:
        """Offset of the first message, and of the next message to arrive."""
        file = self._queue(queue)
        return file.min_offset, file.max_offset

    def offset_from_time(self, queue: Queue, timestamp_ms: int) -> int:
        """The first offset stored at or after a time (by binary search), else the queue's end."""
        return self._queue(queue).offset_from(
            lambda physical, size: self._store_time(physical, size) >= timestamp_ms
        )

    def stop_within(self, queue: Queue, start: int, stop: int, limit: int) -> int:
        """The largest end of a range from `start` whose records have at most `limit` bytes.

        The range has at least one message, so that a stream makes progress.
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
        """Raises DamagedError when the last record of a range is damaged: a torn tail."""
        if scan.entries_suffice or CORRUPT in scan.schema.names:
            return
        for queue, _, stop in parts:
            for _ in self.read(
                Range(queue, stop - 1, stop), replace(scan, fail_on_data_loss=False)
            ):
                pass

    def read(self, part: Range, scan: Scan) -> Iterator[pa.RecordBatch]:
        """Yield the messages of a range in batches.

        Raises DataLossError when messages have been deleted, DamagedError when a record is damaged;
        both name the queue.
        """
        queue, start, stop = part
        low, high = self.bounds(queue)
        if (start < low or stop > high) and scan.fail_on_data_loss:
            raise lost(part, low, high)
        start, stop = max(start, low), min(stop, high)
        rows = QueueRows(scan, queue, None if scan.sql is None else record_filter(scan.sql))
        windows = entry_windows(partial(self._entries, queue), start, stop, scan.codes)
        if scan.entries_suffice:
            yield from self._read_entries(rows, windows)
            return
        try:
            for _ in gather_batches(self._files, windows, rows.gather):
                yield rows.take()
        except CorruptRecordError as error:
            raise DamagedError(
                f"{self._named}: {queue}: {error}. Ask for the column _corrupt to get a row for it"
            ) from error
        except StoreFormatError as error:
            raise DataLossError(f"{self._named}: {queue}: {error}") from error
        finally:
            self.bytes_read += rows.gather.bytes_read

    def fingerprint(self, queue: Queue, offset: int) -> int | None:
        """What tells a message from a later one with its offset; None without such a message."""
        for entry in self._entries(queue, offset, offset + 1):
            place, size = int(entry["physical_offset"]), int(entry["size"])
            with suppress(RecordError, StoreFormatError):
                return fingerprint_of(self._files.record(place, size))
        return None

    def find_key(self, queues: list[Queue], key: str) -> dict[Queue, list[int]]:
        """Offsets of the messages with a key: by the index, and by reading what it does not
        cover."""
        index = KeyIndex(self._files, *self._index_sizes)
        begin, end = index.covered()
        found: dict[Queue, set[int]] = {queue: set() for queue in queues}
        for topic in {queue.topic for queue in queues}:
            for record in index.find(topic, key):
                self.bytes_read += record.size
                queue = Queue(topic, self._broker, record.queue_id)
                if queue in found and record.queue_offset < self._queue(queue).max_offset:
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
        self, rows: QueueRows, windows: Iterator[EntryColumns]
    ) -> Iterator[pa.RecordBatch]:
        for entries in windows:
            columns: dict[str, Column | pa.Array] = {
                "queueOffset": pa.array(entries.queue_offsets),
                "commitLogOffset": pa.array(entries.physical_offsets),
                "storeSize": pa.array(entries.sizes),
                "tagsCode": pa.array(entries.tags_codes),
            }
            if len(entries.sizes):
                yield rows.batch(columns, len(entries.sizes))

    def _entries(self, queue: Queue, start: int, stop: int) -> Entries:
        entries = self._queue(queue).entries(start, stop)
        self.bytes_read += len(entries) * ENTRY_SIZE
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
        """Store time in ms; 0 for a damaged record, as in the reference."""
        gather = RecordColumns(["storeTimestamp"], keep_corrupt=True)
        try:
            gather.add_records(self._files.record(physical_offset, size))
        except RecordError:
            return 0
        self.bytes_read += gather.bytes_read + ENTRY_SIZE
        column = gather.take()["storeTimestamp"]
        return int(np.frombuffer(memoryview(column.values), np.int64)[0]) // 1000
