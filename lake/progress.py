"""The offsets up to which a table has the queues of brokers: a property of each snapshot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from congreve.lake.errors import ProgressError

PROPERTY = "congreve.end-offsets"
"""The snapshot property: JSON, for each broker's name and queue id the offset after the last
message in the table."""

EndOffsets = dict[str, dict[int, int]]
"""By broker name and queue id: the offset after the last message in the table."""


def to_property(ends: EndOffsets) -> dict[str, str]:
    """The properties of a snapshot with this progress."""
    return {PROPERTY: msgspec.json.encode(ends).decode()}


def newest(summaries: Iterable[Mapping[str, str]]) -> EndOffsets | None:
    """The progress of the first snapshot that has one; snapshots come newest first.

    Snapshots of other programs, such as one that merges files, have none. Returns None if no
    snapshot has one. Raises ProgressError when the property is invalid.
    """
    for summary in summaries:
        text = summary.get(PROPERTY)
        if text is not None:
            try:
                return msgspec.json.decode(text, type=EndOffsets, strict=False)
            except msgspec.MsgspecError as error:
                raise ProgressError(
                    f"the snapshot property {PROPERTY} is {text!r}: {error}"
                ) from error
    return None


def advanced(ends: EndOffsets, broker: str, moved: Mapping[int, int]) -> EndOffsets:
    """A copy of `ends` with the new end offsets of some queues of a broker."""
    return {**ends, broker: {**ends.get(broker, {}), **moved}}
