"""Whether two rows are one message: a number of what a message keeps wherever it is stored."""

from __future__ import annotations

from typing import TYPE_CHECKING
from zlib import crc32

import pyarrow as pa

from congreve.records.columns.arrow import schema, to_batch
from congreve.records.columns.builder import RecordColumns

if TYPE_CHECKING:
    from typing_extensions import Buffer

OF_MESSAGE = (
    "queueOffset",
    "bornTimestamp",
    "storeTimestamp",
    "bornHost",
    "storeHost",
    "msgId",
)
"""Columns with the same values in a log, in its copies, in a table and in a restored store."""


def fingerprint(rows: pa.RecordBatch | pa.Table, row: int = 0) -> int:
    """A CRC-32 of the columns OF_MESSAGE of one row.

    Two messages with one queue offset, of a topic and of a later one of its name or of two brokers
    of one name, differ in it.
    """
    values = []
    for name in OF_MESSAGE:
        column = rows[name].slice(row, 1)
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.int64())
        values.append(str(column[0].as_py()))
    return crc32("\n".join(values).encode())


def fingerprint_of(record: Buffer) -> int:
    """The same of the bytes of one record. Raises RecordError."""
    gather = RecordColumns(list(OF_MESSAGE))
    gather.add_records(record)
    return fingerprint(to_batch(gather.take(), schema(OF_MESSAGE), 1))
