"""Pulls of messages that are not in memory: they wait until a thread has read them from disk."""

import asyncio
import logging
from collections.abc import Callable

from congreve.broker.heldpull import HeldPull

logger = logging.getLogger(__name__)

WAITING_MAX = 10_000  # beyond that a pull is answered at once, however long the disk takes


class ColdPulls:
    """Owned by one event loop, which meanwhile goes on with what is in memory.

    `fetch(offset, done)` has the log's bytes from there read and calls `done` from any thread;
    `answer(pull)` executes the pull again, `dismiss(pull)` tells it that the broker stops.
    """

    def __init__(
        self,
        *,
        fetch: Callable[[int, Callable[[], None]], bool],
        answer: Callable[[HeldPull], None],
        dismiss: Callable[[HeldPull], None],
    ) -> None:
        self._fetch = fetch
        self._answer = answer
        self._dismiss = dismiss
        self._waiting: dict[int, list[HeldPull]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def suspend(self, pull: HeldPull, offset: int) -> bool:
        """Let it wait for the log's bytes at a physical offset; False where it may not."""
        if self._count >= WAITING_MAX:
            return False
        waiting = self._waiting.get(offset)
        if waiting is None:
            loop = asyncio.get_running_loop()
            if not self._fetch(offset, lambda: self._fetched(loop, offset)):
                return False
            waiting = self._waiting[offset] = []
        waiting.append(pull)
        self._count += 1
        return True

    def stop(self) -> None:
        """Dismiss all that wait; their connections are closed next."""
        waiting, self._waiting, self._count = self._waiting, {}, 0
        for pulls in waiting.values():
            for pull in pulls:
                if pull.connection.is_writable:
                    self._dismiss(pull)

    def _fetched(self, loop: asyncio.AbstractEventLoop, offset: int) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(self._go_on, offset)

    def _go_on(self, offset: int) -> None:
        pulls = self._waiting.pop(offset, [])
        self._count -= len(pulls)
        for pull in pulls:
            if not pull.connection.closed:
                self._answer(pull)
