"""A thread that repairs consume queues that were damaged while the store ran."""

from concurrent.futures import Future, ThreadPoolExecutor

from congreve.engine.queue.consume_queue import ConsumeQueue
from congreve.engine.recovery.repair import QueueRepair


class RepairThread:
    """Repairs entries for an event loop, which meanwhile serves other requests.

    One thread calls start() and stop().
    """

    def __init__(self, repair: QueueRepair) -> None:
        self._repair = repair
        self._executor: ThreadPoolExecutor | None = None

    def start(self, queue: ConsumeQueue, offset: int) -> Future[int]:
        """Repair from `offset` to the next valid entry; the result is the number of wrong entries.

        The future may raise BackendError.
        """
        if self._executor is None:
            self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="queuerepair")
        return self._executor.submit(self._repair.repair, queue, offset, offset + 1)

    def stop(self) -> None:
        """Wait for the running repair and cancel the others."""
        if self._executor is not None:
            self._executor.shutdown(cancel_futures=True)
            self._executor = None
