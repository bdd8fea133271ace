"""Polling for some microseconds after a request, instead of sleeping at once.

A peer that sends one request at a time sends the next as soon as it has its answer. To wake a
process that sleeps on another core costs the kernel, and more so a virtual machine, longer than all
that a broker does with a message; the next request is there before.
"""

import asyncio
import time
from collections.abc import Callable

SMALL_CHUNK = 2048
"""Bytes of a small chunk. A peer that sends more at a time does not wait for each answer."""


class BusyPoll:
    """Keeps one event loop from sleeping until `seconds` after the last small chunk."""

    __slots__ = ("_clock", "_loop", "_seconds", "_turning", "_until")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        seconds: float,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._loop = loop
        self._seconds = seconds
        self._clock = clock
        self._until = 0.0
        self._turning = False

    def chunk_served(self, size: int) -> None:
        """A chunk of so many bytes was read and answered."""
        if size > SMALL_CHUNK or not self._seconds:
            return
        self._until = self._clock() + self._seconds
        if not self._turning:
            self._turning = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        """While a callback is due, the loop looks for events without waiting for one."""
        if self._clock() < self._until:
            self._loop.call_soon(self._turn)
        else:
            self._turning = False
