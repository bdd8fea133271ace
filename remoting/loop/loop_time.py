"""The time of an event loop that peers may take with long work."""

from collections.abc import Callable
from time import monotonic


class LoopTime:
    """A token bucket of the loop's seconds: `burst_s` at once, then a `share` of the time."""

    def __init__(
        self, burst_s: float, share: float, clock: Callable[[], float] = monotonic
    ) -> None:
        self._burst_s = burst_s
        self._share = share
        self._clock = clock
        self._left = burst_s
        self._at = clock()

    def spend(self, seconds: float) -> None:
        """Note what some work took."""
        self._refill()
        self._left -= seconds

    @property
    def wait_s(self) -> float:
        """Seconds until further work may run; 0 while some time is left."""
        self._refill()
        return max(-self._left, 0.0) / self._share

    def _refill(self) -> None:
        now = self._clock()
        self._left = min(self._left + (now - self._at) * self._share, self._burst_s)
        self._at = now
