"""Which messages of a store's present queues tables have."""

from congreve.engine.queue.consume_queue import ConsumeQueue
from congreve.engine.queue.queue_table import QueueTable
from congreve.engine.state.exported import ExportedFile, ExportedTopics


class ExportedQueues:
    """What an exporter noted, as of the last refresh(), as far as it is about the present queues.

    A note counts if the queue has, or had, the last exported message at the noted place: then the
    topic was not deleted since, by whomever. Any thread may use it.
    """

    def __init__(self, queues: QueueTable, file: ExportedFile) -> None:
        self._queues = queues
        self._file = file
        self._topics: ExportedTopics = {}

    def refresh(self) -> None:
        """Read the notes. Raises StoreError."""
        self._topics = self._file.load()

    def end(self, queue: ConsumeQueue) -> int:
        """The offset after the last message of a queue that its table has, 0 without any."""
        topic = self._topics.get(queue.topic)
        noted = None if topic is None else topic.queues.get(queue.queue_id)
        if noted is None or not 0 < noted.end <= queue.max:
            return 0
        place = queue.place(noted.end - 1)
        # The queue's file with that entry may have expired: whole files of messages came since.
        is_same = place == noted.last_place or (place < 0 and noted.end <= queue.min)
        return noted.end if is_same else 0

    def table(self, topic: str) -> str | None:
        """The UUID of the table that has a topic, empty if none has; None if that is unknown."""
        known = self._topics.get(topic)
        return None if known is None else known.table

    def has(self, topic: str, queue_id: int) -> bool:
        """Whether the topic's table has messages of the present queue."""
        queue = self._queues.find(topic, queue_id)
        return queue is not None and self.end(queue) > 0
