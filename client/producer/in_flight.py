"""Limits the sends that wait for their answers (RocketMQ 5: backPressureForAsyncSendNum)."""

import asyncio
import threading

from congreve.client.errors import SendTimeoutError


class InFlight:
    """The slots of one producer, which tasks get in the order in which they ask (RocketMQ 5:
    semaphoreAsyncSendNum).

    `for_threads` are as many again: a thread that hands its sends to the event loop waits there,
    so that no more than `limit` of them are in the loop's memory.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.for_threads = threading.BoundedSemaphore(limit)
        self._slots = asyncio.Semaphore(limit)

    async def take(self, deadline: float) -> None:
        """Wait for a slot until the loop's time is `deadline`. Raises SendTimeoutError."""
        if not self._slots.locked():
            await self._slots.acquire()
            return
        try:
            async with asyncio.timeout_at(deadline):
                await self._slots.acquire()
        except TimeoutError:
            raise SendTimeoutError(
                f"the message was not sent: {self.limit} others waited for their answers;"
                " max_in_flight is the limit"
            ) from None

    def give_back(self) -> None:
        """Free a slot that take() gave."""
        self._slots.release()
