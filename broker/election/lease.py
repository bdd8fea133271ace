"""How long a master may acknowledge messages, by its own clock."""

import time
from collections.abc import Callable


def boot_time() -> float:
    """Seconds since the machine started, including the time in which it was suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class MasterLease:
    """The lease of this member, as its own clock sees it.

    The coordination service counts the lease from the moment at which a renewal arrives, this
    member from the moment at which it was sent, less a margin. So the member stops before the
    lease can end. No wall clock is involved. (RocketMQ has no counterpart: a master there acts
    until the controller's notification arrives.)
    """

    def __init__(
        self, ttl_s: float, margin_s: float, clock: Callable[[], float] = boot_time
    ) -> None:
        """`margin_s` covers clocks that run at different speeds; it is smaller than `ttl_s`."""
        self.ttl_s = ttl_s
        self._margin_s = margin_s
        self._clock = clock
        self.deadline = float("-inf")
        """When this member stops acknowledging, in seconds of `clock`."""

    def now(self) -> float:
        """The time of this lease's clock, taken before a renewal is sent."""
        return self._clock()

    def renewed(self, sent_at: float) -> None:
        """The service answered a renewal that was sent at `sent_at`."""
        self.deadline = max(self.deadline, sent_at + self.ttl_s - self._margin_s)

    def end(self) -> None:
        """The member has no lease any more."""
        self.deadline = float("-inf")

    @property
    def left_s(self) -> float:
        """Seconds for which the lease is valid without a renewal."""
        return max(self.deadline - self._clock(), 0.0)

    @property
    def held(self) -> bool:
        """Whether the member may acknowledge messages now."""
        return self._clock() < self.deadline
