"""Connections to the HA port of which it is not known yet whether they are a slave's."""

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

STRANGERS_MAX = 16
"""How many there are at most."""
HANDSHAKE_S = 10.0
"""The time in which one has to log in and report, however many bytes it sends meanwhile."""


@dataclass(eq=False, frozen=True)
class Stranger:
    """One connection; `cut()` ends it, from any thread. (RocketMQ: HAConnection.)"""

    address: str
    since: float
    cut: Callable[[], None]


class Strangers:
    """The strangers of one HA port. They have places of their own, so none takes a slave's.

    One more pushes out the oldest of the address that has most. Any thread may call it.
    (RocketMQ: none; HAService has no limits.)
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._now = monotonic
        self._lock = threading.Lock()
        self._strangers: dict[Stranger, None] = {}  # oldest first

    def __len__(self) -> int:
        return len(self._strangers)

    def enter(self, address: str, cut: Callable[[], None]) -> Stranger:
        """Give a new connection a place, another one's if there is none."""
        stranger, oldest = Stranger(address, self._now(), cut), None
        with self._lock:
            self._strangers[stranger] = None
            if len(self._strangers) > STRANGERS_MAX:
                counts = Counter(each.address for each in self._strangers)
                most = max(counts.values())
                oldest = next(each for each in self._strangers if counts[each.address] == most)
                del self._strangers[oldest]
        if oldest is not None:
            oldest.cut()
        return stranger

    def leave(self, stranger: Stranger) -> None:
        """Free the place: the connection has ended, or it is a slave's."""
        with self._lock:
            self._strangers.pop(stranger, None)

    def cut_late(self) -> None:
        """Cut the connections that are too old."""
        late = self._now() - HANDSHAKE_S
        with self._lock:
            found = [each for each in self._strangers if each.since < late]
            for each in found:
                del self._strangers[each]
        for each in found:
            each.cut()
