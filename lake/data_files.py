"""Reads row groups of a table's data files, in processes that may not use the catalog."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import NativeFile

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

LOCAL = "file://"

BrokerQueue = tuple[str, int]
"""A broker's name and a queue id."""


@dataclass(frozen=True, slots=True)
class RowGroup:
    """The messages of one queue in a row group: the least and the greatest values.

    Offsets are [first, stop), times in ms and places in the log include both ends. There may be
    gaps in it, whose messages are in other row groups: each message is in one of them.
    """

    path: str
    number: int
    first: int
    stop: int
    begin_ms: int
    end_ms: int
    first_place: int
    last_place: int


class DataFiles:
    """Opens the data files of a table, in any process: it is small, and can be pickled."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        """The properties of the table's FileIO."""
        self._properties = dict(properties)
        self._io: FileIO | None = None

    def open(self, path: str) -> NativeFile:
        """A file by the path that the table has for it. Raises OSError."""
        if path.startswith(LOCAL):
            return pa.memory_map(path.removeprefix(LOCAL))
        if self._io is None:
            # Imported here because tasks of Spark on local files do without pyiceberg.
            from pyiceberg.io import load_file_io

            self._io = load_file_io(self._properties, path)
        return self._io.new_input(path).open()

    def read(self, group: RowGroup, queue: BrokerQueue, columns: Iterable[str]) -> pa.Table:
        """The rows of a queue in a row group, by offset.

        `columns` are further columns than brokerName, queueId and queueOffset. Raises OSError.
        """
        wanted = [*dict.fromkeys(("brokerName", "queueId", "queueOffset", *columns))]
        with self.open(group.path) as stream:
            rows = pq.ParquetFile(stream).read_row_group(group.number, wanted, use_threads=False)
        rows = _of_queue(rows, queue)
        begin, end = np.searchsorted(rows["queueOffset"].to_numpy(), (group.first, group.stop))
        return rows.slice(begin, end - begin)

    def __getstate__(self) -> dict[str, object]:
        return {"_properties": self._properties, "_io": None}


def first_at(
    files: DataFiles, groups: Iterable[RowGroup], queue: BrokerQueue, timestamp_ms: int
) -> int | None:
    """The first offset of a queue stored at or after a time, None if all messages are older.

    `groups` come in the order of their first offsets. Raises OSError.
    """
    best: int | None = None
    for group in groups:
        if group.end_ms < timestamp_ms or (best is not None and group.first > best):
            continue
        rows = files.read(group, queue, ["storeTimestamp"])
        late = rows.filter(
            pc.greater_equal(rows["storeTimestamp"].cast(pa.int64()), timestamp_ms * 1000)
        )
        if len(late):
            offset = int(late["queueOffset"][0].as_py())
            best = offset if best is None else min(best, offset)
    return best


def _of_queue(rows: pa.Table, queue: BrokerQueue) -> pa.Table:
    broker, queue_id = queue
    mine = pc.and_(pc.equal(rows["brokerName"], broker), pc.equal(rows["queueId"], queue_id))
    if not pc.all(mine).as_py():
        rows = rows.filter(mine)
    offsets = rows["queueOffset"].to_numpy()
    if len(offsets) and (offsets[1:] < offsets[:-1]).any():
        rows = rows.sort_by("queueOffset")
    return rows
