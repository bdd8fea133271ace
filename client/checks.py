"""Refuses, before anything is sent, what every broker would refuse (RocketMQ: Validators)."""

import re
from collections.abc import Sequence
from functools import lru_cache

from congreve.client.errors import InvalidMessageError, InvalidNameError
from congreve.client.message import Message
from congreve.client.namespace import RETRY_PREFIX
from congreve.records import properties

TOPIC_MAX = 127
GROUP_MAX = 255
PROPERTIES_MAX = 32767
"""Bytes of a message's encoded properties."""

_BUFFERS = (bytes, bytearray, memoryview)
_NAME = re.compile(r"[%|a-zA-Z0-9_-]+")

NOT_FOR_PRODUCERS = frozenset(
    {
        "SCHEDULE_TOPIC_XXXX",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
    }
)
"""Topics that only brokers write to."""

RESERVED_PROPERTIES = frozenset(
    value for name, value in vars(properties).items() if name.isupper() and name != "KEY_SEPARATOR"
)
"""Names that have a meaning of their own, so that users cannot have them."""


@lru_cache(maxsize=1024)
def check_topic(topic: str) -> None:
    """Raises InvalidNameError."""
    _check_name("topic", topic, TOPIC_MAX)


def check_group(group: str, default: str) -> None:
    """Raises InvalidNameError; `default` is the name that RocketMQ keeps for itself."""
    _check_name("group", group, GROUP_MAX)
    if group == default:
        raise InvalidNameError(f"group {group!r} cannot be used: give the group a name of its own")


def check_message(message: Message, body_max: int) -> None:
    """Raises InvalidNameError or InvalidMessageError."""
    check_topic(message.topic)
    if message.topic in NOT_FOR_PRODUCERS:
        raise InvalidNameError(f"topic {message.topic!r} is written by brokers alone")
    body = message.body
    if not isinstance(body, _BUFFERS):
        raise InvalidMessageError(f"message body of type {type(body).__name__}: bytes are needed")
    if not body:
        raise InvalidMessageError(f"message of topic {message.topic} has an empty body")
    if len(body) > body_max:
        raise InvalidMessageError(f"message body of {len(body)} bytes, {body_max} are allowed")
    if message.delay_level < 0:
        raise InvalidMessageError(f"delay level {message.delay_level}: 0 or more is needed")
    for name, value in message.properties.items():
        _check_property(name, value)


def check_batch(messages: Sequence[Message], body_max: int) -> None:
    """Raises InvalidNameError or InvalidMessageError (RocketMQ: MessageBatch)."""
    if not messages:
        raise InvalidMessageError("a batch without messages")
    first = messages[0]
    for message in messages:
        check_message(message, body_max)
        if message.topic != first.topic:
            raise InvalidMessageError(
                f"a batch is for one topic, not for {first.topic} and {message.topic}"
            )
        if message.wait != first.wait:
            raise InvalidMessageError("all messages of a batch must have the same `wait`")
        if message.delay_level:
            raise InvalidMessageError(f"delay level {message.delay_level} in a batch")
    if first.topic.startswith(RETRY_PREFIX):
        raise InvalidMessageError(f"a batch for the retry topic {first.topic}")


def _check_name(kind: str, name: str, longest: int) -> None:
    if not name.strip():
        raise InvalidNameError(f"the {kind} has a blank name")
    if len(name) > longest:
        raise InvalidNameError(f"{kind} name of {len(name)} characters, {longest} are allowed")
    if not _NAME.fullmatch(name):
        raise InvalidNameError(f"{kind} {name!r}: only % | a-z A-Z 0-9 _ - are allowed")


def _check_property(name: str, value: str) -> None:
    if name in RESERVED_PROPERTIES:
        raise InvalidMessageError(f"property {name!r} has a meaning of its own: use another name")
    if not name.strip() or not value.strip():
        raise InvalidMessageError(f"property {name!r}={value!r}: neither may be blank")
