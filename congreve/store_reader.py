"""The reader of a store's files for analysis: ``congreve.open_store``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from congreve.engine.store_files.files import Entries, StoreFiles
from congreve.engine.store_files.queue_scan import entry_windows, gather_batches
from congreve.engine.store_files.verify import QueueInfo, StoreExaminer, StoreInfo, VerifyReport
from congreve.records.columns.arrays import FIXED_WIDTH, to_numpy
from congreve.records.columns.builder import RecordColumns
from congreve.records.columns.column import Column
from congreve.records.errors import RecordError

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS = (
    *("topic", "flag", "body", "properties", "queueId", "queueOffset", "bornTimestamp"),
    *("storeTimestamp", "tags", "keys", "msgId", "offsetMsgId", "commitLogOffset", "storeSize"),
    *("tagsCode", "sysFlag", "bodyCRC", "reconsumeTimes", "bornHost", "storeHost"),
)
"""The columns of a message in a store's files: those of the Spark source without brokerName."""


def open_store(path: str | Path, *, commit_log: str | Path | None = None) -> StoreReader:
    """Read a store of Congreve or of RocketMQ 4.9 from its files::

        store = congreve.open_store("data/store")
        store.numpy("orders", ["queueOffset", "storeTimestamp", "storeSize"])

    `path` is a broker's storePathRootDir, or the folder passed to serve(). `commit_log` is
    storePathCommitLog, if the broker sets one. The reader changes no file and takes no lock, so a
    broker may be running. Raises StoreFormatError if the folder holds no store.
    """
    root = Path(path)
    if not (root / "commitlog").is_dir() and (root / "store" / "commitlog").is_dir():
        root = root / "store"
    return StoreReader(root, None if commit_log is None else Path(commit_log))


class StoreReader:
    """Topics, queues and messages of a store's folder (RocketMQ: DefaultMessageStore, read only).

    Every call sees the current state of the files; while a broker writes the store, it ends at the
    last message in the files. Offsets count the messages of a queue, as in RocketMQ; a range
    beyond the stored messages is clipped. Every call raises StoreFormatError when files are
    missing or belong to another store, and CorruptRecordError for a damaged message in the range.

    A mapped segment keeps its disk space after a broker has deleted it. close() unmaps segments,
    and so does the end of a ``with``.
    """

    def __init__(self, root: Path, commit_log: Path | None = None) -> None:
        self.root = root
        self._commit_log = commit_log
        self._files = StoreFiles(root, commit_log)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Unmap the log's segments; a later call maps those that it needs again. Idempotent."""
        self._files.release()

    def topics(self) -> list[str]:
        """Names of all topics that have, or had, messages, including the broker's system topics."""
        return self._files.topics()

    def queues(self, topic: str) -> list[QueueInfo]:
        """The queues of a topic, each with its readable offsets [min, max)."""
        self._files.refresh()
        found = ((i, self._files.queue(topic, i)) for i in self._files.queues(topic))
        return [QueueInfo(topic, i, queue.min_offset, queue.max_offset) for i, queue in found]

    def entries(
        self, topic: str, queue_id: int, start: int = 0, stop: int | None = None
    ) -> Entries:
        """Entries of a consume queue: a structured array of physical_offset, size and tags_code.

        `physical_offset` is the message's position in the log and `size` its length there, both
        in bytes. The array is big-endian and read-only; it is a view of the mapped file when the
        range lies in one file, otherwise a copy.
        """
        self._files.refresh()
        queue = self._files.queue(topic, queue_id)
        return queue.entries(start, queue.max_offset if stop is None else stop)

    def numpy(
        self,
        topic: str,
        columns: Iterable[str] = tuple(FIXED_WIDTH),
        *,
        queues: Sequence[int] | None = None,
        start: int = 0,
        stop: int | None = None,
    ) -> np.ndarray[Any, np.dtype[np.void]]:
        """Messages as a structured array with a field for each of `columns` (names in COLUMNS).

        The default is all columns of fixed width: numbers, and times as datetime64 in
        microseconds. The others are objects: bodies are bytes, texts are str or None, properties
        are dicts. The array holds the offsets [start, stop) of each queue id in `queues` (default:
        all), one queue after the other. Raises RecordError for an unknown column.
        """
        names = _checked(columns)
        dtype = np.dtype([(name, FIXED_WIDTH.get(name, np.dtype(object))) for name in names])
        parts = [np.empty(0, dtype)]
        for queue in self._queue_ids(topic, queues):
            gather = RecordColumns([_gathered(name) for name in names if name != "topic"])
            for _ in self._batches(topic, queue, start, stop, gather):
                part = np.empty(gather.rows, dtype)
                for name, column in gather.take().items():
                    part["properties" if name == "propertiesJson" else name] = to_numpy(column)
                if "topic" in names:
                    part["topic"] = topic
                parts.append(part)
        return np.concatenate(parts)

    def arrow(
        self,
        topic: str,
        columns: Iterable[str] = COLUMNS,
        *,
        queues: Sequence[int] | None = None,
        start: int = 0,
        stop: int | None = None,
    ) -> pa.Table:
        """Messages as an Arrow table, by default with all COLUMNS; needs the extra `arrow`.

        Arguments and errors are those of numpy(). Use arrow_batches() for more messages than fit
        into memory.
        """
        from congreve.records.columns.arrow import schema, to_table

        names = _checked(columns)
        batches = self.arrow_batches(topic, names, queues=queues, start=start, stop=stop)
        return to_table(batches, schema(names))

    def arrow_batches(
        self,
        topic: str,
        columns: Iterable[str] = COLUMNS,
        *,
        queues: Sequence[int] | None = None,
        start: int = 0,
        stop: int | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """arrow() in batches of one queue: at most 32,768 messages or 16 MiB of records each."""
        from congreve.records.columns.arrow import repeated, schema, to_batch

        of = schema(_checked(columns))
        for queue in self._queue_ids(topic, queues):
            gather = RecordColumns([name for name in of.names if name != "topic"])
            for _ in self._batches(topic, queue, start, stop, gather):
                rows = gather.rows
                batch: dict[str, Column | pa.Array] = dict(gather.take())
                if "topic" in of.names:
                    batch["topic"] = repeated(topic, of.field("topic").type, rows)
                yield to_batch(batch, of, rows)

    def info(self) -> StoreInfo:
        """Size and times of the log, all queues, and segments that are missing or truncated."""
        return self._examiner().info()

    def verify(self) -> VerifyReport:
        """Check the CRC of every message, and compare every queue entry with its message."""
        return self._examiner().verify()

    def _examiner(self) -> StoreExaminer:
        return StoreExaminer(str(self.root), str(self._commit_log or ""))

    def _queue_ids(self, topic: str, wanted: Sequence[int] | None) -> Sequence[int]:
        self._files.refresh()
        return self._files.queues(topic) if wanted is None else wanted

    def _batches(
        self, topic: str, queue_id: int, start: int, stop: int | None, gather: RecordColumns
    ) -> Iterator[None]:
        queue = self._files.queue(topic, queue_id)
        end = queue.max_offset if stop is None else min(stop, queue.max_offset)
        windows = entry_windows(queue.entries, max(start, queue.min_offset), end)
        return gather_batches(self._files, windows, gather)


def _checked(columns: Iterable[str]) -> list[str]:
    names = list(dict.fromkeys(columns))
    unknown = [name for name in names if name not in COLUMNS]
    if unknown:
        raise RecordError(f"there is no column {unknown[0]!r}: use {', '.join(COLUMNS)}")
    return names


def _gathered(name: str) -> str:
    return "propertiesJson" if name == "properties" else name
