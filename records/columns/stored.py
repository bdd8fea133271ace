"""Rows of a queue as stored records: the bytes of a pull's answer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from congreve.records.columns.encoder import RowEncoder

COLUMNS = (
    *("flag", "sysFlag", "reconsumeTimes", "storeSize", "queueOffset", "commitLogOffset"),
    *("bornTimestamp", "storeTimestamp", "properties", "body", "bornHost", "storeHost"),
    "tagsCode",
)
"""The columns that a record is made of."""


@dataclass(frozen=True)
class StoredRows:
    """Messages of one queue at consecutive offsets, `first` and following.

    `records` are their bytes as in the log, `ends` where each record ends (int64), `tags_codes` the
    tags code of each (int64).
    """

    first: int
    records: bytes
    ends: npt.NDArray[np.int64]
    tags_codes: npt.NDArray[np.int64]

    @property
    def stop(self) -> int:
        """The offset behind the last message."""
        return self.first + len(self.ends)

    @property
    def nbytes(self) -> int:
        """The memory of all messages."""
        return len(self.records) + 16 * len(self.ends)


def stored_rows(rows: pa.RecordBatch, topic: str, queue_id: int) -> StoredRows:
    """The records of rows of one queue, which have COLUMNS and consecutive offsets.

    Raises RecordError for a row that is not a message.
    """
    count = len(rows)
    ends = np.empty(count, np.int64)
    properties = rows["properties"]
    pairs = _offsets(properties)
    offsets = _int64(rows["queueOffset"])
    records = RowEncoder(topic, queue_id).encode(
        _int32(rows["flag"]),
        _int32(rows["sysFlag"]),
        _int32(rows["reconsumeTimes"]),
        _int32(rows["storeSize"]),
        offsets,
        _int64(rows["commitLogOffset"]),
        _int64(rows["bornTimestamp"]),
        _int64(rows["storeTimestamp"]),
        pairs,
        _texts(rows["body"], pa.binary()),
        _texts(properties.keys, pa.string()),
        _texts(properties.items, pa.string()),
        _texts(rows["bornHost"], pa.string()),
        _texts(rows["storeHost"], pa.string()),
        ends,
    )
    first = int(offsets[0]) if count else 0
    return StoredRows(first, records, ends, _int64(rows["tagsCode"]))


def _int32(column: pa.Array) -> npt.NDArray[np.int32]:
    return np.ascontiguousarray(column.to_numpy(zero_copy_only=False), np.int32)


def _int64(column: pa.Array) -> npt.NDArray[np.int64]:
    return np.ascontiguousarray(column.cast(pa.int64()).to_numpy(zero_copy_only=False))


def _offsets(column: pa.Array) -> npt.NDArray[np.int32]:
    """Where the values of each row begin, and where the last ones end."""
    values = np.frombuffer(column.buffers()[1], np.int32)
    return values[column.offset : column.offset + len(column) + 1]


def _texts(
    column: pa.Array, kind: pa.DataType
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]]:
    column = column.cast(kind)
    data = column.buffers()[2]
    values = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return (_offsets(column) if len(column) else np.zeros(1, np.int32)), values
