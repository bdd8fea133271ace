"""What is in a table, and how far it is behind a store."""

from __future__ import annotations

from dataclasses import dataclass

from congreve.lake.durable import DurableTopic
from congreve.lake.table import TopicTable


@dataclass(frozen=True)
class TableStatus:
    """Messages, files, their bytes and snapshots; the last commit in ms since 1970, 0 without one.

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


def status_of(table: TopicTable, topic: DurableTopic | None = None) -> TableStatus:
    """The status of a table, beside a topic's store if that is given.

    Raises TableError, and what DurableTopic.queues() raises.
    """
    totals: dict[str, str] = {}
    snapshots = committed = 0
    ends: dict[int, int] = {}
    if table.load():
        current = table.iceberg.current_snapshot()
        if current is not None and current.summary is not None:
            totals, committed = current.summary.additional_properties, current.timestamp_ms
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
    )
