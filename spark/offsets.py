"""Offsets where a read begins and ends, in the JSON form of rocketmq-spark.

``{"topic": {"broker": {"0": 17}}}``; -2 is the earliest, -1 the latest offset of a queue.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from congreve.spark.errors import OptionError

EARLIEST_OFFSET = -2
LATEST_OFFSET = -1
LAST = "#last"
"""The key of fingerprints in a checkpoint: no topic has such a name."""


class Queue(NamedTuple):
    """One queue of a topic on one broker."""

    topic: str
    broker: str
    queue_id: int

    def __str__(self) -> str:
        return f"queue {self.queue_id} of topic {self.topic} on {self.broker}"


class Range(NamedTuple):
    """Offsets [start, stop) of a queue."""

    queue: Queue
    start: int
    stop: int


Offsets = dict[Queue, int]


@dataclass(frozen=True)
class Position:
    """One end of a read: at most one field is set, none for `earliest` and `latest`.

    `option` names the option that gave it, for error messages.
    """

    offsets: Offsets | None = None
    timestamp_ms: int | None = None
    timestamps: dict[Queue, int] | None = None
    option: str = ""


EARLIEST = Position(option="earliest")
LATEST = Position(option="latest")


def parse_offsets(name: str, value: Any) -> Offsets:
    """Parse offsets from JSON. Raises OptionError when it is malformed."""
    return dict(_leaves(name, value, EARLIEST_OFFSET, "an offset, -1 (latest) or -2 (earliest)"))


def parse_timestamps(name: str, value: Any) -> dict[Queue, int]:
    """Parse milliseconds from JSON of the same form. Raises OptionError when it is malformed."""
    return dict(_leaves(name, value, 0, "milliseconds since 1970"))


def to_json(offsets: Mapping[Queue, int]) -> dict[str, dict[str, dict[str, int]]]:
    """The form that Spark keeps in its checkpoint."""
    found: dict[str, dict[str, dict[str, int]]] = {}
    for queue, offset in sorted(offsets.items()):
        brokers = found.setdefault(queue.topic, {})
        brokers.setdefault(queue.broker, {})[str(queue.queue_id)] = offset
    return found


def from_json(value: Any) -> Offsets:
    """Parse the output of to_json() or with_last(). Raises OptionError when the checkpoint is of
    another source."""
    if isinstance(value, dict):
        value = {topic: brokers for topic, brokers in value.items() if topic != LAST}
    return parse_offsets("offset of the checkpoint", value)


def with_last(offsets: Offsets, last: Mapping[Queue, int]) -> dict[str, Any]:
    """to_json(), with the fingerprints of the messages before these offsets."""
    found: dict[str, Any] = dict(to_json(offsets))
    return {**found, LAST: to_json(last)} if last else found


def last_of(value: dict[str, Any]) -> dict[Queue, int]:
    """The fingerprints in the output of with_last(); an earlier version wrote none."""
    return dict(_leaves("messages of the checkpoint", value.get(LAST, {}), 0, "a fingerprint"))


def _leaves(name: str, value: Any, least: int, what: str) -> Iterator[tuple[Queue, int]]:
    try:
        for topic, brokers in value.items():
            for broker, queues in brokers.items():
                for queue_id, number in queues.items():
                    if isinstance(number, bool) or int(number) < least:
                        raise ValueError
                    yield Queue(str(topic), str(broker), int(queue_id)), int(number)
    except (AttributeError, TypeError, ValueError) as error:
        raise OptionError(
            f'option {name} is {value!r}: write {{"topic": {{"broker": {{"0": N}}}}}}, '
            f"N being {what}"
        ) from error
