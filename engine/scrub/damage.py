"""Which parts of the log are known to be damaged, and what became of them."""

import logging
import threading
from collections.abc import Callable
from typing import NamedTuple

from congreve.engine.log.named_record import NamedRecord

logger = logging.getLogger(__name__)

OPEN_MAX = 10_000
"""Damaged parts that are remembered; further ones are found again by the next scrub."""


class Damage(NamedTuple):
    """A part of the log that is not whole records: physical offsets [begin, end).

    `beside` is a whole record near it, which shows that another log is a copy of this one; None
    where this log has no whole record.
    """

    begin: int
    end: int
    path: str
    beside: NamedRecord | None

    def __str__(self) -> str:
        return f"{self.end - self.begin} bytes at {self.begin} in {self.path}"


class Damages:
    """The damaged parts of one log, for any thread.

    (RocketMQ has no counterpart: it never reads its log again.)
    """

    def __init__(self) -> None:
        self.found = 0
        """How many were found since the start."""
        self.repaired = 0
        """How many were repaired since then."""
        self._lock = threading.Condition()
        self._open: dict[int, Damage] = {}
        self._followers: list[Callable[[], None]] = []

    def follow(self, changed: Callable[[], None]) -> None:
        """Call `changed()` from any thread when one is found."""
        self._followers.append(changed)

    @property
    def open(self) -> list[Damage]:
        """Those that are not repaired, in the order of the log."""
        with self._lock:
            return [self._open[begin] for begin in sorted(self._open)]

    def at(self, place: int) -> Damage | None:
        """The known damage with this physical offset; None without one."""
        with self._lock:
            return self._at(place)

    def _at(self, place: int) -> Damage | None:
        found = (each for each in self._open.values() if each.begin <= place < each.end)
        return next(found, None)

    def add(self, damage: Damage) -> None:
        """Note one, and name it in the log, unless it is known."""
        with self._lock:
            if self._open.get(damage.begin) == damage or len(self._open) >= OPEN_MAX:
                return
            is_new = damage.begin not in self._open
            self._open[damage.begin] = damage
            self.found += is_new
        if is_new:
            logger.error("the log is damaged: %s hold no valid record", damage)
        for changed in self._followers:
            changed()

    def remove(self, damage: Damage, *, repaired: bool) -> None:
        """Forget one: it was repaired, or its segment has expired."""
        with self._lock:
            if self._open.pop(damage.begin, None) is not None:
                self.repaired += repaired
                self._lock.notify_all()

    def begin_of_run(self, place: int) -> int:
        """Where damage begins that goes on to this physical offset without a whole record."""
        for damage in reversed(self.open):
            if damage.end == place:
                place = damage.begin
        return place

    def wait_without(self, place: int, timeout_s: float) -> bool:
        """Wait until no damage with this physical offset is open; whether that is so."""
        with self._lock:
            return self._lock.wait_for(lambda: self._at(place) is None, timeout_s)

    def forget_before(self, begin: int) -> None:
        """Forget those of segments that have expired: the log begins here."""
        for damage in self.open:
            if damage.begin < begin:
                self.remove(damage, repaired=False)

    def narrow(self, damage: Damage, begin: int) -> Damage:
        """The rest of one that was repaired up to `begin`, which is before its end."""
        rest = damage._replace(begin=begin)
        with self._lock:
            if self._open.pop(damage.begin, None) is not None:
                self._open[begin] = rest
                self._lock.notify_all()
        return rest

    def split(self, damage: Damage, place: int) -> tuple[Damage, Damage]:
        """Make two of one: what no other log has ends at `place`, which is inside."""
        first, second = damage._replace(end=place), damage._replace(begin=place)
        with self._lock:
            if self._open.pop(damage.begin, None) is not None:
                self._open |= {first.begin: first, second.begin: second}
        return first, second
