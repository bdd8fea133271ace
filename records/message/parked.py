"""Parked messages, which wait under a system topic: their form, and when they are due.

records.restore turns such a record back into the original message.
"""

from collections.abc import Mapping

import msgspec

from congreve.records.message.message import Record
from congreve.records.message.properties import (
    DELAY,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TIMER_OUT_MS,
    natural,
)
from congreve.records.message.topics import SCHEDULE_TOPIC, TIMER_TOPIC


def parked(record: Record, topic: str, queue_id: int, properties: dict[str, str]) -> Record:
    """`record` under a system topic, with its real topic and queue id added to `properties`."""
    target = {REAL_TOPIC: record.topic, REAL_QUEUE_ID: str(record.queue_id)}
    return msgspec.structs.replace(
        record, topic=topic, queue_id=queue_id, properties=properties | target
    )


class ParkingRule(msgspec.Struct, frozen=True, array_like=True):
    """The settings at the time of parking that the queue entries of parked messages depend on."""

    delays_ms: tuple[int, ...]  # level 1 first
    timer_roll_ms: int

    def level_due(self, level: int, stored_ms: int) -> int:
        """The due time of a message of this delay level, in ms; `level` is 1 or more."""
        return stored_ms + self.delays_ms[min(level, len(self.delays_ms)) - 1]

    def timer_wake(self, due_ms: int, stored_ms: int) -> int:
        """When to process a timed message, in ms: when it is due, or must be written again."""
        return min(due_ms, stored_ms + self.timer_roll_ms)

    def entry_time(self, topic: str, properties: Mapping[str, str], stored_ms: int) -> int | None:
        """The tags code of a parked message's entry (RocketMQ: computeDeliverTimestamp).

        None if the entry has the hash of its tag, as entries of other topics.
        """
        if topic == TIMER_TOPIC:
            return self.timer_wake(natural(properties.get(TIMER_OUT_MS, "")) or 0, stored_ms)
        level = natural(properties.get(DELAY, ""))
        if topic != SCHEDULE_TOPIC or not level:
            return None
        return self.level_due(level, stored_ms)
