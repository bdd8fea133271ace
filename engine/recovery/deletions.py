"""What another broker has deleted in a store since this one's last checkpoint."""

from functools import cached_property

from congreve.engine.config import StoreConfig
from congreve.engine.state.checkpoint import QueueCheckpointFile
from congreve.io_backends.files.file_system import FileSystem
from congreve.records.message.topics import SYSTEM_TOPIC_PREFIX, SYSTEM_TOPICS


class DeletedTopics:
    """The topics that RocketMQ has deleted: `in` asks for one whose queues are missing.

    It leaves neither a queue in the topic's folder nor the topic's row in topics.json, which it
    writes at once. After a clean stop any later topics.json is of another broker: it may have made
    the topic again.
    (RocketMQ: DefaultMessageStore.cleanUnusedTopic.)
    """

    def __init__(self, config: StoreConfig, files: FileSystem, *, clean: bool) -> None:
        self._queues = config.consume_queue_dir
        self._table = f"{config.config_dir}/topics.json"
        self._files = files
        self._is_newer = clean and self._written_ns() > self._checkpoint_ns(config)

    def _checkpoint_ns(self, config: StoreConfig) -> int:
        return QueueCheckpointFile(config.own_dir, files=self._files, read_only=True).written_ns()

    def _written_ns(self) -> int:
        try:
            return self._files.status(self._table).st_mtime_ns
        except OSError:
            return 0

    def __contains__(self, topic: object) -> bool:
        name = str(topic)
        if name in SYSTEM_TOPICS or name.startswith(SYSTEM_TOPIC_PREFIX):
            return False
        if self._has_queues(name):
            return False
        return self._is_newer or (self._rows is not None and f'"{name}"'.encode() not in self._rows)

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
