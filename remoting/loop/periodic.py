"""Work that a running event loop repeats."""

import asyncio
from collections.abc import Callable, Coroutine


class Periodic:
    """Calls `work` every `seconds`, the first time after `seconds`, until it is stopped.

    Exceptions of `work` go to the loop's exception handler, and the next call still comes. While a
    coroutine of `work` runs, it is not started again; stop() cancels it.
    """

    def __init__(
        self, seconds: float, work: Callable[[], Coroutine[object, object, None] | None]
    ) -> None:
        self._seconds = seconds
        self._work = work
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start the calls on the running loop."""
        self._timer = asyncio.get_running_loop().call_later(self._seconds, self._turn)

    def stop(self) -> None:
        """End the calls, and cancel a coroutine that runs."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._task is not None:
            self._task.cancel()

    def _turn(self) -> None:
        self.start()
        if self._task is not None and not self._task.done():
            return
        running = self._work()
        self._task = None if running is None else asyncio.ensure_future(running)
