"""All consume queues of a store, by topic and queue id (RocketMQ: consumeQueueTable)."""

import errno
import logging
import os
from collections.abc import Iterator
from pathlib import Path

from congreve.engine.consumequeue import ConsumeQueue
from congreve.engine.errors import StoreError
from congreve.engine.queuefiles import MappingCache
from congreve.io_backends.backend import sync_file_system

#: Dirty queues from which on one sync of the file system is quicker than a sync of each file.
GROUP_SYNC_AT = 64

LOG = logging.getLogger(__name__)


class QueueTable:
    """Queues are made in memory when asked for; their files appear with the first entry."""

    def __init__(
        self, folder: str | Path, file_size: int = 6_000_000, *, mapping_limit: int = 1024
    ) -> None:
        """`folder` is the store's consumequeue; all queues share `mapping_limit` read mappings."""
        self.folder = Path(folder)
        self.file_size = file_size
        self._cache = MappingCache(mapping_limit)
        self._topics: dict[str, dict[int, ConsumeQueue]] = {}

    def get(self, topic: str, queue_id: int) -> ConsumeQueue:
        """The queue, made in memory where it is new."""
        queue = self.find(topic, queue_id)
        if queue is None:
            folder = str(self.folder / topic / str(queue_id))
            queue = ConsumeQueue(folder, topic, queue_id, self.file_size, self._cache)
            self._topics.setdefault(topic, {})[queue_id] = queue
        return queue

    def find(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue, or None where it was never asked for."""
        queues = self._topics.get(topic)
        return None if queues is None else queues.get(queue_id)

    def topics(self) -> list[str]:
        """Names of the topics that have queues."""
        return list(self._topics)

    def queues_of(self, topic: str) -> list[ConsumeQueue]:
        """A topic's queues in order of their ids."""
        queues = self._topics.get(topic, {})
        return [queues[queue_id] for queue_id in sorted(queues)]

    def __iter__(self) -> Iterator[ConsumeQueue]:
        """Every queue; safe against queues that come and go meanwhile."""
        for queues in list(self._topics.values()):
            yield from list(queues.values())

    def __len__(self) -> int:
        return sum(map(len, self._topics.values()))

    def load(self) -> None:
        """Find the queues on disk and the end of each; StoreError or BackendError."""
        for topic_folder in _folders(self.folder):
            for queue_folder in _folders(topic_folder.path):
                if queue_folder.name.isdecimal():
                    self.get(topic_folder.name, int(queue_folder.name)).load()
                else:
                    LOG.warning("skipping %s: its name is not a queue id", queue_folder.path)

    def delete_topic(self, topic: str) -> int:
        """Remove a topic's queues from memory and disk; how many there were."""
        queues = self._topics.pop(topic, {})
        for queue in queues.values():
            queue.destroy()
        folder = self.folder / topic
        try:
            folder.rmdir()
        except FileNotFoundError:
            pass
        except OSError as error:
            if error.errno != errno.ENOTEMPTY:
                raise StoreError(f"cannot remove {folder}: {error.strerror}") from error
            LOG.warning("left %s in place: it holds files that are not ours", folder)
        return len(queues)

    def flush(self) -> None:
        """Have the entries that are there now on disk; BackendError.

        Thousands of syncs wait for thousands of journal commits: many dirty queues are synced as
        a group, with all else on their file system.
        """
        dirty = [(queue, queue.max) for queue in self if queue.dirty_pages]
        if len(dirty) < GROUP_SYNC_AT:
            for queue, _ in dirty:
                queue.flush()
            return
        sync_file_system(str(self.folder))
        for queue, offset in dirty:
            queue.note_flushed(offset)

    def close(self) -> None:
        """Flush and unmap every queue."""
        self.flush()
        for queue in self:
            queue.close()


def _folders(path: str | Path) -> list["os.DirEntry[str]"]:
    try:
        with os.scandir(path) as found:
            return [entry for entry in found if entry.is_dir()]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StoreError(f"cannot list {path}: {error.strerror}") from error
