"""A store rebuilt from tables: the same messages at the same queue offsets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from congreve.engine.config import StoreConfig
from congreve.engine.rebuild.new_store import NewStore
from congreve.lake.data_files import BrokerQueue
from congreve.lake.errors import RestoreError
from congreve.lake.queue_batches import queue_batches
from congreve.lake.row_groups import RowGroups
from congreve.lake.table import TopicTable
from congreve.records.columns.stored import COLUMNS, StoredRows, stored_rows

BATCH_BYTES = 4 << 20
"""Bytes of records that are read of a queue at once."""
ALL_BATCHES_BYTES = 256 << 20
"""Of many queues, fewer bytes are read at once."""

PLACE = "commitLogOffset"

Int64s = npt.NDArray[np.int64]
Moment = tuple[int, int]
"""A store time and a place in the log, by which records are ordered."""


class Restore:
    """Writes the messages of one broker from tables into a new store.

    Messages keep queue, queue offset, times, hosts, flags, body and properties. Their place in the
    log, and so the offset message id, is a new one. Each queue begins and ends as in the table.
    """

    def __init__(
        self, tables: Sequence[TopicTable], broker: str | None, config: StoreConfig
    ) -> None:
        """`config.root_dir` is the store's folder, which must not exist yet.

        `broker` may be None if the tables have the messages of one broker.
        """
        self._tables = tables
        self._broker = broker
        self._config = config

    def run(self) -> int:
        """Write the store; returns the number of messages.

        Raises RestoreError when a table does not exist, tables have the messages of other brokers
        only, or messages do not follow each other, StoreError when the folder exists
        or the store cannot be written, and OSError.
        """
        for table in self._tables:
            if not table.load():
                raise RestoreError(f"there is no table {table.name}")
        restored, queues = 0, self._queues()
        with NewStore(self._config) as store:
            left = [queue for queue in queues if queue.read()]
            while left:
                # What is not read yet of a queue comes later than all that is.
                moment = min(queue.last for queue in left)
                records, begins, ends = _in_order([queue.take(moment) for queue in left])
                store.append(records, begins, ends)
                restored += len(begins)
                left = [queue for queue in left if queue.has_records or queue.read()]
        return restored

    def _queues(self) -> list[_Queue]:
        found: list[tuple[RowGroups, BrokerQueue]] = []
        brokers: set[str] = set()
        for table in self._tables:
            groups = RowGroups()
            groups.refresh(table)
            brokers |= {broker for broker, _ in groups.of_queue}
            found += [(groups, queue) for queue in groups.of_queue]
        if self._broker is None and len(brokers) > 1:
            raise RestoreError(
                f"the tables have messages of {', '.join(sorted(brokers))}: name one of them, and "
                "restore each into a folder of its own"
            )
        if self._broker is not None:
            found = [(groups, queue) for groups, queue in found if queue[0] == self._broker]
        if brokers and not found:
            raise RestoreError(
                f"the tables have no messages of {self._broker}, only those of "
                f"{', '.join(sorted(brokers))}: restore each of these into a folder of its own"
            )
        size = min(BATCH_BYTES, ALL_BATCHES_BYTES // max(len(found), 1))
        return [_Queue(groups, queue, size) for groups, queue in found]


class _Records(NamedTuple):
    """Some records of one queue, where each of them ends (int64), and their moments (2 x n)."""

    data: memoryview
    ends: Int64s
    moments: Int64s


class _Queue:
    """A queue that is read batch by batch."""

    def __init__(self, groups: RowGroups, queue: BrokerQueue, batch_bytes: int) -> None:
        self._queue_id = queue[1]
        self._batches = queue_batches(
            *(groups.files, groups.of_queue[queue], queue, ("topic", *COLUMNS)),
            batch_bytes=batch_bytes,
        )
        self._rows: StoredRows | None = None
        self._moments = np.empty((2, 0), np.int64)
        self._taken = 0

    def read(self) -> bool:
        """Read the next batch when all records are taken; False if there is none.

        Raises RestoreError when messages are missing before it.
        """
        batch = next(self._batches, None)
        if batch is None:
            return False
        topic = batch["topic"][0].as_py()
        rows = stored_rows(batch, topic, self._queue_id)
        if self._rows is not None and self._rows.stop != rows.first:
            raise RestoreError(
                f"queue {self._queue_id} of {topic}: offset {rows.first} comes after "
                f"{self._rows.stop - 1}: messages are missing, or there twice"
            )
        moments = np.stack(
            [batch[name].cast(pa.int64()).to_numpy() for name in ("storeTimestamp", PLACE)]
        )
        if self._rows is not None:
            moments[:, 0] = np.maximum(moments[:, 0], self._moments[:, -1])
        # A clock may have been set back: the order of a queue is that of its offsets.
        self._moments = np.maximum.accumulate(moments, axis=1)
        self._rows, self._taken = rows, 0
        return True

    @property
    def last(self) -> Moment:
        """The moment of the last record of the batch."""
        time, place = self._moments[:, -1].tolist()
        return time, place

    @property
    def has_records(self) -> bool:
        """Whether the batch has records that are not taken."""
        return self._taken < self._moments.shape[1]

    def take(self, moment: Moment) -> _Records:
        """Take the records of the batch up to a moment."""
        assert self._rows is not None, "read() was called"
        times, places = self._moments
        same = [int(np.searchsorted(times, moment[0], side)) for side in ("left", "right")]
        stop = same[0] + int(np.searchsorted(places[slice(*same)], moment[1], "right"))
        first, self._taken = self._taken, max(stop, self._taken)
        rows = slice(first, self._taken)
        begin = int(self._rows.ends[first - 1]) if first else 0
        ends = self._rows.ends[rows] - begin
        size = int(ends[-1]) if len(ends) else 0
        data = memoryview(self._rows.records)[begin : begin + size]
        return _Records(data, ends, self._moments[:, rows])


def _in_order(parts: list[_Records]) -> tuple[bytes, Int64s, Int64s]:
    """Records one after the other, and where each begins and ends, in the order of moments."""
    sizes = np.concatenate([np.diff(part.ends, prepend=0) for part in parts])
    ends = np.cumsum(sizes)
    places, times = np.concatenate([part.moments for part in parts], axis=1)[::-1]
    order = np.lexsort((places, times))  # stable: records of a queue stay in their order
    return b"".join(part.data for part in parts), (ends - sizes)[order], ends[order]
