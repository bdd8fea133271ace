"""Checks arguments before a request is sent, by the rules of every broker (RocketMQ:
Validators)."""

from collections.abc import Iterable
from functools import lru_cache
from math import inf
from typing import Any

from congreve.client.errors import InvalidMessageError, InvalidNameError, InvalidSettingError
from congreve.client.message import Message, MessageQueue
from congreve.records.layout import TOPIC_MAX
from congreve.records.message import properties
from congreve.records.message.names import ALLOWED_NAME, GROUP_NAME_MAX
from congreve.records.message.topics import NOT_FOR_PRODUCERS, RETRY_PREFIX, TIMER_TOPIC

INT32_MAX = 2**31 - 1

_BUFFERS = (bytes, bytearray, memoryview)

WRITTEN_BY_BROKERS = NOT_FOR_PRODUCERS - {TIMER_TOPIC}
"""Topics that every broker refuses; a 4.9 broker takes messages to the timer topic."""

RESERVED_PROPERTIES = properties.NAMES
"""Property names with a special meaning, which users cannot set."""


def check_topic(topic: str) -> None:
    """Raises InvalidNameError when the topic's name is invalid."""
    if not isinstance(topic, str):
        raise InvalidNameError(f"topic of type {type(topic).__name__}: text is expected")
    _check_topic(topic)


@lru_cache(maxsize=1024)
def _check_topic(topic: str) -> None:
    _check_name("topic", topic, TOPIC_MAX)


def check_group(group: str, default: str) -> None:
    """Raises InvalidNameError when the group's name is invalid or equals `default`, which
    RocketMQ reserves."""
    _check_name("group", group, GROUP_NAME_MAX)
    if group == default:
        raise InvalidNameError(f"group {group!r} cannot be used: give the group a name of its own")


def check_number(name: str, value: object, low: int, high: int = INT32_MAX) -> None:
    """Raises InvalidSettingError when `value` is not a whole number from `low` to `high`."""
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise InvalidSettingError(f"{name} is {value!r}: {low} to {high} is expected")


def check_seconds(name: str, value: object, *, above_zero: bool = True) -> None:
    """Raises InvalidSettingError when `value` is not a finite, non-negative number of seconds."""
    if (
        not isinstance(value, int | float)
        or isinstance(value, bool)
        or not 0 <= value < inf
        or (above_zero and not value)
    ):
        least = "more than 0" if above_zero else "0 or more"
        raise InvalidSettingError(f"{name} is {value!r}: {least} seconds are expected")


def check_type(name: str, value: object, *kinds: type) -> None:
    """Raises InvalidSettingError when `value` has another type."""
    if not isinstance(value, kinds):
        wanted = " or ".join(kind.__name__ for kind in kinds)
        raise InvalidSettingError(f"{name} is {value!r}: {wanted} is expected")


def check_queue(queue: MessageQueue, topic: str | None = None) -> None:
    """Raises InvalidSettingError when `queue` is not a valid queue, or belongs to another topic
    than `topic`."""
    check_type("queue", queue, MessageQueue)
    if queue.queue_id < 0 or not queue.broker_name:
        raise InvalidSettingError(f"{queue} is not a valid queue")
    if topic is not None and queue.topic != topic:
        raise InvalidSettingError(f"{queue} is not a queue of the message's topic {topic}")


