"""The rows of a queue in the order of offsets, however row groups have them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from congreve.lake.data_files import BrokerQueue, DataFiles, RowGroup
from congreve.lake.queue_batches import queue_batches

QUEUE: BrokerQueue = ("broker-a", 1)
COLUMNS = ("queueOffset", "storeSize", "body")

Row = tuple[int, int]
"""A queue id and an offset."""


def groups_of(path: Path, parts: list[list[Row]]) -> list[RowGroup]:
    """Write a file with a row group for each part; the row groups of the queue."""
    schema = pa.schema(
        {
            **{"brokerName": pa.string(), "queueId": pa.int32(), "queueOffset": pa.int64()},
            **{"storeSize": pa.int32(), "body": pa.binary()},
        }
    )
    found = []
    with pq.ParquetWriter(path, schema) as writer:
        for number, part in enumerate(parts):
            ids, offsets = [row[0] for row in part], [row[1] for row in part]
            columns = [["broker-a"] * len(part), ids, offsets]
            columns += [[100 + offset % 7 for offset in offsets], [b"%d" % o for o in offsets]]
            arrays = [pa.array(v, f.type) for v, f in zip(columns, schema, strict=True)]
            writer.write_batch(pa.record_batch(arrays, schema=schema))
            if mine := [row[1] for row in part if row[0] == QUEUE[1]]:
                path_of = f"file://{path}"
                found.append(RowGroup(path_of, number, min(mine), max(mine) + 1, 0, 0, 0, 0))
    return sorted(found, key=lambda group: (group.first, group.stop))


def read(groups: list[RowGroup], start: int, batch_bytes: int) -> Iterator[list[int]]:
    """The offsets of each batch."""
    for batch in queue_batches(
        DataFiles({}), groups, QUEUE, COLUMNS, start=start, batch_bytes=batch_bytes
    ):
        offsets: list[int] = batch["queueOffset"].to_pylist()
        assert batch.schema.names == list(COLUMNS)
        assert batch["body"].to_pylist() == [b"%d" % offset for offset in offsets]
        assert sum(batch["storeSize"].to_pylist()) <= batch_bytes or len(batch) == 1
        assert all(after == before + 1 for before, after in pairwise(offsets))
        yield offsets


@given(
    rows=st.sets(st.tuples(st.integers(0, 2), st.integers(0, 40)), max_size=60),
    by_offset=st.booleans(),
    cuts=st.lists(st.integers(0, 60), max_size=4),
    start=st.integers(0, 45),
    end=st.integers(20, 60),
    batch_bytes=st.integers(1, 1_500),
    chance=st.randoms(use_true_random=False),
)
def test_each_row_comes_once_and_in_order(
    tmp_path_factory: pytest.TempPathFactory,
    rows: set[Row],
    by_offset: bool,
    cuts: list[int],
    start: int,
    end: int,
    batch_bytes: int,
    chance: object,
) -> None:
    ordered = sorted(rows)
    if not by_offset:  # as another program may have written them
        chance.shuffle(ordered)  # type: ignore[attr-defined]
    places = sorted({0, len(ordered), *(cut for cut in cuts if cut < len(ordered))})
    parts = [ordered[begin:end] for begin, end in pairwise(places)]
    groups = groups_of(tmp_path_factory.mktemp("rows") / "rows.parquet", parts)
    # A row group may have rows that do not count, behind its end.
    groups = [replace(g, stop=min(g.stop, end)) for g in groups if g.first < end]
    found = [offset for batch in read(groups, start, batch_bytes) for offset in batch]
    assert found == sorted(o for queue, o in rows if queue == QUEUE[1] and start <= o < end)
    assert found == sorted(
        offset
        for group in groups
        for offset in DataFiles({}).read(group, QUEUE, COLUMNS)["queueOffset"].to_pylist()
        if offset >= start
    )


def test_a_row_group_is_decoded_as_far_as_it_is_read(tmp_path: Path) -> None:
    rows = [(1, offset) for offset in range(10_000)]
    groups = groups_of(tmp_path / "rows.parquet", [rows])
    batches = read(groups, 9_000, 10_000)
    assert next(batches)[0] == 9_000
    assert len(next(batches)) < 101
