"""Parking of messages that are to be delivered later (RocketMQ: CommitLog, 5.x: HookUtils)."""

import re

import msgspec

from congreve.broker.errors import RefusedError
from congreve.broker.topics import SCHEDULE_TOPIC, TIMER_TOPIC
from congreve.engine.config import StoreConfig
from congreve.records import properties
from congreve.records.message import Record
from congreve.remoting.codes import ResponseCode

# Of these the first one that is there counts: its unit in ms, and whether it counts from now on.
_TIMES = (
    (properties.TIMER_DELAY_SEC, 1_000, True),
    (properties.TIMER_DELAY_MS, 1, True),
    (properties.TIMER_DELIVER_MS, 1, False),
)
_TIMER_NAMES = frozenset(
    (*(name for name, _, _ in _TIMES), properties.TIMER_OUT_MS, properties.TIMER_DEL_UNIQUE_KEY)
)
_NUMBER = re.compile(r"[+-]?[0-9]{1,18}")


def delay_level(record: Record) -> int:
    """The wanted level; 0 (deliver now) where it is absent or no number."""
    text = record.properties.get(properties.DELAY, "")
    return int(text) if text.isdecimal() else 0


def park(record: Record, config: StoreConfig, now_ms: int) -> Record:
    """`record` itself where it is due, else how it is kept until then.

    A delay level goes before a deliver time. RefusedError for a time that cannot be.
    """
    if delay_level(record) > 0 or _TIMER_NAMES.isdisjoint(record.properties):
        return park_for_level(_without_times(record), config)
    due = _deliver_time(record, config, now_ms)
    if due <= now_ms:
        return _without_times(record)
    return _parked(record, TIMER_TOPIC, 0, {**record.properties, properties.TIMER_OUT_MS: str(due)})


def park_for_level(record: Record, config: StoreConfig) -> Record:
    """As park(), for delay levels alone.

    Queue n - 1 of the schedule topic holds level n; the real target stands in properties. The
    store gives the entry its delivery time.
    """
    level = min(delay_level(record), len(config.delay_levels_ms))
    if level <= 0:
        return record
    return _parked(
        record, SCHEDULE_TOPIC, level - 1, {**record.properties, properties.DELAY: str(level)}
    )


def _parked(record: Record, topic: str, queue_id: int, kept: dict[str, str]) -> Record:
    target = {
        properties.REAL_TOPIC: record.topic,
        properties.REAL_QUEUE_ID: str(record.queue_id),
    }
    return msgspec.structs.replace(record, topic=topic, queue_id=queue_id, properties=kept | target)


def _without_times(record: Record) -> Record:
    # Whoever sends a delivered message on, with its properties, does not mean them.
    if _TIMER_NAMES.isdisjoint(record.properties):
        return record
    kept = {name: text for name, text in record.properties.items() if name not in _TIMER_NAMES}
    return msgspec.structs.replace(record, properties=kept)


def _deliver_time(record: Record, config: StoreConfig, now_ms: int) -> int:
    """When it is due, ms since 1970."""
    found = record.properties
    if properties.TIMER_DEL_UNIQUE_KEY in found:
        raise RefusedError(
            ResponseCode.MESSAGE_ILLEGAL,
            f"timer message illegal: {properties.TIMER_DEL_UNIQUE_KEY} (taking a timed message"
            " back) is not served",
        )
    name, unit_ms, counts_from_now = next(
        (time for time in _TIMES if time[0] in found), ("", 0, False)
    )
    if not name:
        return now_ms  # TIMER_OUT_MS alone is the broker's, and says nothing here
    if not config.timer_wheel_enable:
        raise RefusedError(
            ResponseCode.SYSTEM_ERROR,
            "accurate timer message is not enabled, timerWheelEnable is false",
        )
    if not _NUMBER.fullmatch(found[name]):
        raise RefusedError(
            ResponseCode.MESSAGE_ILLEGAL,
            f"timer message illegal: {name}={found[name]!r} is no number of ms or s",
        )
    due = int(found[name]) * unit_ms + (now_ms if counts_from_now else 0)
    limit_ms = config.timer_max_delay_sec * 1_000
    if due - now_ms > limit_ms:
        raise RefusedError(
            ResponseCode.MESSAGE_ILLEGAL,
            "timer message illegal, the delay time should not be bigger than the max delay"
            f" {limit_ms}ms (timerMaxDelaySec): {name}={found[name]}",
        )
    return due
