"""All consume queues of a store, by topic and queue id (RocketMQ: consumeQueueTable)."""

import errno
import logging
import os
import re
import threading
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from itertools import count
from pathlib import Path

from congreve.engine.errors import StoreError
from congreve.engine.queue.consume_queue import ConsumeQueue, forget_entries
from congreve.engine.queue.queue_entries import moved_topics
from congreve.engine.queue.queue_files import MappingCache, WritableMappings
from congreve.io_backends.files.file_system import DISK, FileSystem
from congreve.records.message.topics import LIGHT_PREFIX

#: With this many dirty queues, one sync of the file system is quicker than a sync of each file.
GROUP_SYNC_AT = 64

_TOPICS_AT_ONCE = 512

_FILE_NAME = re.compile(r"[0-9]{20}")

logger = logging.getLogger(__name__)


class QueueTable:
    """The consume queues of a store; the first entry of a queue creates its files.

    RocketMQ: DefaultMessageStore.consumeQueueTable.
    """

    def __init__(
        self,
        folder: str | Path,
        file_size: int = 6_000_000,
        *,
        mapping_limit: int = 1024,
        writable_limit: int = 0,
        removed_folder: str | Path | None = None,
        files: FileSystem = DISK,
    ) -> None:
        """`folder` is the store's consumequeue; all queues share `mapping_limit` read mappings.

        At most `writable_limit` of them are mapped for writing (0: WritableMappings chooses).
        Removed topics wait in `removed_folder` (default: beside `folder`) for unlink_steps().
        """
        self.folder = Path(folder)
        self.removed_folder = Path(removed_folder or f"{folder}.removed")
        self.file_size = file_size
        self._files = files
        self._cache = MappingCache(mapping_limit, files)
        self.writable = WritableMappings(writable_limit)
        self._topics: dict[str, dict[int, ConsumeQueue]] = {}
        self._adding = threading.Lock()
        self._removed: deque[tuple[Path, dict[int, ConsumeQueue]]] = deque()
        self._numbers = count()

    def get(self, topic: str, queue_id: int) -> ConsumeQueue:
        """The queue; a new one is created in memory. For any thread."""
        queue = self.find(topic, queue_id)
        if queue is not None:
            return queue
        with self._adding:
            queue = self.find(topic, queue_id)
            if queue is None:
                queue = self._made(f"{self.folder}/{topic}/{queue_id}", topic, queue_id)
                self._topics.setdefault(topic, {})[queue_id] = queue
            return queue

    def find(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue, or None if it does not exist."""
        queues = self._topics.get(topic)
        return None if queues is None else queues.get(queue_id)

    def topics(self) -> list[str]:
        """Names of the topics that have queues."""
        return list(self._topics)

    def of_topic(self, topic: str) -> Collection[ConsumeQueue]:
        """A topic's queues in no order."""
        return self._topics.get(topic, {}).values()

    def queues_of(self, topic: str) -> list[ConsumeQueue]:
        """A topic's queues in order of their ids."""
        queues = self._topics.get(topic, {})
        return [queues[queue_id] for queue_id in sorted(queues)]

    def moved_steps(
        self, topics: Sequence[str], ends: dict[str, bytes]
    ) -> Generator[None, None, list[str]]:
        """Return, in steps, those of these topics whose queues have changed since the last call
        with `ends`. A queue changes when it gets or loses entries, or is created or removed. `ends`
        is empty at the first call.
        """
        moved: list[str] = []
        for start in range(0, len(topics), _TOPICS_AT_ONCE):
            names = topics[start : start + _TOPICS_AT_ONCE]
            moved += moved_topics([(name, self._topics.get(name, {})) for name in names], ends)
            yield
        return moved

    def __iter__(self) -> Iterator[ConsumeQueue]:
        """Iterate over all queues, while other threads may add and remove some."""
        for queues in list(self._topics.values()):
            yield from list(queues.values())

    def __contains__(self, topic: object) -> bool:
        """Whether a topic has queues."""
        return topic in self._topics

    def __len__(self) -> int:
        return sum(map(len, self._topics.values()))

    def load(self, ends: Callable[[str, int], int] = lambda topic, queue_id: -1) -> None:
        """Find the queues on disk and the end of each. Raises StoreError or BackendError.

        `ends(topic, queue_id)` returns a known end, else -1. Light message queues stay unchanged:
        this broker does not read, repair or remove them.
        """
        folders = self._folders(self.folder)
        kept = [folder for folder in folders if not folder.name.startswith(LIGHT_PREFIX)]
        if len(kept) < len(folders):
            logger.warning(
                "ignoring %d light message queues (%s): this broker does not serve them",
                *(len(folders) - len(kept), LIGHT_PREFIX),
            )
        for topic_folder in kept:
            for queue_folder in self._folders(topic_folder.path):
                if _is_queue_id(queue_folder.name):
                    topic, queue_id = topic_folder.name, int(queue_folder.name)
                    self.get(topic, queue_id).load(ends(topic, queue_id))
                else:
                    logger.warning("skipping %s: its name is not a queue id", queue_folder.path)
        left = [Path(entry.path) for entry in self._folders(self.removed_folder)]
        self._removed = deque((folder, {}) for folder in left)
        self._numbers = count(1 + max((int(f.name) for f in left if f.name.isdecimal()), default=0))

    def has_files(self) -> bool:
        """Whether the folder of some queue has a file; it looks at the disk. Raises StoreError."""
        return any(
            _FILE_NAME.fullmatch(entry.name)
            for topic in self._folders(self.folder)
            for queue in self._folders(topic.path)
            for entry in self._files.entries(queue.path)
        )

    def remove_topic(self, topic: str) -> int:
        """Remove all queues of a topic with one rename; returns their number.

        unlink_steps() unlinks their files. Raises StoreError, without a change.
        """
        queues = self._topics.get(topic, {})
        folder, removed = self.folder / topic, self.removed_folder / str(next(self._numbers))
        if not queues:  # the folder may have queues that load() skipped
            self._remove_folder(folder)
            return 0
        try:
            if self._files.exists(str(folder)):
                self._files.make_folder(str(self.removed_folder))
                self._files.rename(str(folder), str(removed))
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise StoreError(f"cannot move {folder}: {error.strerror}") from error
            self._destroy(queues, folder)
        del self._topics[topic]
        self._cache.drop_below(str(folder))
        forget_entries(queues.values())
        number = len(queues)
        self._removed.append((removed, queues))
        return number

    def unlink_steps(self) -> Iterator[None]:
        """Unlink the files of removed topics, one queue a step. Raises StoreError, BackendError."""
        while self._removed:
            folder, queues = self._removed[0]
            while queues:
                queues.popitem()[1].unmap()
                yield
            for entry in self._folders(folder):
                if _is_queue_id(entry.name):
                    self._made(entry.path, str(folder), int(entry.name)).destroy()
                    yield
            self._remove_folder(folder)
            self._removed.popleft()

    def _destroy(self, queues: dict[int, ConsumeQueue], folder: Path) -> None:
        """Remove queues in place: the folder of removed topics is on another file system."""
        for queue in queues.values():
            queue.destroy()
        self._remove_folder(folder)

    def _made(self, folder: str, topic: str, queue_id: int) -> ConsumeQueue:
        return ConsumeQueue(folder, topic, queue_id, self.file_size, self._cache, self.writable)

    def flush(self) -> None:
        """Make all present entries durable. Raises BackendError.

        Thousands of syncs would wait for thousands of journal commits, so many dirty queues are
        synced together, with all other files on their file system.
        """
        dirty = [(queue, queue.max) for queue in self if queue.dirty_pages]
        if len(dirty) < GROUP_SYNC_AT:
            for queue, _ in dirty:
                queue.flush()
            return
        self._files.sync_all(str(self.folder))
        for queue, offset in dirty:
            queue.note_flushed(offset)

    def close(self) -> None:
        """Flush and unmap every queue."""
        self.flush()
        for queue in self:
            queue.close()

    def _remove_folder(self, folder: Path) -> None:
        try:
            self._files.remove_folder(str(folder))
        except FileNotFoundError:
            pass
        except OSError as error:
            if error.errno != errno.ENOTEMPTY:
                raise StoreError(f"cannot remove {folder}: {error.strerror}") from error
            logger.warning("cannot remove %s: it holds foreign files", folder)

    def _folders(self, path: str | Path) -> list["os.DirEntry[str]"]:
        try:
            return [entry for entry in self._files.entries(str(path)) if entry.is_dir()]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StoreError(f"cannot list {path}: {error.strerror}") from error


def _is_queue_id(name: str) -> bool:
    return name.isdecimal() and name == str(int(name)) and int(name) < 1 << 31
