"""A value that is read from brokers, kept for a while, and read by one request at a time."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")

PAUSE_FACTOR = 10.0
"""A value is valid at least this many times as long as its last refresh took."""


class Refreshed(Generic[T]):
    """Keeps the last result of `read`; callers of get() share one call of it.

    A value older than `age_s` is read again. With `stale` get() returns the old value meanwhile,
    and raises the error of the last attempt once the value is older than `stale` seconds.
    """

    def __init__(
        self,
        read: Callable[[], Awaitable[T]],
        age_s: float,
        *,
        stale: float = 0.0,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read = read
        self._age_s = age_s
        self._stale = stale
        self._monotonic = monotonic
        self._value: T | None = None
        self._at = 0.0
        self._took_s = 0.0
        self._task: asyncio.Task[T] | None = None
        self._offered = asyncio.Event()

    async def get(self) -> T:
        """The value; waits for it only if there is none that is young enough."""
        age = self._monotonic() - self._at
        if self._value is not None and age <= max(self._age_s, PAUSE_FACTOR * self._took_s):
            return self._value
        task = self._refresh()
        if self._value is not None and age <= self._stale:
            return self._value
        offered = asyncio.create_task(self._offered.wait())
        try:
            await asyncio.wait((task, offered), return_when=asyncio.FIRST_COMPLETED)
        finally:
            offered.cancel()
        if self._value is not None and not task.done():
            return self._value
        return await asyncio.shield(task)

    def peek(self) -> T | None:
        """The last value, None before the first; an old one is read again meanwhile."""
        if self._value is None or self._monotonic() - self._at > self._age_s:
            self._refresh()
        return self._value

    def offer(self, value: T) -> None:
        """Give waiting callers a partial value; `read` calls this."""
        if asyncio.current_task() is self._task:
            self._value, self._at = value, self._monotonic()
            self._offered.set()

    def forget(self) -> None:
        """Read again at the next get(), and wait for it: something was changed."""
        self._value = None
        self._task = None

    async def stop(self) -> None:
        """Cancel a call that still runs."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _refresh(self) -> asyncio.Task[T]:
        if self._task is None or self._task.done():
            self._offered.clear()
            self._task = asyncio.create_task(self._call())
            self._task.add_done_callback(_seen)
        return self._task

    async def _call(self) -> T:
        began = self._monotonic()
        value = await self._read()
        if asyncio.current_task() is self._task:
            self._value, self._at = value, self._monotonic()
            self._took_s = self._at - began
        return value


def _seen(task: asyncio.Task[T]) -> None:
    """Take a failure that no caller waits for, which asyncio would log."""
    if not task.cancelled():
        task.exception()
