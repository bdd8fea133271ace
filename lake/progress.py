"""Up to which messages a table has the queues of brokers: properties of each snapshot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeVar

import msgspec

from congreve.lake.errors import ProgressError

PROPERTY = "congreve.end-offsets"
"""The snapshot property: JSON, for each broker's name and queue id the offset after the last
message in the table."""
LAST_MESSAGES = "congreve.last-messages"
"""The snapshot property: JSON, for each broker's name what names the last messages themselves.
Earlier versions do not write it."""

EndOffsets = dict[str, dict[int, int]]
"""By broker name and queue id: the offset after the last message in the table."""

T = TypeVar("T")


class LastMessage(NamedTuple):
    """The last message of a queue in the table."""

    place: int
    """Its place in the log of the store that exported it."""
    fingerprint: int
    """That of congreve.records.columns.same_message."""


class LastMessages(msgspec.Struct):
    """The last messages of a broker's queues, by queue id."""

    store: str
    """The id of the store that exported them; empty if it had none."""
    queues: dict[int, LastMessage]


OfBrokers = dict[str, LastMessages]
"""The last messages by broker name."""


class Progress(NamedTuple):
    """What a table has."""

    ends: EndOffsets
    last: OfBrokers


def to_properties(progress: Progress) -> dict[str, str]:
    """The properties of a snapshot with this progress."""
    return {
        PROPERTY: msgspec.json.encode(progress.ends).decode(),
        LAST_MESSAGES: msgspec.json.encode(progress.last).decode(),
    }


def newest(summaries: Iterable[Mapping[str, str]]) -> Progress | None:
    """The progress of the first snapshot that has one; snapshots come newest first.

    Snapshots of other programs, such as one that merges files, have none. Returns None if no
    snapshot has one. Raises ProgressError when a property is invalid.
    """
    for summary in summaries:
        if PROPERTY in summary:
            ends = _decoded(summary, PROPERTY, EndOffsets)
            return Progress(ends, _decoded(summary, LAST_MESSAGES, OfBrokers))
    return None


def advanced(ends: EndOffsets, broker: str, moved: Mapping[int, int]) -> EndOffsets:
    """A copy of `ends` with the new end offsets of some queues of a broker."""
    return {**ends, broker: {**ends.get(broker, {}), **moved}}


def _decoded(summary: Mapping[str, str], name: str, kind: type[T]) -> T:
    text = summary.get(name, "{}")
    try:
        return msgspec.json.decode(text, type=kind, strict=False)
    except msgspec.MsgspecError as error:
        raise ProgressError(f"the snapshot property {name} is {text!r}: {error}") from error
