"""The handle of a message that a broker has handed out (RocketMQ 5: ExtraInfoUtil, POP_CK)."""

from enum import IntEnum
from typing import NamedTuple, Self

from congreve.base.numbers import java_integer
from congreve.records.errors import RecordError
from congreve.records.message.topics import (
    RETRY_PREFIX,
    is_pop_retry_topic_v2,
    pop_retry_topic,
    pop_retry_topic_v2,
    stored_pop_retry_topic,
)

ORDERED_REVIVE_QUEUE_ID = 999
"""In handles of ordered pops (RocketMQ 5: KeyBuilder.POP_ORDER_REVIVE_QUEUE)."""

_SEPARATOR = " "


class PoppedFrom(IntEnum):
    """Which topic a message was popped from: the one asked for, or its group's retry topic under
    the first or second form of its name."""

    TOPIC = 0
    RETRY_TOPIC = 1
    RETRY_TOPIC_V2 = 2

    @classmethod
    def of(cls, topic: str) -> Self:
        """The kind of a topic by its name."""
        if is_pop_retry_topic_v2(topic):
            return cls(cls.RETRY_TOPIC_V2)
        return cls(cls.RETRY_TOPIC if topic.startswith(RETRY_PREFIX) else cls.TOPIC)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read one digit of a handle or an offset text. Raises RecordError."""
        if text not in _KINDS:
            raise RecordError(f"the kind of a popped topic is {text[:20]!r} instead of 0, 1 or 2")
        return cls(int(text))

    def topic(self, group: str, topic: str) -> str:
        """The real topic of what `group` popped from `topic`, as clients name it."""
        if self is PoppedFrom.TOPIC:
            return topic
        name = pop_retry_topic if self is PoppedFrom.RETRY_TOPIC else pop_retry_topic_v2
        return name(group, topic)

    def stored_topic(self, group: str, topic: str) -> str:
        """The same, as the broker names it."""
        if self is PoppedFrom.RETRY_TOPIC:
            return stored_pop_retry_topic(group, topic)
        return self.topic(group, topic)


_KINDS = frozenset(str(kind.value) for kind in PoppedFrom)


class PopHandle(NamedTuple):
    """A message at `offset` of a queue, out since `pop_ms` (ms since 1970) for `invisible_ms`.

    `start_offset` is the first offset that the same pop took from the queue. `revive_queue_id` is
    the broker's own; ORDERED_REVIVE_QUEUE_ID marks ordered pops.
    """

    start_offset: int
    pop_ms: int
    invisible_ms: int
    revive_queue_id: int
    kind: PoppedFrom
    broker_name: str
    queue_id: int
    offset: int

    def encode(self) -> str:
        """The text that clients keep, in POP_CK and `extraInfo`."""
        return _SEPARATOR.join(part if isinstance(part, str) else str(int(part)) for part in self)

    @classmethod
    def decode(cls, text: str) -> Self:
        """Raises RecordError for a text that is not a handle."""
        parts = text.split(_SEPARATOR)
        if len(parts) < len(cls._fields):
            raise RecordError(
                f"the handle {text[:200]!r} has {len(parts)} parts instead of {len(cls._fields)}"
            )
        start, pop, invisible, revive, kind, broker, queue, offset = parts[: len(cls._fields)]
        return cls(
            number(start, 64),
            number(pop, 64),
            number(invisible, 64),
            number(revive),
            PoppedFrom.parse(kind),
            broker,
            number(queue),
            number(offset, 64),
        )


def number(text: str, bits: int = 32) -> int:
    """A number of a handle or an offset text. Raises RecordError."""
    value = java_integer(text, bits)
    if value is None:
        raise RecordError(f"{text[:40]!r} in a handle or an offset text is not a number")
    return value
