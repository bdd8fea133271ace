"""Answers to pulls of peers that do not read what they are sent."""

import logging
from collections import deque
from collections.abc import Callable

from congreve.broker.pull.suspended_pull import SuspendedPull
from congreve.remoting.errors import RequestTimeoutError
from congreve.remoting.loop.background import BackgroundJobs
from congreve.remoting.transport.connection import Connection

logger = logging.getLogger(__name__)

UNREAD_MAX_S = 120.0
"""A peer that does not read for so long loses its connection."""


class SlowReaders:
    """Answers pulls that waited, those of a slow peer only as it reads.

    The answers of a thousand queues do not fit into memory. `answer(pull)` executes a pull and
    sends its answer. (RocketMQ: none; Netty keeps the answers.)
    """

    def __init__(self, answer: Callable[[SuspendedPull], None]) -> None:
        self._answer = answer
        self._unread: dict[Connection, deque[SuspendedPull]] = {}
        self._readers = BackgroundJobs("waiting for a slow reader", logger)
        self.count = 0
        """Pulls that wait here."""
        self.size = 0
        """Bytes of their requests."""

    def answer(self, pull: SuspendedPull) -> None:
        """Answer a pull now, or when its peer reads again; never if its connection is closed."""
        connection = pull.connection
        if connection.closed:
            return
        if connection in self._unread:
            self._unread[connection].append(pull)
        elif connection.is_writable:
            self._answer(pull)
            return
        else:
            self._unread[connection] = deque([pull])
            self._readers.begin(self._answer_reader(connection))
        self._count(pull, 1)

    def waiting(self) -> list[SuspendedPull]:
        """The pulls without an answer."""
        return [pull for each in self._unread.values() for pull in each]

    def withdraw(self, pull: SuspendedPull) -> bool:
        """Take a pull out, for another answer; False when it is not here."""
        unread = self._unread.get(pull.connection, ())
        if pull not in unread:
            return False
        self._unread[pull.connection].remove(pull)
        self._count(pull, -1)
        return True

    def stop(self) -> None:
        """Answer no more; the connections are closed next."""
        self._readers.cancel()

    def _count(self, pull: SuspendedPull, one: int) -> None:
        self.count += one
        self.size += one * len(pull.frame)

    async def _answer_reader(self, connection: Connection) -> None:
        unread = self._unread[connection]
        try:
            while unread and not connection.closed:
                await connection.wait_writable(UNREAD_MAX_S)
                while unread and connection.is_writable and not connection.closed:
                    pull = unread.popleft()
                    self._count(pull, -1)
                    self._answer(pull)
        except RequestTimeoutError as error:
            logger.warning("%s: closing it", error)
            connection.abort()
        finally:
            for pull in self._unread.pop(connection):
                self._count(pull, -1)
