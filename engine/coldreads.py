"""Parts of the log that are not in memory are read by a thread of their own, ahead of readers."""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from congreve.engine.commitlog import CommitLog
from congreve.io_backends.backend import Segment
from congreve.io_backends.pages import fetch, retire

#: Read at once: several readers share a disk with the writer, whose syncs wait behind a long read.
READ_AHEAD = 1 << 20
#: What was read and then passed by: the kernel may take it back before anything else.
KEPT = 16


class ColdReads:
    """Fetches from disk what readers need next (a thread, so that nothing else waits for a disk).

    fetch() and stop() belong to the thread that reads.
    """

    def __init__(self, log: CommitLog) -> None:
        self._log = log
        self._executor: ThreadPoolExecutor | None = None
        self._passed: deque[tuple[Segment, int, int]] = deque()

    def fetch(self, physical_offset: int, done: Callable[[], None]) -> bool:
        """Have READ_AHEAD bytes from there in memory; `done` is called then, by the thread.

        False, and nothing is done, where the log has no such place any more.
        """
        segment = self._log.segment_at(physical_offset)
        if segment is None:
            return False
        if self._executor is None:
            self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="coldread")
        start = physical_offset - segment.base_offset
        running: Future[None] = self._executor.submit(self._read, segment, start)
        running.add_done_callback(lambda _: done())
        return True

    def stop(self) -> None:
        """What was asked for and has not begun is not read; `done` is called all the same."""
        if self._executor is not None:
            self._executor.shutdown(cancel_futures=True)
            self._executor = None
        self._passed.clear()

    def _read(self, segment: Segment, start: int) -> None:
        fetch(segment, start, start + READ_AHEAD)
        self._passed.append((segment, start, start + READ_AHEAD))
        if len(self._passed) > KEPT:
            retire(*self._passed.popleft())
