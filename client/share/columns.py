"""Popped messages as an Arrow record batch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from congreve.client.namespace import unwrap
from congreve.client.receipt import Receipt
from congreve.client.received import PulledRecords
from congreve.client.share.popping import Popped
from congreve.client.subscription import Subscription

if TYPE_CHECKING:
    import pyarrow as pa

_OF_BROKER = ("topic", "brokerName")


class ReceivedColumns(msgspec.Struct, frozen=True):
    """Messages of one topic and broker as a record batch, and what settles them together."""

    batch: pa.RecordBatch
    receipts: list[Receipt]

    def __len__(self) -> int:
        return int(self.batch.num_rows)


def to_columns(
    taken: Sequence[Popped],
    columns: Iterable[str] | None,
    subscription: Subscription,
    namespace: str | None,
) -> ReceivedColumns:
    """A batch of pops of one queue. Raises RecordError when a column is unknown or a record is
    damaged."""
    from congreve.records.columns.arrow import TYPES, repeated, schema, to_batch
    from congreve.records.columns.builder import RecordColumns

    wanted = schema(TYPES if columns is None else columns)
    names = [name for name in wanted.names if name not in _OF_BROKER]
    builder = RecordColumns(names, tags=subscription.tags)
    for popped in taken:
        # This checks the CRCs.
        builder.add_records(PulledRecords(popped.body).body)
    rows = builder.rows
    found: dict[str, object] = dict(builder.take())
    queue = taken[0].queue
    topic = unwrap(namespace, queue.topic)
    for name, value in zip(_OF_BROKER, (topic, queue.broker_name), strict=True):
        if name in wanted.names:
            found[name] = repeated(value, TYPES[name], rows)
    receipts = [receipt for popped in taken for receipt in popped.receipts]
    return ReceivedColumns(to_batch(found, wanted, rows), receipts)
