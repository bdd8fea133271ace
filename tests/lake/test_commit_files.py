"""Files of a commit: every row once, each file of one partition, few open, none left behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform

from congreve.lake import commit_files
from congreve.lake.commit_files import CommitFiles
from congreve.lake.durable import SCHEMA, DurableTopic
from congreve.lake.table import TopicTable, open_catalog

from . import stores


def batches(root: Path) -> Iterator[pa.RecordBatch]:
    topic = DurableTopic(root, stores.TOPIC, "broker-a")
    for queue in topic.queues():
        for batch in topic.read(queue, 0):
            yield from pa.Table.from_batches([batch]).to_batches(max_chunksize=7)


def empty_table(warehouse: Path, partition: str = "hour") -> Table:
    TopicTable(open_catalog(str(warehouse)), f"rocketmq.{stores.TOPIC}", SCHEMA, partition).create()
    return stores.table_of(warehouse)


def commit(table: Table, root: Path) -> None:
    with CommitFiles(table) as files:
        for batch in batches(root):
            files.write(batch)
        with table.transaction() as change, change.update_snapshot().fast_append() as snapshot:
            for file in files.finish():
                snapshot.append_data_file(file)


@pytest.mark.parametrize("most_open", [1, 3, 64])
def test_files_have_every_row_once_in_its_partition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most_open: int
) -> None:
    monkeypatch.setattr(commit_files, "MOST_OPEN", most_open)
    root, warehouse = stores.write(tmp_path / "store", 100), tmp_path / "lake"
    table = empty_table(warehouse)
    commit(table, root)
    assert stores.in_table(warehouse) == stores.in_duckdb(warehouse) == stores.in_store(root)
    for task in table.scan().plan_files():
        rows = table.io.new_input(task.file.file_path)
        times = pq.read_table(rows.open())["storeTimestamp"]
        hours = {int(time.timestamp() // 3600) for time in times.to_pylist()}
        assert hours == {task.file.partition[0]}


def test_rows_without_the_value_of_a_partition_are_kept(tmp_path: Path) -> None:
    root, warehouse = stores.write(tmp_path / "store", 40), tmp_path / "lake"
    table = empty_table(warehouse)
    with table.update_spec() as spec:
        spec.add_field("tags", IdentityTransform())
    with stores.open_writer(root) as writer:
        stores.put_plain(writer, 5)
    commit(stores.table_of(warehouse), root)
    assert stores.in_table(warehouse) == stores.in_store(root)
    assert len(stores.table_of(warehouse).scan("tags is null").to_arrow()) == 5


def test_an_unfinished_commit_leaves_no_file(tmp_path: Path) -> None:
    root, warehouse = stores.write(tmp_path / "store", 40), tmp_path / "lake"
    with pytest.raises(ZeroDivisionError), CommitFiles(empty_table(warehouse)) as files:
        for batch in batches(root):
            files.write(batch)
        assert list(warehouse.rglob("*.parquet"))
        raise ZeroDivisionError
    assert not list(warehouse.rglob("*.parquet"))
