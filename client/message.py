"""Messages and pulled messages (RocketMQ: Message, MessageExt, PullResult)."""

from enum import IntEnum

import msgspec

from congreve.base.fields import Fields
from congreve.client.received import ReceivedMessage
from congreve.remoting.messages.body import MessageQueue

__all__ = [
    "Message",
    "MessageQueue",
    "PullResult",
    "PullStatus",
    "ReceivedMessage",
]


class Message(msgspec.Struct, kw_only=True):
    """A message to send; sending does not change it (RocketMQ: Message).

    `keys` are separated by spaces, `delay_level` counts from 1 (0: no delay), `deliver_ms` is a
    time of delivery in ms since 1970 (0: at once; for Congreve and RocketMQ 5), `priority` counts
    from 0 and chooses the queue (None: no priority; for Congreve and RocketMQ 5.4), the user
    defines the meaning of `flag`, and `wait` asks the broker to answer only after the flush and the
    replication that it is configured for.
    """

    topic: str
    body: bytes
    tags: str | None = None
    keys: str | None = None
    properties: dict[str, str] = {}
    delay_level: int = 0
    deliver_ms: int = 0
    priority: int | None = None
    flag: int = 0
    wait: bool = True


class PullStatus(IntEnum):
    """The outcome of a pull; the values are the response codes (RocketMQ: PullStatus)."""

    FOUND = 0
    NO_NEW_MSG = 19
    NO_MATCHED_MSG = 20
    OFFSET_ILLEGAL = 21


class PullResult(Fields, msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a pull (RocketMQ: PullResult); the next pull continues at `next_offset`,
    whatever `status` is."""

    status: PullStatus
    next_offset: int
    min_offset: int
    max_offset: int
    messages: list[ReceivedMessage]
    suggested_broker_id: int = 0
