"""A thread that makes the first files of consume queues."""

import logging
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from threading import RLock

from congreve.engine.queue.consume_queue import ConsumeQueue
from congreve.engine.queue.queue_table import QueueTable
from congreve.io_backends.errors import BackendError

logger = logging.getLogger(__name__)


class QueueFileMaker:
    """Makes folder and first file of a queue for an event loop, which must not wait for the disk.

    The thread holds `maintenance` meanwhile, so that no other thread removes the topic. Any thread
    may call is_missing(), the event loop the others.
    """

    def __init__(self, queues: QueueTable, maintenance: RLock) -> None:
        self._queues = queues
        self._maintenance = maintenance
        self._executor: ThreadPoolExecutor | None = None
        self._running: dict[ConsumeQueue, Future[None]] = {}
        self._waiting = Counter[ConsumeQueue]()
        self._failed: set[ConsumeQueue] = set()

    def is_missing(self, topic: str, queue_id: int) -> bool:
        """Whether a message must wait for the queue's first file, or behind others that do.

        False after make() has failed: the append tries again, and its error has the reason.
        """
        queue = self._queues.get(topic, queue_id)
        if queue in self._waiting or not (queue.has_file or queue in self._failed):
            return True
        self._failed.discard(queue)
        return False

    def make(self, topic: str, queue_id: int) -> Future[None]:
        """Make the first file of a queue; the future has neither a result nor an error."""
        queue = self._queues.get(topic, queue_id)
        running = self._running.get(queue)
        if running is None:
            if self._executor is None:
                self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="queuefiles")
            running = self._running[queue] = self._executor.submit(self._make, queue)
            running.add_done_callback(lambda _: self._running.pop(queue, None))
        return running

    @contextmanager
    def waiting(self, topic: str, queue_id: int) -> Iterator[Future[None]]:
        """make() for a message that is appended at the end of the context, before later ones."""
        queue = self._queues.get(topic, queue_id)
        self._waiting[queue] += 1
        try:
            yield self.make(topic, queue_id)
        finally:
            self._waiting[queue] -= 1
            if not self._waiting[queue]:
                del self._waiting[queue]

    def _make(self, queue: ConsumeQueue) -> None:
        with self._maintenance:
            if self._queues.find(queue.topic, queue.queue_id) is not queue:
                return  # its topic was removed meanwhile
            try:
                queue.make_first_file()
            except Exception as error:
                self._failed.add(queue)
                if not isinstance(error, (BackendError, MemoryError)):  # the append says these
                    logger.exception("queue %d of %s has no file", queue.queue_id, queue.topic)

    def stop(self) -> None:
        """Wait for the file that is being made, and make no other."""
        if self._executor is not None:
            self._executor.shutdown(cancel_futures=True)
            self._executor = None
