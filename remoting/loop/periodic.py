"""Work that a running event loop repeats."""

import asyncio
import logging
from collections.abc import Callable, Coroutine

from congreve.remoting.loop.background import BackgroundJobs

logger = logging.getLogger(__name__)


class Periodic:
    """Calls `work` every `seconds`, the first time after `seconds`, until it is stopped.

    What `work` did not expect goes to the log (of a coroutine) or to the loop's exception handler,
    and the next call still comes. While a coroutine of `work` runs, it is not started again; stop()
    cancels it.
    """

    def __init__(
        self, seconds: float, work: Callable[[], Coroutine[object, object, None] | None]
    ) -> None:
        self._seconds = seconds
        self._work = work
        self._running = BackgroundJobs(getattr(work, "__qualname__", repr(work)), logger)
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start the calls on the running loop."""
        self._timer = asyncio.get_running_loop().call_later(self._seconds, self._turn)

    def stop(self) -> None:
        """End the calls, and cancel a coroutine that runs."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._running.cancel()

    def _turn(self) -> None:
        self.start()
        if self._running:
            return
        running = self._work()
        if running is not None:
            self._running.begin(running)
