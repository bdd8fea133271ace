"""Parking of delayed messages (RocketMQ: CommitLog and ScheduleMessageService)."""

import msgspec

from congreve.broker.topics import SCHEDULE_TOPIC
from congreve.records import properties
from congreve.records.message import Record


def delay_level(record: Record) -> int:
    """The wanted level; 0 (deliver now) where it is absent or no number."""
    text = record.properties.get(properties.DELAY, "")
    return int(text) if text.isdecimal() else 0


def park(record: Record, highest_level: int) -> Record:
    """`record` itself where it has no delay, else how it is kept until it is due.

    Queue n - 1 of the schedule topic holds level n; the real target stands in properties. The
    store gives the entry its delivery time.
    """
    level = min(delay_level(record), highest_level)
    if level <= 0:
        return record
    return msgspec.structs.replace(
        record,
        topic=SCHEDULE_TOPIC,
        queue_id=level - 1,
        properties={
            **record.properties,
            properties.DELAY: str(level),
            properties.REAL_TOPIC: record.topic,
            properties.REAL_QUEUE_ID: str(record.queue_id),
        },
    )
