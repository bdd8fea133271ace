"""Columns of messages as numpy arrays."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import msgspec
import numpy as np

from congreve.records.columns.column import Column

_TIME = np.dtype("datetime64[us]")

#: Columns of numbers and times, whose arrays are the column's own memory. All others hold objects.
FIXED_WIDTH: dict[str, np.dtype[Any]] = {
    "flag": np.dtype(np.int32),
    "queueId": np.dtype(np.int32),
    "queueOffset": np.dtype(np.int64),
    "bornTimestamp": _TIME,
    "storeTimestamp": _TIME,
    "commitLogOffset": np.dtype(np.int64),
    "storeSize": np.dtype(np.int32),
    "tagsCode": np.dtype(np.int64),
    "sysFlag": np.dtype(np.int32),
    "bodyCRC": np.dtype(np.int32),
    "reconsumeTimes": np.dtype(np.int32),
}


def to_numpy(column: Column) -> np.ndarray[Any, Any]:
    """One column as an array of FIXED_WIDTH's type, or of objects.

    A body is bytes; a text is str, or None if the message has none; propertiesJson is read into
    a dict.
    """
    fixed = FIXED_WIDTH.get(column.name)
    if fixed is not None:
        return np.frombuffer(memoryview(column.values), fixed)
    values = bytes(column.values)
    ends = np.frombuffer(memoryview(column.offsets), np.int32).tolist()
    there = _validity(column)
    array = np.empty(column.rows, object)
    for row, (start, end) in enumerate(pairwise(ends)):
        if there is None or there[row]:
            array[row] = _value(column.name, values[start:end])
    return array


def _value(name: str, data: bytes) -> Any:
    if name == "body":
        return data
    if name == "propertiesJson":
        return msgspec.json.decode(data)
    return data.decode("utf-8", "replace")


def _validity(column: Column) -> Any:
    if not column.null_count:
        return None
    bits = np.frombuffer(memoryview(column.validity), np.uint8)
    return np.unpackbits(bits, bitorder="little")
