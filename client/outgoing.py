"""Prepares messages for sending: properties, compression, batches (RocketMQ:
DefaultMQProducerImpl)."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec

from congreve.client.compression import CompressionType, compress
from congreve.client.errors import InvalidMessageError
from congreve.client.message import Message
from congreve.records.batches.batch import batch_element
from congreve.records.errors import RecordError
from congreve.records.layout import PROPERTIES_MAX
from congreve.records.message.properties import (
    DELAY,
    KEYS,
    PRIORITY,
    TAGS,
    TIMER_DELIVER_MS,
    UNIQ_KEY,
    WAIT,
)
from congreve.records.message.property_codec import encode_properties
from congreve.remoting.messages.codes import RequestCode

_NONE: Mapping[str, str] = {}


class Outgoing(msgspec.Struct):
    """The part of a send request that depends on the message, or on a batch of `count` messages.

    `messages` holds all messages with the properties that are sent, or for send_many() only the one
    whose properties all of them share.
    """

    topic: str
    body: bytes
    message_id: str
    properties: str
    flag: int = 0
    sys_flag: int = 0
    code: int = RequestCode.SEND_MESSAGE_V2
    count: int = 1
    messages: Sequence[Message] = ()

    @property
    def is_batch(self) -> bool:
        """Whether this is a batch."""
        return self.code == RequestCode.SEND_BATCH_MESSAGE


def prepare(
    message: Message,
    message_id: str,
    *,
    compress_from: int,
    compression: CompressionType = CompressionType.ZLIB,
    system: Mapping[str, str] = _NONE,
) -> Outgoing:
    """Prepare one message; a body of `compress_from` bytes or more is compressed.

    `system` holds properties that users may not set. Raises InvalidMessageError when the properties
    cannot be encoded or are too long.
    """
    body, sys_flag = bytes(message.body), 0
    if len(body) >= compress_from:
        body = compress(body, compression)
        sys_flag = compression.sys_flag
    return Outgoing(
        topic=message.topic,
        body=body,
        message_id=message_id,
        properties=encoded_properties(message, message_id, system).decode(),
        flag=message.flag,
        sys_flag=sys_flag,
        messages=(message,),
    )


def prepare_batches(
    messages: Iterable[Message],
    next_id: Callable[[], str],
    *,
    body_max: int,
    system: Mapping[str, str] = _NONE,
) -> Iterator[Outgoing]:
    """Pack the messages into batches of at most `body_max` bytes, in order.

    Raises InvalidMessageError when one message is larger than that or its properties are invalid.
    """
    packed: list[Message] = []
    elements: list[bytes] = []
    ids: list[str] = []
    size = 0
    for message in messages:
        message_id = next_id()
        properties = encoded_properties(message, message_id, system)
        element = batch_element(message.body, properties, message.flag)
        if len(element) > body_max:
            raise InvalidMessageError(
                f"message of {len(element)} bytes with its properties: "
                f"at most {body_max} are allowed"
            )
        if size + len(element) > body_max:
            yield batch(packed, b"".join(elements), ",".join(ids), len(ids))
            packed, elements, ids, size = [], [], [], 0
        packed.append(message)
        elements.append(element)
        ids.append(message_id)
        size += len(element)
    if packed:
        yield batch(packed, b"".join(elements), ",".join(ids), len(ids))


def batch(messages: Sequence[Message], body: bytes, message_ids: str, count: int) -> Outgoing:
    """A batch of `count` messages with the topic and `wait` of the first of `messages`."""
    like = messages[0]
    return Outgoing(
        topic=like.topic,
        body=body,
        message_id=message_ids,
        properties=encode_properties({WAIT: _boolean(like.wait)}).decode(),
        code=RequestCode.SEND_BATCH_MESSAGE,
        count=count,
        messages=messages,
    )


def encoded_properties(
    message: Message, message_id: str | None, system: Mapping[str, str] = _NONE
) -> bytes:
    """Encode all properties of a message. Raises InvalidMessageError when they are invalid or
    too long."""
    properties = {**message.properties, **system} if system else dict(message.properties)
    if message.keys:
        properties[KEYS] = message.keys
    if message_id is not None:
        properties[UNIQ_KEY] = message_id
    properties[WAIT] = _boolean(message.wait)
    if message.delay_level:
        properties[DELAY] = str(message.delay_level)
    if message.deliver_ms:
        properties[TIMER_DELIVER_MS] = str(message.deliver_ms)
    if message.priority is not None:
        properties[PRIORITY] = str(message.priority)
    if message.tags:
        properties[TAGS] = message.tags
    try:
        encoded = encode_properties(properties)
    except RecordError as error:
        raise InvalidMessageError(f"message of topic {message.topic}: {error}") from error
    if len(encoded) > PROPERTIES_MAX:
        raise InvalidMessageError(
            f"message properties of {len(encoded)} bytes: at most {PROPERTIES_MAX} are allowed"
        )
    return encoded


def _boolean(value: bool) -> str:
    return "true" if value else "false"
