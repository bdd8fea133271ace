"""What goes out and what comes in (RocketMQ: Message, MessageExt, SendResult, PullResult)."""

import zlib
from enum import IntEnum

import msgspec

from congreve.client.errors import ClientError
from congreve.records.flags import SysFlag
from congreve.records.message import Host, Record
from congreve.records.properties import KEYS, RETRY_TOPIC, TAGS, UNIQ_KEY
from congreve.records.record import offset_message_id
from congreve.remoting.bodies import MessageQueue

__all__ = [
    "Message",
    "MessageQueue",
    "PullResult",
    "PullStatus",
    "ReceivedMessage",
    "SendResult",
    "SendStatus",
    "received",
]

RETRY_PREFIX = "%RETRY%"
"""What a group's retry topic is called, before the group's name."""

COMPRESSOR_MASK = 0x700
COMPRESSOR_ZLIB = 0x300
"""How a compressed body was compressed; zero there means zlib too."""


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

    `transaction_id` is what a broker may give to a half message beside our own id.
    """

    status: SendStatus
    message_id: str
    offset_message_id: str
    queue: MessageQueue
    queue_offset: int
    transaction_id: str | None = None


class ReceivedMessage(msgspec.Struct, kw_only=True):
    """A message from a broker. Times are milliseconds since 1970, the body is decompressed.

    `queue` is where it was found: for a retried message that is a queue of its group's retry topic,
    while `topic` is the one that it was sent to.
    """

    topic: str
    body: bytes
    properties: dict[str, str]
    queue: MessageQueue
    queue_offset: int
    physical_offset: int
    born_timestamp: int
    born_host: Host
    store_timestamp: int
    store_host: Host
    reconsume_times: int
    flag: int
    sys_flag: int

    @property
    def queue_id(self) -> int:
        return self.queue.queue_id

    @property
    def tags(self) -> str | None:
        return self.properties.get(TAGS)

    @property
    def keys(self) -> str | None:
        """Keys, with spaces between."""
        return self.properties.get(KEYS)

    @property
    def message_id(self) -> str:
        """The id that its producer gave it, else the one that its place gives it."""
        return self.properties.get(UNIQ_KEY) or self.offset_message_id

    @property
    def offset_message_id(self) -> str:
        return offset_message_id(self.store_host, self.physical_offset)


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


def received(record: Record, queue: MessageQueue) -> ReceivedMessage:
    """A record as a consumer sees it: body decompressed, a retried one under its first topic.

    Raises ClientError where the body cannot be decompressed.
    """
    topic, body = record.topic, record.body
    if topic.startswith(RETRY_PREFIX):
        topic = record.properties.get(RETRY_TOPIC, topic)
    if record.sys_flag & SysFlag.COMPRESSED:
        body = _decompress(record)
    return ReceivedMessage(
        topic=topic,
        body=body,
        properties=record.properties,
        queue=queue,
        queue_offset=record.queue_offset,
        physical_offset=record.physical_offset,
        born_timestamp=record.born_timestamp,
        born_host=record.born_host,
        store_timestamp=record.store_timestamp,
        store_host=record.store_host,
        reconsume_times=record.reconsume_times,
        flag=record.flag,
        sys_flag=record.sys_flag & ~SysFlag.COMPRESSED,
    )


def _decompress(record: Record) -> bytes:
    where = f"message of {record.topic} at physical offset {record.physical_offset}"
    compressor = record.sys_flag & COMPRESSOR_MASK
    if compressor not in (0, COMPRESSOR_ZLIB):
        raise ClientError(f"{where}: compressor {compressor:#x} is not supported, only zlib")
    try:
        return zlib.decompress(record.body)
    except zlib.error as error:
        raise ClientError(f"{where}: its body cannot be decompressed: {error}") from error
