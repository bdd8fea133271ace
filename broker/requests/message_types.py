"""Which messages a topic takes from gRPC clients (RocketMQ 5: TopicMessageType,
DefaultTopicMessageTypeValidator)."""

import enum
from collections.abc import Mapping

from congreve.broker.metadata.attributes import MESSAGE_TYPE
from congreve.records.message import properties
from congreve.records.message.topics import DLQ_PREFIX, RETRY_PREFIX
from congreve.remoting.messages.bodies import TopicConfig


class MessageType(enum.Enum):
    """A kind of message, and what the attribute message.type of a topic says."""

    UNSPECIFIED = enum.auto()
    NORMAL = enum.auto()
    FIFO = enum.auto()
    DELAY = enum.auto()
    TRANSACTION = enum.auto()
    MIXED = enum.auto()
    LITE = enum.auto()
    PRIORITY = enum.auto()


_DELAYS = {
    properties.DELAY,
    properties.TIMER_DELIVER_MS,
    properties.TIMER_DELAY_MS,
    properties.TIMER_DELAY_SEC,
}


def topic_type(config: TopicConfig) -> MessageType:
    """The type of a topic's messages; a topic of RocketMQ 4 has NORMAL ones."""
    named = (config.attributes or {}).get(MESSAGE_TYPE, MessageType.NORMAL.name)
    return MessageType.__members__.get(named, MessageType.UNSPECIFIED)


def type_of(stored: Mapping[str, str]) -> MessageType:
    """The type of a message, by its properties."""
    if stored.get(properties.TRANSACTION_PREPARED) == "true":
        return MessageType.TRANSACTION
    if not _DELAYS.isdisjoint(stored):
        return MessageType.DELAY
    if properties.SHARDING_KEY in stored:
        return MessageType.FIFO
    if properties.PRIORITY in stored:
        return MessageType.PRIORITY
    return MessageType.LITE if properties.LITE_TOPIC in stored else MessageType.NORMAL


def type_fault(config: TopicConfig, sent: MessageType) -> str | None:
    """Why a topic does not take messages of this type, or None."""
    expected = topic_type(config)
    if expected in (MessageType.MIXED, sent):
        return None
    if config.topic_name.startswith((RETRY_PREFIX, DLQ_PREFIX)):
        return None
    return (
        f"TopicMessageType validate failed, the expected type is {expected.name}, but actual type"
        f" is {sent.name}"
    )
