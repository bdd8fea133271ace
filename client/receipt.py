"""What a client needs to settle a message that a broker handed out (RocketMQ 5: POP_CK)."""

import asyncio
import time

from congreve.records.message.pop_handle import PopHandle


class Receipt:
    """The right to settle one message until `due`, a time of the monotonic clock: from then on the
    broker hands the message out again. An extension changes `handle` and `due`. (RocketMQ 5:
    PROPERTY_POP_CK.)

    `topic` is the topic that the pop asked for, as the broker names it.
    """

    __slots__ = ("due", "handle", "pending", "settled", "topic")

    def __init__(self, handle: PopHandle, topic: str, due: float) -> None:
        self.handle = handle
        self.topic = topic
        self.due = due
        self.settled = False
        self.pending: asyncio.Future[None] | None = None
        """The request that a broker has not answered yet. The next one waits for it: two extensions
        with one handle would give two deliveries, and an extension changes the handle."""

    @property
    def is_over(self) -> bool:
        """Whether the message is settled, or others may get it by now."""
        return self.settled or self.due <= time.monotonic()
