"""Messages of one queue that are on their way through a consumer (RocketMQ: ProcessQueue)."""

import asyncio

from congreve.client.message import MessageQueue, ReceivedMessage

COUNT_MAX = 1000
BYTES_MAX = 100 * 1024 * 1024
SPAN_MAX = 2000
"""Between the first and the last offset: what one slow message may hold up."""


class ProcessQueue:
    """Offsets that were pulled and not yet done with; what is committed never skips one."""

    def __init__(self, queue: MessageQueue, offset: int) -> None:
        self.queue = queue
        self.next_offset = offset
        self.dropped = False
        self.committed: int | None = None
        self._sizes: dict[int, int] = {}  # by offset, in rising order
        self._bytes = 0
        self._room = asyncio.Event()
        self._room.set()

    def __len__(self) -> int:
        return len(self._sizes)

    @property
    def commit_offset(self) -> int:
        """Where another member would have to go on."""
        return next(iter(self._sizes), self.next_offset)

    def take(self, messages: list[ReceivedMessage], next_offset: int) -> None:
        """Note what a pull brought, and where the next one goes on."""
        for message in messages:
            self._sizes[message.queue_offset] = len(message.body)
            self._bytes += len(message.body)
        self.next_offset = next_offset
        self._update_room()

    def done(self, queue_offset: int) -> None:
        """A message needs no more work; a second time does nothing."""
        self._bytes -= self._sizes.pop(queue_offset, 0)
        self._update_room()

    async def has_room(self) -> None:
        """Returns when the next pull may come."""
        await self._room.wait()

    def _update_room(self) -> None:
        span = self.next_offset - self.commit_offset
        full = len(self._sizes) >= COUNT_MAX or self._bytes >= BYTES_MAX or span >= SPAN_MAX
        if full:
            self._room.clear()
        else:
            self._room.set()
