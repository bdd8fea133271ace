"""Copies durable messages into a table: one commit for each chunk."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Protocol, Self

import pyarrow as pa

from congreve.lake.durable import DurableQueue, DurableTopic
from congreve.lake.errors import CommitConflictError, ProgressError, TableError
from congreve.lake.progress import EndOffsets, advanced
from congreve.lake.table import TopicTable

COMMIT_BYTES = 512 << 20

logger = logging.getLogger(__name__)


class Files(Protocol):
    """The files of one commit, which are deleted if it does not come about."""

    rows: int
    """Messages in the files."""

    @property
    def nbytes(self) -> int:
        """Bytes of their columns before compression."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Append messages of one queue."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class Table(Protocol):
    """What an exporter writes to: TopicTable, or BodyTable with columns of bodies."""

    name: str

    @property
    def tables(self) -> tuple[TopicTable, ...]:
        """The tables that it is made of."""

    def load(self) -> bool:
        """Read the current state; false if there is no table."""

    def create(self) -> None:
        """Create the table if there is none, and load() it."""

    def progress(self) -> EndOffsets:
        """The end offsets of the table."""

    def new_files(self) -> Any:
        """Files for one commit."""

    def append(self, files: Any, ends: EndOffsets) -> None:
        """Commit files of new_files() with the progress that they make."""


class Exporter:
    """Appends the messages of a topic that a table lacks.

    Progress is in the table alone, so a killed exporter continues where its last commit ended.
    """

    def __init__(self, topic: DurableTopic, table: Table, commit_bytes: int = COMMIT_BYTES) -> None:
        """A commit has `commit_bytes` bytes of Arrow columns, and at most one batch more."""
        self._topic = topic
        self.table = table
        self._commit_bytes = commit_bytes

    @property
    def table_name(self) -> str:
        """NAMESPACE.NAME."""
        return self.table.name

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self._topic.topic

    def checkpoint_ns(self) -> int:
        """When the store's last checkpoint was written, in ns since 1970; 0 without one."""
        return self._topic.checkpoint_ns()

    def committed(self) -> dict[int, int]:
        """By queue id: the offset after the last message in the table. Raises TableError."""
        return self.table.progress().get(self._topic.broker, {}) if self.table.load() else {}

    def run(self) -> int:
        """Export all messages that are durable now; returns how many this exporter committed.

        Raises what commits() raises.
        """
        return sum(self.commits())

    def commits(self) -> Iterator[int]:
        """Export all messages that are durable now; yields the number of rows of each commit.

        The caller may stop after any of them. Raises ProgressError when the store and the table do
        not belong together, or messages expired before they were exported, and TableError when the
        catalog fails or files cannot be written.
        """
        if not self.table.load():
            self._topic.queues()  # a topic that is unknown, or not durable yet, gets no table
            self.table.create()
        # After the table, which another exporter may move on: the queues are never behind it.
        queues = self._topic.queues()
        while True:
            try:
                rows = self._commit(queues)
            except CommitConflictError as error:
                logger.info("%s; the export continues after the other commit", error)
                self.table.load()
                queues = self._topic.queues()
                continue
            if not rows:
                return
            yield rows

    def _commit(self, queues: list[DurableQueue]) -> int:
        """Write and commit the next rows; returns their number, 0 if there are none.

        Raises CommitConflictError, and TableError when the files cannot be written.
        """
        ends = self.table.progress()
        try:
            with self.table.new_files() as files:
                moved = self._write(files, queues, ends.get(self._topic.broker, {}))
                if not moved:
                    return 0
                self.table.append(files, advanced(ends, self._topic.broker, moved))
                return int(files.rows)
        except OSError as error:
            raise TableError(f"table {self.table.name}: cannot write its files: {error}") from error

    def _write(
        self, files: Files, queues: list[DurableQueue], ends: dict[int, int]
    ) -> dict[int, int]:
        """Write the next rows by queue and offset; returns the end offset of each written queue."""
        moved: dict[int, int] = {}
        for queue in queues:
            start = self._start(queue, ends)
            for batch in self._topic.read(queue, start) if start < queue.end else ():
                files.write(batch)
                moved[queue.queue_id] = batch["queueOffset"][-1].as_py() + 1
                if files.nbytes >= self._commit_bytes:
                    return moved
        return moved

    def _start(self, queue: DurableQueue, ends: dict[int, int]) -> int:
        low, high = queue.file.min_offset, queue.file.max_offset
        start = ends.get(queue.queue_id, low)
        if low <= start <= high:
            return start
        where = f"queue {queue.queue_id} of {self._topic.topic}"
        if start < low:
            raise ProgressError(
                f"{where}: messages {start} to {low - 1} expired before they were exported"
            )
        raise ProgressError(
            f"{where} ends at {high}, but the table {self.table.name} has its messages up to "
            f"{start}: the table belongs to another store, or to a deleted topic of this name"
        )
