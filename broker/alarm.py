"""One wake-up of the event loop that may be wanted earlier, never later, by whoever asks."""

import asyncio
from collections.abc import Callable


class Alarm:
    """Calls `work` once for each time that set() was called since the last call."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._timer: asyncio.Handle | None = None
        self._when = 0.0

    @property
    def is_set(self) -> bool:
        return self._timer is not None

    def set(self, seconds: float) -> None:
        """`work` is wanted so soon; an earlier time that is set already stays."""
        loop = asyncio.get_running_loop()
        when = loop.time() + seconds
        if self._timer is not None:
            if self._when <= when:
                return
            self._timer.cancel()
        # uvloop's handle of a time that is now does not say its time.
        self._when = when
        self._timer = loop.call_at(when, self._ring)

    def stop(self) -> None:
        """Forget what was set."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ring(self) -> None:
        self._timer = None
        self._work()
