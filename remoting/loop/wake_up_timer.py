"""One wake-up of the event loop, which callers can only set earlier."""

import asyncio
import logging
from collections.abc import Callable

from congreve.remoting.loop.background import FIRST_PAUSE_S, LONGEST_PAUSE_S

logger = logging.getLogger(__name__)


class WakeUpTimer:
    """Calls `work` at the earliest time that set() received since the last call.

    After an error that `work` did not expect, which goes to the log, it is called again: it may not
    have reached its own set(). The pause before doubles from half a second to half a minute.
    """

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._timer: asyncio.Handle | None = None
        self._when = 0.0
        self._pause_s = FIRST_PAUSE_S

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
        try:
            self._work()
        except Exception:
            name = getattr(self._work, "__qualname__", repr(self._work))
            logger.exception("%s failed; it is called again in %g s", name, self._pause_s)
            self.set(self._pause_s)
            self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
        else:
            self._pause_s = FIRST_PAUSE_S
