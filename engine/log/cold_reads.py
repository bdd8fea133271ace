"""A thread that reads parts of the log from disk before readers need them."""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from congreve.engine.log.commit_log import CommitLog
from congreve.io_backends.backend import Segment
from congreve.io_backends.pages import fetch, retire

#: Bytes of one read; the writer shares the disk, and its syncs wait behind a long read.
READ_AHEAD = 1 << 20
#: Reads whose pages stay; the kernel may reclaim the pages of older reads before others.
KEPT = 16


class ColdReads:
    """Reads parts of the log from disk on a thread, so that no other code waits for the disk.

    One thread calls fetch() and stop().
    """

    def __init__(self, log: CommitLog) -> None:
        self.count = 0
        """Reads since the start."""
        self._log = log
        self._executor: ThreadPoolExecutor | None = None
        self._passed: deque[tuple[Segment, int, int]] = deque()

    def fetch(self, physical_offset: int, done: Callable[[], None]) -> bool:
        """Read READ_AHEAD bytes from this offset into memory; the thread calls `done` afterwards.

        Returns False, without a read, if the log no longer holds this offset.
        """
        segment = self._log.segment_at(physical_offset)
        if segment is None:
            return False
        if self._executor is None:
            self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="coldread")
        self.count += 1
        start = physical_offset - segment.base_offset
        running: Future[None] = self._executor.submit(self._read, segment, start)
        running.add_done_callback(lambda _: done())
        return True

    def stop(self) -> None:
        """Stop the thread. It cancels requests that have not begun, and calls their `done` too."""
        if self._executor is not None:
            self._executor.shutdown(cancel_futures=True)
            self._executor = None
        self._passed.clear()

    def _read(self, segment: Segment, start: int) -> None:
        fetch(segment, start, start + READ_AHEAD)
        self._passed.append((segment, start, start + READ_AHEAD))
        if len(self._passed) > KEPT:
            retire(*self._passed.popleft())
