"""Each durable message is in the table exactly once, with other writers too."""

from __future__ import annotations

from pathlib import Path

import pytest

from congreve.lake.commit_files import SORTED_BY
from congreve.lake.durable import SCHEMA, DurableTopic
from congreve.lake.errors import CommitConflictError, LakeError, ProgressError, TableError
from congreve.lake.export import Exporter
from congreve.lake.progress import (
    PROPERTY,
    LastMessage,
    LastMessages,
    Progress,
    advanced,
    newest,
    to_properties,
)
from congreve.lake.table import TopicTable, open_catalog

from . import stores


def open_table(warehouse: Path) -> TopicTable:
    return TopicTable(open_catalog(str(warehouse)), f"rocketmq.{stores.TOPIC}", SCHEMA, "day")


def exporter(store: Path, warehouse: Path, commit_bytes: int = 1) -> Exporter:
    return Exporter(
        DurableTopic(store, stores.TOPIC, "broker-a"), open_table(warehouse), commit_bytes
    )


def assert_same(store: Path, warehouse: Path) -> None:
    expected = stores.in_store(store)
    assert stores.in_table(warehouse) == expected
    assert stores.in_duckdb(warehouse) == expected


def test_a_topic_becomes_a_table_and_a_second_export_adds_nothing(tmp_path: Path) -> None:
    store, warehouse = stores.write(tmp_path / "store", 200), tmp_path / "lake"
    assert exporter(store, warehouse).run() == 200
    assert exporter(store, warehouse).run() == 0
    assert_same(store, warehouse)


def test_a_warehouse_is_a_folder_of_any_name_or_has_a_catalog(tmp_path: Path) -> None:
    store = stores.write(tmp_path / "store", 8)
    warehouse = tmp_path / "ware house%20"
    assert exporter(store, warehouse).run() == 8
    assert_same(store, warehouse)
    assert {*tmp_path.iterdir()} == {store, warehouse}
    with pytest.raises(TableError, match=r"the warehouse is s3://lake: without a catalog"):
        open_catalog("s3://lake")


def test_an_export_continues_where_the_table_ends(tmp_path: Path) -> None:
    store, warehouse = stores.write(tmp_path / "store", 50), tmp_path / "lake"
    assert exporter(store, warehouse).run() == 50
    with stores.open_writer(store) as writer:
        stores.put(writer, 50, 30)
    assert exporter(store, warehouse).run() == 30
    assert_same(store, warehouse)


def test_rows_have_the_columns_of_the_spark_source_and_the_days_are_partitions(
    tmp_path: Path,
) -> None:
    store, warehouse = stores.write(tmp_path / "store", 200), tmp_path / "lake"
    exporter(store, warehouse).run()
    table = stores.table_of(warehouse)
    row = table.scan("queueId = 1 and queueOffset = 1").to_arrow().to_pylist()[0]
    assert list(row) == SCHEMA.names
    assert (row["topic"], row["brokerName"], row["body"]) == ("T", "broker-a", b"body 5")
    assert dict(row["properties"])["KEYS"] == row["keys"] == "key-5 all"
    assert [str(field) for field in table.sort_order().fields] == [
        f"{table.schema().find_field(name).field_id} ASC NULLS LAST" for name in SORTED_BY
    ]
    files = [task.file for task in table.scan().plan_files()]
    assert {file.sort_order_id for file in files} == {table.sort_order().order_id}
    days = {task.file.partition[0] for task in table.scan().plan_files()}
    assert len(days) == 4  # 200 messages, 20 minutes apart


def test_a_live_store_is_exported_up_to_its_checkpoint(tmp_path: Path) -> None:
    root, warehouse = stores.write(tmp_path / "store", 40), tmp_path / "lake"
    with stores.open_writer(root) as writer:
        stores.put(writer, 40, 10)
        assert exporter(root, warehouse).run() == 40
        writer.checkpoint()
        assert exporter(root, warehouse).run() == 10
    assert_same(root, warehouse)


