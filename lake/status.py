"""The content of a table, and how far it is behind a store."""

from __future__ import annotations

from dataclasses import dataclass

from congreve.lake.durable import DurableTopic
from congreve.lake.table import BINARY, TopicTable


@dataclass(frozen=True)
class TableStatus:
    """Messages, files, their bytes and snapshots; the last commit in ms since 1970, 0 without one.

    `dead_letters` is the number of messages whose bodies do not fit, which are in a table of their
    own, None if the table has no columns of bodies.
    `behind` is the number of a store's messages that are not in the table, None without a store;
    `oldest_ms` is the store time of the oldest of them, None if there is none.
    """

    messages: int
    files: int
    bytes: int
    snapshots: int
    committed_ms: int
    behind: int | None
    oldest_ms: int | None = None
    dead_letters: int | None = None


def status_of(table: TopicTable, topic: DurableTopic | None = None) -> TableStatus:
    """The status of a table, beside a topic's store if that is given.

    Raises TableError, and what DurableTopic.queues() raises.
    """
    totals: dict[str, str] = {}
    snapshots = committed = 0
    ends: dict[int, int] = {}
    dead_letters: int | None = None
    if table.load():
        totals, committed = _totals(table)
        if table.body_format != BINARY:
            dead = table.dead_letters()
            dead_letters = 0 if dead is None else int(_totals(dead)[0].get("total-records", 0))
        snapshots = len(table.iceberg.snapshots())
        ends = table.progress().get(topic.broker, {}) if topic is not None else {}
    behind = oldest = None
    if topic is not None:
        # The table was read first, so that it is never ahead of the queues.
        queues = [
            (queue, ends.get(queue.queue_id, queue.file.min_offset)) for queue in topic.queues()
        ]
        behind = sum(queue.file.max_offset - end for queue, end in queues)
        # The first messages that the table lacks may have expired.
        times = [
            topic.store_time_ms(queue, max(end, queue.file.min_offset))
            for queue, end in queues
            if max(end, queue.file.min_offset) < queue.file.max_offset
        ]
        oldest = min(times, default=None)
    return TableStatus(
        messages=int(totals.get("total-records", 0)),
        files=int(totals.get("total-data-files", 0)),
        bytes=int(totals.get("total-files-size", 0)),
        snapshots=snapshots,
        committed_ms=committed,
        behind=behind,
        oldest_ms=oldest,
        dead_letters=dead_letters,
    )


def _totals(table: TopicTable) -> tuple[dict[str, str], int]:
    """The totals of the current snapshot, and its time in ms since 1970."""
    current = table.iceberg.current_snapshot()
    if current is None or current.summary is None:
        return {}, 0
    return current.summary.additional_properties, current.timestamp_ms
