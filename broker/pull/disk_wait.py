"""Pulls that wait for the disk: a thread reads their messages, or repairs their queue entry."""

import asyncio
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from congreve.broker.pull.slow_readers import SlowReaders
from congreve.broker.pull.suspended_pull import SuspendedPull

P = TypeVar("P", bound=Hashable)

# A further pull is answered at once, and blocks until the disk is done.
WAITING_MAX = 10_000
WAITING_BYTES_MAX = 16 << 20  # of their requests


class DiskWait(Generic[P]):
    """The pulls that wait for the disk, by place; one event loop owns it and serves others.

    `fetch(place, done)` starts to read the log there, or to repair a queue's entry, and calls
    `done` from any thread. `answer(pull)` executes the pull again, `dismiss(pull)` answers that
    the broker stops. `delay_s(pull)` is the time after which it may read.
    """

    def __init__(
        self,
        *,
        fetch: Callable[[P, Callable[[], None]], bool],
        answer: Callable[[SuspendedPull], None],
        dismiss: Callable[[SuspendedPull], None],
        delay_s: Callable[[SuspendedPull], float] = lambda _: 0.0,
    ) -> None:
        self._fetch = fetch
        self._dismiss = dismiss
        self._delay_s = delay_s
        self._delayed: dict[SuspendedPull, asyncio.TimerHandle] = {}
        self._waiting: dict[P, list[SuspendedPull]] = {}
        self._count = 0
        self._bytes = 0
        self._readers = SlowReaders(answer)

    def __len__(self) -> int:
        return self._count + len(self._delayed) + self._readers.count

    def suspend(self, pull: SuspendedPull, place: P) -> bool:
        """Let the pull wait for a place; False when too many wait or nothing can be fetched."""
        size = self._bytes + self._readers.size + len(pull.frame)
        if len(self) >= WAITING_MAX or size > WAITING_BYTES_MAX:
            return False
        delay_s = self._delay_s(pull)
        if delay_s:
            timer = asyncio.get_running_loop().call_later(delay_s, self._read, pull, place)
            self._delayed[pull] = timer
            self._bytes += len(pull.frame)
            return True
        return self._start(pull, place)

    def _read(self, pull: SuspendedPull, place: P) -> None:
        del self._delayed[pull]
        self._bytes -= len(pull.frame)
        if not pull.connection.closed and not self._start(pull, place):
            self._readers.answer(pull)

    def _start(self, pull: SuspendedPull, place: P) -> bool:
        waiting = self._waiting.get(place)
        if waiting is None:
            loop = asyncio.get_running_loop()
            if not self._fetch(place, lambda: self._fetched(loop, place)):
                return False
            waiting = self._waiting[place] = []
        waiting.append(pull)
        self._count += 1
        self._bytes += len(pull.frame)
        return True

    def stop(self) -> None:
        """Dismiss all waiting pulls; their connections are closed next."""
        self._readers.stop()
        waiting, self._waiting, self._count, self._bytes = self._waiting, {}, 0, 0
        delayed, self._delayed = self._delayed, {}
        for timer in delayed.values():
            timer.cancel()
        for pulls in (*waiting.values(), list(delayed)):
            for pull in pulls:
                if pull.connection.is_writable:
                    self._dismiss(pull)

    def _fetched(self, loop: asyncio.AbstractEventLoop, place: P) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(self._go_on, place)

    def _go_on(self, place: P) -> None:
        pulls = self._waiting.pop(place, [])
        self._count -= len(pulls)
        self._bytes -= sum(len(pull.frame) for pull in pulls)
        for pull in pulls:
            self._readers.answer(pull)