def test_a_store_that_was_not_stopped_needs_a_checkpoint(tmp_path: Path) -> None:
    root = stores.write(tmp_path / "store", 4)
    (root / "abort").touch()
    for file in (root / "congreve").glob("queues.json*"):
        file.unlink()
    with pytest.raises(LakeError, match="has no checkpoint"):
        exporter(root, tmp_path / "lake").run()
    assert not open_catalog(str(tmp_path / "lake")).list_namespaces(), "there is no empty table"


def test_the_loser_of_two_exporters_commits_nothing_twice(tmp_path: Path) -> None:
    store, warehouse = stores.write(tmp_path / "store", 60), tmp_path / "lake"
    stale = open_table(warehouse)
    stale.create()
    ends = stale.progress()
    topic = DurableTopic(store, stores.TOPIC, "broker-a")
    batch = next(iter(topic.read(topic.queues()[0], 0)))
    exporter(store, warehouse, commit_bytes=1 << 20).run()
    before = set(warehouse.rglob("*.parquet"))
    with stale.new_files() as files:
        files.write(batch)
        with pytest.raises(CommitConflictError):
            stale.append(files, Progress(advanced(ends, "broker-a", {0: 15}), {}))
    assert set(warehouse.rglob("*.parquet")) == before
    assert_same(store, warehouse)


def test_two_processes_at_once_export_each_message_once(tmp_path: Path) -> None:
    store, warehouse = stores.write(tmp_path / "store", 400), tmp_path / "lake"
    pair = [stores.command(store, warehouse, "--commit-bytes", "1") for _ in range(2)]
    outputs = [process.communicate()[0] for process in pair]
    assert [process.returncode for process in pair] == [0, 0], outputs
    assert_same(store, warehouse)


def test_snapshots_of_other_writers_are_skipped_when_progress_is_read(tmp_path: Path) -> None:
    store, warehouse = stores.write(tmp_path / "store", 20), tmp_path / "lake"
    exporter(store, warehouse).run()
    stores.table_of(warehouse).append(SCHEMA.empty_table())
    assert exporter(store, warehouse).run() == 0


def test_a_table_with_foreign_snapshots_only_is_refused(tmp_path: Path) -> None:
    store, warehouse = stores.write(tmp_path / "store", 20), tmp_path / "lake"
    table = exporter(store, warehouse)
    open_table(warehouse).create()
    stores.table_of(warehouse).append(SCHEMA.empty_table())
    with pytest.raises(TableError, match="says which offsets"):
        table.run()


def test_a_table_whose_commits_would_be_repeated_is_refused(tmp_path: Path) -> None:
    store, warehouse = stores.write(tmp_path / "store", 20), tmp_path / "lake"
    export = exporter(store, warehouse)
    open_table(warehouse).create()
    with stores.table_of(warehouse).transaction() as change:
        change.set_properties({"commit.retry.num-retries": "4"})
    with pytest.raises(TableError, match="retry"):
        export.run()


def test_a_table_of_another_store_is_refused(tmp_path: Path) -> None:
    warehouse = tmp_path / "lake"
    exporter(stores.write(tmp_path / "long", 40), warehouse).run()
    with pytest.raises(ProgressError, match="another store"):
        exporter(stores.write(tmp_path / "short", 20), warehouse).run()


def test_progress_is_read_from_the_newest_snapshot() -> None:
    ends = advanced(advanced({}, "a", {0: 5, 1: 2}), "b", {0: 9})
    older = to_properties(Progress(advanced({}, "a", {0: 1}), {}))
    last = {"a": LastMessages("store", {0: LastMessage(400, 7)})}
    found = newest([{}, to_properties(Progress(ends, last)), older])
    assert found == ({"a": {0: 5, 1: 2}, "b": {0: 9}}, last)
    assert newest([older, to_properties(Progress(ends, last))]) == ({"a": {0: 1}}, {})
    assert advanced(ends, "a", {1: 7})["a"] == {0: 5, 1: 7}
    assert newest([{}]) is None
    with pytest.raises(ProgressError):
        newest([{PROPERTY: "[1]"}])
