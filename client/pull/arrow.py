"""Collects pulls into Arrow record batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from congreve.client.message import MessageQueue
from congreve.client.namespace import unwrap
from congreve.client.pull.process_queue import ProcessQueue
from congreve.client.received import PulledRecords
from congreve.client.subscription import Subscription
from congreve.records.columns.arrow import TYPES, repeated, schema, to_batch
from congreve.records.columns.builder import RecordColumns

if TYPE_CHECKING:
    import pyarrow as pa

_OF_BROKER = ("topic", "brokerName")


class ArrowBatches:
    """Collects pulls of one topic and broker up to `max_rows` rows.

    `subscriptions` hold the wanted tags by topic. Raises RecordError when a column is unknown.
    """

    def __init__(
        self,
        columns: Iterable[str] | None,
        max_rows: int,
        subscriptions: Mapping[str, Subscription],
        namespace: str | None = None,
    ) -> None:
        self._schema = schema(TYPES if columns is None else columns)
        names = [name for name in self._schema.names if name not in _OF_BROKER]
        self._columns = {
            topic: RecordColumns(names, tags=each.tags) for topic, each in subscriptions.items()
        }
        self._max_rows = max_rows
        self._namespace = namespace
        self._queue: MessageQueue | None = None
        self._rows = 0

    def take_from(
        self, pulls: Iterator[tuple[ProcessQueue, PulledRecords]]
    ) -> list[tuple[ProcessQueue, PulledRecords]]:
        """Take pulls as long as they fit; returns those taken."""
        taken: list[tuple[ProcessQueue, PulledRecords]] = []
        self._rows = 0
        for process_queue, records in pulls:
            queue = process_queue.queue
            if taken and (not self._fits(queue) or self._rows + len(records) > self._max_rows):
                break
            self._queue = queue
            columns = self._columns[queue.topic]
            columns.add_records(records.body)
            self._rows = columns.rows
            taken.append((process_queue, records))
        return taken

    def _fits(self, queue: MessageQueue) -> bool:
        last = self._queue
        return (
            last is not None and last.topic == queue.topic and last.broker_name == queue.broker_name
        )

    def batch(self) -> pa.RecordBatch:
        """A record batch of the pulls taken."""
        queue = self._queue
        assert queue is not None
        columns: dict[str, object] = dict(self._columns[queue.topic].take())
        topic = unwrap(self._namespace, queue.topic)
        for name, value in zip(_OF_BROKER, (topic, queue.broker_name), strict=True):
            if name in self._schema.names:
                columns[name] = repeated(value, TYPES[name], self._rows)
        return to_batch(columns, self._schema, self._rows)
