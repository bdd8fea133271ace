"""A limit for failed logins, by address and by access key."""

import time
from collections import OrderedDict, deque
from collections.abc import Callable

FAILURES_MAX = 5
WINDOW_S = 60.0
TABLE_MAX = 4_096
"""Addresses and access keys that are counted; the one that failed first is dropped."""


class LoginLimit:
    """Refuses logins of an address or access key after FAILURES_MAX failures in WINDOW_S."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._failures: OrderedDict[str, deque[float]] = OrderedDict()

    def wait_s(self, *names: str) -> float:
        """The seconds until a login with these names may be tried, 0 if it may be tried now."""
        now = self._monotonic()
        return max(self._wait(self._failures.get(name), now) for name in names)

    def failed(self, *names: str) -> None:
        """Count a failure for each name."""
        now = self._monotonic()
        for name in names:
            times = self._failures.setdefault(name, deque(maxlen=FAILURES_MAX))
            times.append(now)
            self._failures.move_to_end(name)
        while len(self._failures) > TABLE_MAX:
            self._failures.popitem(last=False)

    def succeeded(self, *names: str) -> None:
        """Forget the failures of these names."""
        for name in names:
            self._failures.pop(name, None)

    def _wait(self, times: deque[float] | None, now: float) -> float:
        if times is None or len(times) < FAILURES_MAX:
            return 0.0
        return max(0.0, times[0] + WINDOW_S - now)
