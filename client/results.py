"""Results of sends (RocketMQ: SendResult, SendStatus)."""

from enum import IntEnum

import msgspec

from congreve.base.fields import Fields
from congreve.remoting.messages.body import MessageQueue


class SendStatus(IntEnum):
    """How safely a message is stored; the values are the response codes (RocketMQ: SendStatus)."""

    SEND_OK = 0
    FLUSH_DISK_TIMEOUT = 10
    SLAVE_NOT_AVAILABLE = 11
    FLUSH_SLAVE_TIMEOUT = 12


class SendResult(Fields, msgspec.Struct, frozen=True, kw_only=True):
    """Where a message was stored (RocketMQ: SendResult). A batch has its ids separated by commas
    and the offset of the first message.

    `count` is the number of messages. `transaction_id` is the id that a broker may give to a half
    message in addition to ours. `recall_handle` takes a timed message back (Congreve and RocketMQ
    5: ``admin.timers.recall``).
    """

    status: SendStatus
    message_id: str
    offset_message_id: str
    queue: MessageQueue
    queue_offset: int
    count: int = 1
    transaction_id: str | None = None
    recall_handle: str | None = None
