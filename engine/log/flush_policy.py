"""When ASYNC_FLUSH requests a flush from the backend (RocketMQ: FlushRealTimeService)."""

import logging
import time
from collections.abc import Callable

from congreve.engine.config import StoreConfig
from congreve.engine.rounds import Rounds, StoreThread

_PAGE = 4096

logger = logging.getLogger(__name__)


class FlushPolicy:
    """Decides by the written and the durable offset when to flush (RocketMQ: FlushRealTimeService).

    Times are in ms.
    """

    def __init__(self, config: StoreConfig, now_ms: int) -> None:
        self._config = config
        self._last_thorough_ms = now_ms

    def due(self, written: int, durable: int, now_ms: int) -> bool:
        """Whether to flush now: enough full pages wait, or bytes have waited too long."""
        if written <= durable:
            return False
        if now_ms >= self._last_thorough_ms + self._config.flush_commit_log_thorough_interval:
            self._last_thorough_ms = now_ms
            return True
        waiting = written // _PAGE - durable // _PAGE
        return waiting >= self._config.flush_commit_log_least_pages


class FlushTimer(StoreThread):
    """The thread of ASYNC_FLUSH; with SYNC_FLUSH, each append requests a flush instead.

    It checks every flushIntervalCommitLog ms; with flushCommitLogTimed=false at each wake(), too.
    (RocketMQ: CommitLog.FlushRealTimeService.)
    """

    def __init__(
        self,
        config: StoreConfig,
        *,
        written: Callable[[], int],
        durable: Callable[[], int],
        request: Callable[[int], None],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__("flush-timer")
        self._config = config
        self._written = written
        self._durable = durable
        self._request = request
        self._monotonic = monotonic
        self.wants_wake = not config.sync_flush and not config.flush_commit_log_timed

    def start(self) -> None:
        """Start the thread. When it stops, the backend flushes the rest."""
        if not self._config.sync_flush:
            super().start()

    def wake(self) -> None:
        """Check now, after an append (RocketMQ: handleDiskFlush); returns at once."""
        self._woken.set()

    def _run(self) -> None:
        policy = FlushPolicy(self._config, int(self._monotonic() * 1000))
        round_of_work = Rounds("the flush of the log", lambda: self._flush(policy))
        while True:
            self._woken.wait(self._config.flush_interval_commit_log / 1000)
            self._woken.clear()
            if self._stopping.is_set():
                return
            round_of_work()

    def _flush(self, policy: "FlushPolicy") -> None:
        written = self._written()
        if policy.due(written, self._durable(), int(self._monotonic() * 1000)):
            self._request(written)
