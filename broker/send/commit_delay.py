"""The delay of a group's write, for connections that were just answered and will send again."""

import asyncio
from collections.abc import Callable, Iterable

from congreve.remoting.transport.connection import Connection

GATHER_S = 0.0003
"""The longest delay of a write, in seconds: connections that were just answered may send again.
During the delay, and for as long again while the disk works, the loop polls: it would need tens of
microseconds to wake up on a virtual machine, twice in each write."""
HURRIED_RELEASES_MAX = 128
"""The most releases in succession that have no delay. A delay that ends by its limit is followed
by one of them, the next such delay by two, and so on up to this number."""


class CommitDelay:
    """Delays the next write until the connections that were answered have sent again.

    Otherwise the first of them would get its own write, and the others would wait for it.
    `is_needed` returns whether an answer waits for a write; `write` requests the write when the
    delay ends without all connections. The loop polls during the delay and does not sleep.
    """

    def __init__(
        self,
        is_needed: Callable[[], bool],
        write: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        self._is_needed = is_needed
        self._write = write
        self._clock = clock
        self._loop: asyncio.AbstractEventLoop | None = None
        self._awaited: set[Connection] = set()
        self._awake_until = 0.0
        self._polling = False
        self._hurried_releases = 0
        self._next_hurried = 1

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Poll on this loop from now on."""
        self._loop = loop

    def stop(self) -> None:
        """Stop polling and delaying."""
        self._awaited.clear()
        self._loop = None

    def is_over(self, connection: Connection) -> bool:
        """Record a send of this connection; True when all awaited ones have sent."""
        if connection in self._awaited:
            self._awaited.remove(connection)
            if not self._awaited:
                self._awake_until = self._clock() + GATHER_S
                self._next_hurried = 1
        return not self._awaited

    def begin(self, answered: Iterable[Connection]) -> None:
        """Await sends of the connections that were just answered."""
        if self._hurried_releases:
            self._hurried_releases -= 1
            return
        self._awaited = set(answered)
        self._awake_until = self._clock() + GATHER_S
        if not self._polling and self._loop is not None:
            self._polling = True
            self._loop.call_soon(self._poll)

    def _poll(self) -> None:
        waits = self._awaited or self._is_needed()
        if self._loop is not None and waits and self._clock() < self._awake_until:
            self._loop.call_soon(self._poll)
            return
        self._polling = False
        if self._awaited:
            self._awaited.clear()
            self._hurried_releases = self._next_hurried
            self._next_hurried = min(2 * self._next_hurried, HURRIED_RELEASES_MAX)
            self._write()
