"""Threads that repair consume queues, and records, that were damaged while the store ran."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from congreve.engine.queue.consume_queue import ConsumeQueue
from congreve.engine.recovery.repair import QueueRepair

THREADS = 4


class RepairThread:
    """Repairs entries for an event loop, which meanwhile serves other requests.

    One thread calls start() and stop().
    """

    def __init__(self, repair: QueueRepair) -> None:
        self.await_record: Callable[[int, int], None] | None = None
        """Called first, with the place and the size of the entry's record: it may be damaged, and
        this may wait until it is not."""
        self._repair = repair
        self._executor: ThreadPoolExecutor | None = None

    def start(self, queue: ConsumeQueue, offset: int) -> Future[int]:
        """Repair from `offset` to the next valid entry; the result is the number of wrong entries.

        The future may raise BackendError.
        """
        if self._executor is None:
            self._executor = ThreadPoolExecutor(THREADS, thread_name_prefix="queuerepair")
        return self._executor.submit(self._run, queue, offset)

    def stop(self) -> None:
        """Wait for the running repairs and cancel the others."""
        if self._executor is not None:
            self._executor.shutdown(cancel_futures=True)
            self._executor = None

    def _run(self, queue: ConsumeQueue, offset: int) -> int:
        if self.await_record is not None and queue.min <= offset < queue.max:
            place, size, _ = queue[offset]
            self.await_record(place, size)
        return self._repair.repair(queue, offset, offset + 1)
