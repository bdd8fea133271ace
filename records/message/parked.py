"""Messages that wait under a topic of the broker's own: what they look like, and until when.

records.restore turns such a record back into what was sent.
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
    """`record` with these properties under another topic; its own is in the properties then."""
    target = {REAL_TOPIC: record.topic, REAL_QUEUE_ID: str(record.queue_id)}
    return msgspec.structs.replace(
        record, topic=topic, queue_id=queue_id, properties=properties | target
    )


class ParkingRule(msgspec.Struct, frozen=True, array_like=True):
    """Settings that the queue entries of parked messages depend on, as they were at that time."""

    delays_ms: tuple[int, ...]  # level 1 first
    timer_roll_ms: int

    def level_due(self, level: int, stored_ms: int) -> int:
        """When a message of this delay level is due; `level` is 1 or more."""
        return stored_ms + self.delays_ms[min(level, len(self.delays_ms)) - 1]

    def timer_wake(self, due_ms: int, stored_ms: int) -> int:
        """When to look at a message with a deliver time: when it is due, or must be rewritten."""
        return min(due_ms, stored_ms + self.timer_roll_ms)

    def entry_time(self, topic: str, properties: Mapping[str, str], stored_ms: int) -> int | None:
        """The tags code of a parked message's entry (RocketMQ: computeDeliverTimestamp).

        None where the entry has the hash of its tag, as others have.
        """
        if topic == TIMER_TOPIC:
            return self.timer_wake(natural(properties.get(TIMER_OUT_MS, "")) or 0, stored_ms)
        level = natural(properties.get(DELAY, ""))
        if topic != SCHEDULE_TOPIC or not level:
            return None
        return self.level_due(level, stored_ms)
