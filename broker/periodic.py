"""Work that a running event loop repeats."""

import asyncio
from collections.abc import Callable


class Periodic:
    """Calls `work` each `seconds`, the first time after `seconds`, until stopped.

    What `work` raises goes to the loop's exception handler, and the next call still comes.
    """

    def __init__(self, seconds: float, work: Callable[[], None]) -> None:
        self._seconds = seconds
        self._work = work
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._seconds, self._turn)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _turn(self) -> None:
        self.start()
        self._work()
