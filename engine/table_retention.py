"""What retention may remove when tables have the messages of some topics: `lakeRetention`."""

from collections.abc import Collection
from typing import Self

from congreve.engine.exported_queues import ExportedQueues
from congreve.engine.file_sizes import FILLER_SIZE
from congreve.engine.queue.consume_queue import ConsumeQueue
from congreve.engine.queue.queue_table import QueueTable
from congreve.engine.state.exported import ExportedFile
from congreve.io_backends.files.file_system import FileSystem


class TableRetention:
    """Physical offsets up to which tables have the log's messages, as of the last refresh()."""

    def __init__(self, topics: Collection[str], queues: QueueTable, file: ExportedFile) -> None:
        """`topics` are those that tables get."""
        self._topics = topics
        self._queues = queues
        self._tables = ExportedQueues(queues, file)
        self.exported_to = 0
        """Where the first message of these topics begins that no table has. The log is kept from
        here on."""
        self.only_exported_to = 0
        """Where the first message of any other topic begins, or `exported_to` if that is less."""

    @classmethod
    def of(
        cls, topics: Collection[str] | None, queues: QueueTable, own_dir: str, files: FileSystem
    ) -> Self | None:
        """That of a store's folder, None without topics."""
        return None if topics is None else cls(topics, queues, ExportedFile(own_dir, files=files))

    def refresh(self, log_end: int) -> None:
        """Look at the queues and at what was exported. Raises StoreError."""
        self._tables.refresh()
        exported = others = log_end
        for queue in self._queues:
            if queue.topic in self._topics:
                exported = min(exported, _place(queue, self._tables.end(queue), log_end))
            else:
                others = min(others, _place(queue, queue.min, log_end))
        self.exported_to = exported
        self.only_exported_to = min(exported, others)

    def begin_at(self, place: int) -> None:
        """Let the queues of these topics begin at a place of the log, before older records are
        deleted.

        A pull below a queue's beginning reads the table. If the queue still began at messages that
        are gone, the pull would skip them.
        """
        for queue in self._queues:
            if queue.topic in self._topics:
                queue.correct_min_offset(place)


def _place(queue: ConsumeQueue, offset: int, log_end: int) -> int:
    """Where the first message of a queue at or after `offset` begins, `log_end` without any."""
    offset = max(offset, queue.min)
    while offset < queue.max:
        place, size, _ = queue[offset]
        if size != FILLER_SIZE:
            return place
        offset += 1
    return log_end
