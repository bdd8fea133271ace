"""What another broker has deleted in a store since this one's last checkpoint."""

from functools import cached_property

from congreve.engine.config import StoreConfig
from congreve.engine.state.checkpoint import QueueCheckpointFile
from congreve.io_backends.files.file_system import FileSystem
from congreve.records.message.topics import SYSTEM_TOPIC_PREFIX, SYSTEM_TOPICS


class DeletedTopics:
    """The topics and queues that RocketMQ has deleted, of those whose files are missing.

    It leaves neither a queue in the topic's folder nor the topic's row in topics.json, which it
    writes at once. After a clean stop any later topics.json is of another broker, which may have
    made the topic again, and all its queues have files.
    (RocketMQ: DefaultMessageStore.cleanUnusedTopic.)
    """

    is_newer: bool
    """Whether another broker has used the store since the checkpoint, and stopped cleanly."""

    def __init__(self, config: StoreConfig, files: FileSystem, *, clean: bool) -> None:
        self._queues = config.consume_queue_dir
        self._table = f"{config.config_dir}/topics.json"
        self._files = files
        self.is_newer = clean and self._written_ns() > self._checkpoint_ns(config)

    def _checkpoint_ns(self, config: StoreConfig) -> int:
        return QueueCheckpointFile(config.own_dir, files=self._files, read_only=True).written_ns()

    def _written_ns(self) -> int:
        try:
            return self._files.status(self._table).st_mtime_ns
        except OSError:
            return 0

    def __contains__(self, topic: object) -> bool:
        """Whether a topic without queues was deleted."""
        name = str(topic)
        if self._has_queues(name):
            return False
        return self.has_queue(name) or self.lacks_row(name)

    def lacks_row(self, topic: str) -> bool:
        """Whether there is a topics.json that lacks the topic."""
        rows = self._rows
        return not _never_deleted(topic) and rows is not None and f'"{topic}"'.encode() not in rows

    def has_queue(self, topic: str) -> bool:
        """Whether a queue without files was deleted, with or without its topic."""
        return self.is_newer and not _never_deleted(topic)

    def _has_queues(self, name: str) -> bool:
        try:
            return bool(self._files.entries(f"{self._queues}/{name}"))
        except OSError:
            return False

    @cached_property
    def _rows(self) -> bytes | None:
        """The text of topics.json, None without the file: read once for all topics."""
        try:
            return self._files.read_all(self._table)
        except OSError:
            return None


def _never_deleted(topic: str) -> bool:
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_TOPIC_PREFIX)
