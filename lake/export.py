"""Copies durable messages into a table: one commit for each chunk."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, Protocol, Self

import pyarrow as pa

from congreve.engine.state.exported import ExportedQueue, ExportedTopic
from congreve.lake.continuity import Continuity, Noted
from congreve.lake.durable import DurableQueue, DurableTopic
from congreve.lake.errors import CommitConflictError, ProgressError, TableError
from congreve.lake.progress import EndOffsets, LastMessage, OfBrokers, Progress, advanced
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

    def last_messages(self) -> OfBrokers:
        """What names the last messages of the table."""

    def last_rows(self, broker: str, ends: Mapping[int, int]) -> dict[int, LastMessage]:
        """The same, read from the rows before these end offsets."""

    @property
    def uuid(self) -> str:
        """What names this table, and no later one of its name."""

    def new_files(self) -> Any:
        """Files for one commit."""

    def append(self, files: Any, progress: Progress) -> None:
        """Commit files of new_files() with the progress that they make."""


class Exporter:
    """Appends the messages of a topic that a table lacks.

    Progress is in the table alone, so a killed exporter continues where its last commit ended.
    """

    def __init__(
        self,
        topic: DurableTopic,
        table: Table,
        commit_bytes: int = COMMIT_BYTES,
        noted: Noted = dict,
    ) -> None:
        """A commit has `commit_bytes` bytes of Arrow columns, and at most one batch more."""
        self._continuity = Continuity(topic, noted)
        self._topic = topic
        self.table = table
        self._commit_bytes = commit_bytes
        self.progress: Callable[[int], None] = lambda rows: None
        """Called with the number of messages that were written, before their commit."""

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

    def exported(self, *, is_copy: bool = False) -> ExportedTopic:
        """What the table has of the store's queues, none of a table that does not exist.

        The queues of a copy may not have all messages yet. Raises what commits() raises.
        """
        if not self.table.load():
            return ExportedTopic("", {})
        return ExportedTopic(self.table.uuid, self._check(self._topic.queues(), is_copy=is_copy))

    def missing(self) -> int:
        """The messages that are durable now and not in the table. Raises what commits() raises."""
        ends = self.table.progress().get(self._topic.broker, {}) if self.table.load() else {}
        queues = self._topic.queues()
        return sum(max(0, queue.end - self._start(queue, ends)) for queue in queues)

    def not_durable(self) -> int:
        """The messages behind the store's last checkpoint. Raises what commits() raises."""
        return self._topic.not_durable()

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

    def _check(
        self, queues: list[DurableQueue], *, is_copy: bool = False
    ) -> dict[int, ExportedQueue]:
        """The queues that the table continues. Raises ProgressError if it has other messages."""
        broker = self._topic.broker
        return self._continuity.check(
            *(self.table.name, self.table.progress().get(broker, {})),
            self.table.last_messages().get(broker),
            lambda ends: self.table.last_rows(broker, ends),
            queues,
            is_copy=is_copy,
        )

    def _commit(self, queues: list[DurableQueue]) -> int:
        """Write and commit the next rows; returns their number, 0 if there are none.

        Raises CommitConflictError, and TableError when the files cannot be written.
        """
        self._check(queues)
        broker, ends = self._topic.broker, self.table.progress()
        try:
            with self.table.new_files() as files:
                moved = self._write(files, queues, ends.get(broker, {}))
                if not moved:
                    return 0
                ends = advanced(ends, broker, moved)
                own = self._continuity.last_messages(ends[broker])
                last = {**self.table.last_messages(), broker: own}
                self.table.append(files, Progress(ends, last))
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
                self._continuity.note(batch)
                self.progress(batch.num_rows)
                moved[queue.queue_id] = batch["queueOffset"][-1].as_py() + 1
                if files.nbytes >= self._commit_bytes:
                    return moved
        return moved

    def _start(self, queue: DurableQueue, ends: dict[int, int]) -> int:
        low = queue.file.min_offset
        start = ends.get(queue.queue_id, low)
        if start < low:
            raise ProgressError(
                f"queue {queue.queue_id} of {self._topic.topic}: messages {start} to {low - 1} "
                "expired before they were exported"
            )
        return start
