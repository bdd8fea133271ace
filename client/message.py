"""What goes out and what comes in (RocketMQ: Message, MessageExt, SendResult, PullResult)."""

from enum import IntEnum

import msgspec

from congreve.client.received import ReceivedMessage
from congreve.remoting.bodies import MessageQueue

__all__ = [
    "Message",
    "MessageQueue",
    "PullResult",
    "PullStatus",
    "ReceivedMessage",
    "SendResult",
    "SendStatus",
]


class Message(msgspec.Struct, kw_only=True):
    """A message to send. It is never changed by sending it.

    `keys` are separated by spaces, `delay_level` counts from 1 (0: at once), `flag` is the user's
    own, `wait` asks the broker to confirm after flushing and replicating as it is configured to.
    """

    topic: str
    body: bytes
    tags: str | None = None
    keys: str | None = None
    properties: dict[str, str] = {}
    delay_level: int = 0
    flag: int = 0
    wait: bool = True


class SendStatus(IntEnum):
    """How well a message is stored; the values are the response codes."""

    SEND_OK = 0
    FLUSH_DISK_TIMEOUT = 10
    SLAVE_NOT_AVAILABLE = 11
    FLUSH_SLAVE_TIMEOUT = 12


class SendResult(msgspec.Struct, frozen=True, kw_only=True):
    """Where a message was stored. Of a batch: ids with commas between, offset of the first.

    `count` is of the messages that it stands for. `transaction_id` is what a broker may give to a
    half message beside our own id.
    """

    status: SendStatus
    message_id: str
    offset_message_id: str
    queue: MessageQueue
    queue_offset: int
    count: int = 1
    transaction_id: str | None = None


class PullStatus(IntEnum):
    """What a pull found; the values are the response codes."""

    FOUND = 0
    NO_NEW_MSG = 19
    NO_MATCHED_MSG = 20
    OFFSET_ILLEGAL = 21


class PullResult(msgspec.Struct, frozen=True, kw_only=True):
    """Answer to a pull; go on at `next_offset`, whatever `status` says."""

    status: PullStatus
    next_offset: int
    min_offset: int
    max_offset: int
    messages: list[ReceivedMessage]
    suggested_broker_id: int = 0