def check_message(message: Message, body_max: int) -> None:
    """Raises InvalidNameError when the message's topic is invalid, InvalidMessageError when
    another field is."""
    if not isinstance(message, Message):
        raise InvalidMessageError(f"cannot send a {type(message).__name__}: a Message is expected")
    check_topic(message.topic)
    if message.topic in WRITTEN_BY_BROKERS:
        raise InvalidNameError(f"only brokers write to topic {message.topic!r}")
    body = message.body
    if not isinstance(body, _BUFFERS):
        raise InvalidMessageError(f"message body of type {type(body).__name__}: bytes are expected")
    if not body:
        raise InvalidMessageError(f"message of topic {message.topic} has an empty body")
    if len(body) > body_max:
        raise InvalidMessageError(
            f"message body of {len(body)} bytes: at most {body_max} are allowed"
        )
    if message.tags is not None and not isinstance(message.tags, str):
        raise InvalidMessageError(f"tags {message.tags!r}: text is expected")
    if message.keys is not None and not isinstance(message.keys, str):
        raise InvalidMessageError(
            f"keys {message.keys!r}: text with keys separated by spaces is expected"
        )
    level, flag, due_ms = message.delay_level, message.flag, message.deliver_ms
    if not isinstance(level, int) or not 0 <= level <= INT32_MAX:
        raise InvalidMessageError(f"delay level {level!r}: 0 to {INT32_MAX} is expected")
    if not isinstance(due_ms, int) or due_ms < 0:
        raise InvalidMessageError(f"deliver_ms {due_ms!r}: a time in ms since 1970 is expected")
    priority = message.priority
    if priority is not None and not (isinstance(priority, int) and 0 <= priority <= INT32_MAX):
        raise InvalidMessageError(f"priority {priority!r}: 0 to {INT32_MAX} is expected")
    if not isinstance(flag, int) or not ~INT32_MAX <= flag <= INT32_MAX:
        raise InvalidMessageError(f"flag {flag!r}: a 32-bit number is expected")
    if not isinstance(message.wait, bool):
        raise InvalidMessageError(f"wait is {message.wait!r}: True or False is expected")
    if not isinstance(message.properties, dict):
        raise InvalidMessageError(f"properties {message.properties!r}: a dict is expected")
    for name, value in message.properties.items():
        _check_property(name, value)


def checked_batch(messages: Iterable[Message], body_max: int) -> list[Message]:
    """The messages of a batch as a list (RocketMQ: MessageBatch).

    Raises InvalidNameError when a topic's name is invalid, InvalidMessageError when a message is
    invalid or does not fit into the batch.
    """
    if not isinstance(messages, Iterable):
        raise InvalidMessageError(f"a batch of type {type(messages).__name__}: a list is expected")
    messages = list(messages)
    if not messages:
        raise InvalidMessageError("a batch without messages")
    first = messages[0]
    for message in messages:
        check_message(message, body_max)
    for message in messages:
        if message.topic != first.topic:
            raise InvalidMessageError(
                f"a batch holds one topic, not {first.topic} and {message.topic}"
            )
        if message.wait != first.wait:
            raise InvalidMessageError("all messages of a batch must have the same `wait`")
        if message.delay_level or message.deliver_ms:
            raise InvalidMessageError(
                f"delay level {message.delay_level}, delivery at {message.deliver_ms}:"
                " a batch cannot be delayed"
            )
        if message.priority is not None:
            raise InvalidMessageError(
                f"priority {message.priority}: a batch goes to one queue, send its messages singly"
            )
    if first.topic.startswith(RETRY_PREFIX):
        raise InvalidMessageError(f"a batch cannot go to the retry topic {first.topic}")
    return messages


def _check_name(kind: str, name: Any, longest: int) -> None:
    if not isinstance(name, str):
        raise InvalidNameError(f"{kind} name {name!r}: text is expected")
    if not name.strip():
        raise InvalidNameError(f"the {kind} has a blank name")
    if len(name) > longest:
        raise InvalidNameError(
            f"{kind} name of {len(name)} characters: at most {longest} are allowed"
        )
    if not ALLOWED_NAME.fullmatch(name):
        raise InvalidNameError(f"{kind} {name!r}: only % | a-z A-Z 0-9 _ - are allowed")


def _check_property(name: Any, value: Any) -> None:
    if not isinstance(name, str) or not isinstance(value, str):
        raise InvalidMessageError(f"property {name!r}={value!r}: both must be text")
    if name in RESERVED_PROPERTIES:
        raise InvalidMessageError(f"property {name!r} is reserved: use another name")
    if not name.strip() or not value.strip():
        raise InvalidMessageError(f"property {name!r}={value!r}: neither may be blank")
