"""Pulls that wait for the disk: a thread reads their messages, or repairs their queue entry."""

import asyncio
from collections.abc import Callable, Hashable
from typing import Generic, NamedTuple, TypeVar

from congreve.broker.pull.progress import PullProgress
from congreve.broker.requests.wait_limit import WaitLimit
from congreve.remoting.transport.connection import Connection

P = TypeVar("P", bound=Hashable)


class UnreadablePull(NamedTuple):
    """A pull that its lane cannot serve yet."""

    connection: Connection
    progress: PullProgress
    frame: bytes


class DiskWait(Generic[P]):
    """The pulls that wait for the disk, by place; one event loop owns it.

    `fetch(place, done)` starts to read the log there, or to repair a queue's entry, and calls
    `done` from any thread. `give_back(pull)` lets the pull's lane serve it, `dismiss(pull)` answers
    that the broker stops. `delay_s(pull)` is the time after which it may read.
    """

    def __init__(
        self,
        *,
        fetch: Callable[[P, Callable[[], None]], bool],
        give_back: Callable[[UnreadablePull], None],
        dismiss: Callable[[UnreadablePull], None],
        delay_s: Callable[[UnreadablePull], float] = lambda _: 0.0,
    ) -> None:
        self._fetch = fetch
        self._give_back = give_back
        self._dismiss = dismiss
        self._delay_s = delay_s
        self._delayed: dict[asyncio.TimerHandle, UnreadablePull] = {}
        self._waiting: dict[P, list[UnreadablePull]] = {}
        self.limit = WaitLimit()
        """How many may wait."""

    def __len__(self) -> int:
        return self.limit.count

    def suspend(self, pull: UnreadablePull, place: P) -> None:
        """Let the pull wait for a place; give it back if too many wait or nothing can be fetched:
        then the broker waits for the disk when it answers."""
        if not self.limit.enter(len(pull.frame)):
            self._give_back(pull)
            return
        delay_s = self._delay_s(pull)
        if not delay_s:
            self._start(pull, place)
            return

        def read() -> None:
            del self._delayed[timer]
            self._start(pull, place)

        timer = asyncio.get_running_loop().call_later(delay_s, read)
        self._delayed[timer] = pull

    def _start(self, pull: UnreadablePull, place: P) -> None:
        waiting = self._waiting.get(place)
        if waiting is None:
            loop = asyncio.get_running_loop()
            waiting = self._waiting[place] = []
            if not self._fetch(place, lambda: self._fetched(loop, place)):
                loop.call_soon(self._go_on, place)
        waiting.append(pull)

    def stop(self) -> None:
        """Dismiss all waiting pulls; their connections are closed next."""
        for timer in self._delayed:
            timer.cancel()
        for pulls in (*self._waiting.values(), list(self._delayed.values())):
            for pull in pulls:
                if pull.connection.is_writable:
                    self._dismiss(pull)
        self._waiting, self._delayed, self.limit = {}, {}, WaitLimit()

    def _fetched(self, loop: asyncio.AbstractEventLoop, place: P) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(self._go_on, place)

    def _go_on(self, place: P) -> None:
        for pull in self._waiting.pop(place, []):
            self.limit.leave(len(pull.frame))
            self._give_back(pull)
