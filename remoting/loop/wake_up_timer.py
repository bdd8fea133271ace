"""One wake-up of the event loop, which callers can only set earlier."""

import asyncio
from collections.abc import Callable


class WakeUpTimer:
    """Calls `work` at the earliest time that set() received since the last call."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._timer: asyncio.Handle | None = None
        self._when = 0.0

    @property
    def is_set(self) -> bool:
        """Whether a call of `work` is scheduled."""
        return self._timer is not None

    def set(self, seconds: float) -> None:
        """Call `work` in `seconds`, unless an earlier time is set."""
        loop = asyncio.get_running_loop()
        when = loop.time() + seconds
        if self._timer is not None:
            if self._when <= when:
                return
            self._timer.cancel()
        # uvloop's handle has no time when it is due at once.
        self._when = when
        self._timer = loop.call_at(when, self._fire)

    def stop(self) -> None:
        """Cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fire(self) -> None:
        self._timer = None
        self._work()
