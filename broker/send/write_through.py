"""A write on the event loop for a lone sender, which waits for each answer."""

from collections.abc import Callable

from congreve.engine.store import Backend
from congreve.remoting.transport.connection import Connection

SENDS_ALONE = 16
"""A connection is the only sender after so many sends in succession, each answered before the
next."""
STANDSTILL_S = 0.001
STANDSTILL_MEAN_OF = 8
SENDS_AFTER_STANDSTILL = 1000
"""So many sends use the backend's thread after writes whose moving mean, over STANDSTILL_MEAN_OF
of them, is longer than STANDSTILL_S: the disk would block the loop for too long."""


class WriteThrough:
    """Writes on the event loop for a connection that has been the only sender for a while.

    No other send waits for it, and sleeping until the disk is done takes as long as the disk
    itself. For a slow disk, it leaves some sends to the backend's thread.
    """

    def __init__(self, backend: Backend, clock: Callable[[], float]) -> None:
        self._backend = backend
        self._clock = clock
        self._sender: Connection | None = None
        self._sends_alone = 0
        self._standstill = 0.0

    def write(self, connection: Connection, upto: int, *, others_wait: bool) -> bool:
        """Make `upto` durable here, blocking the loop; returns whether it did."""
        if connection is not self._sender or others_wait:
            self._sender, self._sends_alone = connection, 0
            return False
        self._sends_alone += 1
        if self._sends_alone < SENDS_ALONE:
            return False
        before = self._clock()
        done = self._backend.write_through(upto)
        self._standstill += (self._clock() - before - self._standstill) / STANDSTILL_MEAN_OF
        if self._standstill > STANDSTILL_S:
            self._standstill, self._sends_alone = 0.0, -SENDS_AFTER_STANDSTILL
        return done

    def stop(self) -> None:
        """Forget the sender."""
        self._sender = None
