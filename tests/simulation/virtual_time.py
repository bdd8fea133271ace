"""An event loop whose time jumps to the next timer as soon as nothing is left to do."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, TypeVar

from congreve.base.clock import ManualClock

T = TypeVar("T")

EPOCH_MS = 1_700_000_000_000
"""The wall clock's time at the beginning."""


class NothingToDoError(Exception):
    """No timer, no socket and no task can go on: the simulation would never end."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """Sockets are those of the kernel, but time is virtual, and no thread runs beside.

    What would go to a thread runs in a task.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.clock = ManualClock(EPOCH_MS)
        """The wall clock of every member."""
        super().__init__(_Jumping(self._jump))

    def time(self) -> float:
        """Seconds since the beginning."""
        return self.now

    def time_ns(self) -> int:
        """The same in ns."""
        return int(self.now * 1e9)

    def _jump(self, seconds: float) -> None:
        self.now += seconds
        self.clock.set(EPOCH_MS + int(self.now * 1000))

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """Call the function soon."""

        async def call() -> T:
            return func(*args)

        return self.create_task(call())


class _Jumping(selectors.EpollSelector):
    """Waits for nothing: it lets time pass instead."""

    def __init__(self, jump: Callable[[float], None]) -> None:
        super().__init__()
        self._jump = jump

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """What is ready now; without anything the time has passed when this returns."""
        found = super().select(0)
        if not found and timeout is None:
            raise NothingToDoError("no timer, no socket and no task can go on")
        if not found and timeout:
            self._jump(timeout)
        return found
