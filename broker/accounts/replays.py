"""Refuses signed requests that were sent before (ours; RocketMQ accepts copies of them).

A client numbers its requests in a signed field (remoting/messages/signature.py). The broker
remembers for each of its series which of the last numbers it has seen, as IPsec does (RFC 4303).
"""

from collections import OrderedDict

from congreve.base.clock import Clock
from congreve.broker.accounts.errors import AccessDeniedError
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.messages.signature import ANTI_REPLAY, Numbered

NUMBERS_KEPT = 4096
"""A request may come after so many later ones of its series."""
SERIES_MAX = 100_000
"""Series that are remembered."""


class _Series:
    """The highest number of a series, and which of the NUMBERS_KEPT up to it were seen."""

    __slots__ = ("highest", "seen", "time")

    def __init__(self) -> None:
        self.highest = 0
        self.seen = 0  # bit n: the number `highest` - n
        self.time = 0

    def is_new(self, number: int) -> bool:
        """Whether the number was not seen before; records it as seen."""
        if number > self.highest:
            shift = min(number - self.highest, NUMBERS_KEPT)
            self.seen = (self.seen << shift | 1) & ((1 << NUMBERS_KEPT) - 1)
            self.highest = number
            return True
        bit = self.highest - number
        if bit >= NUMBERS_KEPT or self.seen >> bit & 1:
            return False
        self.seen |= 1 << bit
        return True


class ReplayGuard:
    """Accepts each numbered request once, at most `window_ms` before or after it was signed.

    It refuses requests from before its own start, because it cannot know which of them were
    accepted then.
    """

    def __init__(self, window_ms: int, clock: Clock) -> None:
        self._window_ms = window_ms
        self._clock = clock
        self._begin = clock.now()
        self._series: OrderedDict[tuple[str, str], _Series] = OrderedDict()

    def check(self, access_key: str, request: RemotingCommand) -> None:
        """Record a request with a valid signature. Raises AccessDeniedError for a copy of one."""
        numbered = Numbered.parse(request.ext_fields.get(ANTI_REPLAY, ""))
        if numbered is None:
            raise AccessDeniedError(
                f"the broker wants numbered requests, but the field {ANTI_REPLAY} is missing or "
                "wrong: set replay_protection=True in the client's Credentials",
                access_key,
            )
        now = self._clock.now()
        if abs(now - numbered.time) > self._window_ms or numbered.time < self._begin:
            raise AccessDeniedError(
                f"a request of {numbered.time}, but it is {now}, and the broker runs since "
                f"{self._begin}: are the clocks of both machines right?",
                access_key,
            )
        if not self._series_of(access_key, numbered.series, now).is_new(numbered.number):
            raise AccessDeniedError(f"request {numbered.number} came before", access_key)

    def _series_of(self, access_key: str, name: str, now: int) -> _Series:
        key = access_key, name
        found = self._series.get(key)
        if found is None:
            self._forget(now)
            found = self._series[key] = _Series()
        found.time = now
        self._series.move_to_end(key)
        return found

    def _forget(self, now: int) -> None:
        """Forget the series all of whose requests are too old to pass. Raises AccessDeniedError."""
        while self._series:
            oldest = next(iter(self._series.values()))
            if now - oldest.time <= 2 * self._window_ms:
                break
            self._series.popitem(last=False)
        if len(self._series) >= SERIES_MAX:
            raise AccessDeniedError(f"{SERIES_MAX} clients number their requests: try again later")
