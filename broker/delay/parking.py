"""Parking of delayed messages (RocketMQ: CommitLog, 5.x: HookUtils)."""

import msgspec

from congreve.base.numbers import java_integer
from congreve.broker.errors import RefusedError
from congreve.engine.config import StoreConfig
from congreve.records.message import properties
from congreve.records.message.message import Record
from congreve.records.message.parked import parked
from congreve.records.message.topics import SCHEDULE_TOPIC, TIMER_QUEUE_ID, TIMER_TOPIC
from congreve.remoting.messages.codes import ResponseCode

# The first of these in a message is used: its unit in ms, and whether it is relative to now.
_TIMES = (
    (properties.TIMER_DELAY_SEC, 1_000, True),
    (properties.TIMER_DELAY_MS, 1, True),
    (properties.TIMER_DELIVER_MS, 1, False),
)
_TIMER_NAMES = frozenset(
    (*(name for name, _, _ in _TIMES), properties.TIMER_OUT_MS, properties.TIMER_DEL_UNIQUE_KEY)
)


def delay_level(record: Record) -> int:
    """The delay level; 0 or less is to deliver now.

    Raises RefusedError for one that is not a number (RocketMQ: Message.getDelayTimeLevel throws).
    """
    text = record.properties.get(properties.DELAY)
    level = 0 if text is None else java_integer(text)
    if level is None:
        raise RefusedError(
            ResponseCode.SYSTEM_ERROR,
            f"{properties.DELAY}={text!r:.60} is not a delay level: use a number from 1, or none",
        )
    return level


def park(record: Record, config: StoreConfig, now_ms: int) -> Record:
    """The parked form of `record`, or the record itself when it is due now.

    A delay level takes precedence over a delivery time. Raises RefusedError for a level or time
    that is malformed or too far ahead, and for any time if timerWheelEnable is false.
    """
    if delay_level(record) > 0 or _TIMER_NAMES.isdisjoint(record.properties):
        # A client that forwards a delivered message with its properties asks for no time.
        return park_for_level(without_times(record), config)
    due = _deliver_time(record, config, now_ms)
    if due is None:
        return without_times(record)
    if due > now_ms:
        timed = {**record.properties, properties.TIMER_OUT_MS: str(due)}
        return parked(record, TIMER_TOPIC, TIMER_QUEUE_ID, timed)
    plain = without_times(record)
    was_due = {**plain.properties, properties.TIMER_OUT_MS: str(max(due, 0))}
    return msgspec.structs.replace(plain, properties=was_due)


def park_for_level(record: Record, config: StoreConfig) -> Record:
    """As park(), for delay levels only.

    Queue n - 1 of the schedule topic holds level n; properties have the real target. The store
    writes the delivery time into the queue's entry.
    """
    level = min(delay_level(record), len(config.delay_levels_ms))
    if level <= 0:
        return record
    return parked(
        record, SCHEDULE_TOPIC, level - 1, {**record.properties, properties.DELAY: str(level)}
    )


def without_times(record: Record) -> Record:
    """The message without a delivery time of its sender or of a broker."""
    if _TIMER_NAMES.isdisjoint(record.properties):
        return record
    kept = {name: text for name, text in record.properties.items() if name not in _TIMER_NAMES}
    return msgspec.structs.replace(record, properties=kept)


def _deliver_time(record: Record, config: StoreConfig, now_ms: int) -> int | None:
    """The delivery time in ms since 1970; None for a message whose sender named none."""
    found = record.properties
    name, unit_ms, counts_from_now = next(
        (time for time in _TIMES if time[0] in found), ("", 0, False)
    )
    if not name:
        return None  # TIMER_OUT_MS alone is set by a broker and has no effect
    if not config.timer_wheel_enable:
        raise RefusedError(
            ResponseCode.SYSTEM_ERROR,
            "accurate timer message is not enabled, timerWheelEnable is false",
        )
    number = java_integer(found[name], bits=64)
    if number is None:
        raise RefusedError(
            ResponseCode.MESSAGE_ILLEGAL,
            f"timer message illegal: {name}={found[name]!r} is not a number of ms or s",
        )
    due = number * unit_ms + (now_ms if counts_from_now else 0)
    limit_ms = config.timer_max_delay_sec * 1_000
    if due - now_ms > limit_ms:
        raise RefusedError(
            ResponseCode.MESSAGE_ILLEGAL,
            "timer message illegal, the delay time should not be bigger than the max delay"
            f" {limit_ms}ms (timerMaxDelaySec): {name}={found[name]}",
        )
    return due
