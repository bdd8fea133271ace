"""Messages as they go out: properties, compression, batches (RocketMQ: DefaultMQProducerImpl)."""

import struct
import zlib
from collections.abc import Callable, Iterator, Sequence

import msgspec

from congreve.client.checks import PROPERTIES_MAX
from congreve.client.compression import COMPRESSOR_ZLIB
from congreve.client.errors import InvalidMessageError
from congreve.client.message import Message
from congreve.records.errors import RecordError
from congreve.records.flags import SysFlag
from congreve.records.properties import DELAY, KEYS, TAGS, UNIQ_KEY, WAIT
from congreve.records.record import encode_properties
from congreve.remoting.codes import RequestCode

COMPRESS_LEVEL = 5

_ELEMENT = struct.Struct(">iiiii")
_SHORT = struct.Struct(">h")
_ELEMENT_OVERHEAD = _ELEMENT.size + _SHORT.size


class Outgoing(msgspec.Struct):
    """What a send request carries of a message, or of a batch of them."""

    topic: str
    body: bytes
    message_id: str
    properties: str
    flag: int = 0
    sys_flag: int = 0
    is_batch: bool = False

    @property
    def code(self) -> int:
        """The request code that it is sent with."""
        return RequestCode.SEND_BATCH_MESSAGE if self.is_batch else RequestCode.SEND_MESSAGE_V2


def prepare(message: Message, message_id: str, *, compress_from: int) -> Outgoing:
    """One message; a body of `compress_from` bytes or more is compressed. InvalidMessageError."""
    body, sys_flag = bytes(message.body), 0
    if len(body) >= compress_from:
        body = zlib.compress(body, COMPRESS_LEVEL)
        sys_flag = SysFlag.COMPRESSED | COMPRESSOR_ZLIB
    return Outgoing(
        topic=message.topic,
        body=body,
        message_id=message_id,
        properties=_properties(message, message_id).decode(),
        flag=message.flag,
        sys_flag=sys_flag,
    )


def prepare_batches(
    messages: Sequence[Message], next_id: Callable[[], str], *, body_max: int
) -> Iterator[Outgoing]:
    """Batches of at most `body_max` bytes, in the messages' order. InvalidMessageError."""
    elements: list[bytes] = []
    ids: list[str] = []
    size = 0
    wait = _wait_property(messages[0])
    for message in messages:
        message_id = next_id()
        element = _element(message, message_id)
        if len(element) > body_max:
            raise InvalidMessageError(
                f"message of {len(element)} bytes with its properties, {body_max} are allowed"
            )
        if size + len(element) > body_max:
            yield _batch(messages[0], elements, ids, wait)
            elements, ids, size = [], [], 0
        elements.append(element)
        ids.append(message_id)
        size += len(element)
    yield _batch(messages[0], elements, ids, wait)


def _batch(first: Message, elements: list[bytes], ids: list[str], wait: str) -> Outgoing:
    return Outgoing(
        topic=first.topic,
        body=b"".join(elements),
        message_id=",".join(ids),
        properties=wait,
        is_batch=True,
    )


def _element(message: Message, message_id: str) -> bytes:
    """i32 size, i32 magic 0, i32 crc 0, i32 flag, i32 body length, body, i16 length, properties."""
    properties = _properties(message, message_id)
    body = bytes(message.body)
    size = _ELEMENT_OVERHEAD + len(body) + len(properties)
    head = _ELEMENT.pack(size, 0, 0, message.flag, len(body))
    return b"".join((head, body, _SHORT.pack(len(properties)), properties))


def _wait_property(message: Message) -> str:
    return encode_properties({WAIT: _boolean(message.wait)}).decode()


def _boolean(value: bool) -> str:
    return "true" if value else "false"


def _properties(message: Message, message_id: str) -> bytes:
    properties = dict(message.properties)
    if message.keys:
        properties[KEYS] = message.keys
    properties[UNIQ_KEY] = message_id
    properties[WAIT] = _boolean(message.wait)
    if message.delay_level:
        properties[DELAY] = str(message.delay_level)
    if message.tags:
        properties[TAGS] = message.tags
    try:
        encoded = encode_properties(properties)
    except RecordError as error:
        raise InvalidMessageError(f"message of topic {message.topic}: {error}") from error
    if len(encoded) > PROPERTIES_MAX:
        raise InvalidMessageError(
            f"message properties of {len(encoded)} bytes, {PROPERTIES_MAX} are allowed"
        )
    return encoded
