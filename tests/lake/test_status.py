"""The status of a table: what it holds, and which messages of the store it lacks."""

from __future__ import annotations

from pathlib import Path

from congreve.lake.durable import SCHEMA, DurableTopic
from congreve.lake.export import Exporter
from congreve.lake.status import TableStatus, status_of
from congreve.lake.table import TopicTable, open_catalog

from . import stores


def test_the_status_counts_rows_files_and_missing_messages(tmp_path: Path) -> None:
    store, warehouse = stores.write(tmp_path / "store", 20), tmp_path / "lake"
    topic = DurableTopic(store, stores.TOPIC, "broker-a")
    table = TopicTable(open_catalog(str(warehouse)), "rocketmq.T", SCHEMA, "day")
    assert status_of(table) == TableStatus(0, 0, 0, 0, 0, None)
    assert status_of(table, topic).behind == 20
    Exporter(topic, table).run()
    assert status_of(table, topic).oldest_ms is None
    files = list(warehouse.rglob("*.parquet"))
    with stores.open_writer(store) as writer:
        stores.put(writer, 20, 7)
    found = status_of(table, topic)
    assert (found.messages, found.snapshots, found.behind) == (20, 1, 7)
    assert found.oldest_ms == stores.BEGIN_MS + 20 * 1_200_000
    assert (found.files, found.bytes) == (len(files), sum(file.stat().st_size for file in files))
    assert found.committed_ms == stores.table_of(warehouse).snapshots()[0].timestamp_ms


def test_the_status_command_prints_a_line(tmp_path: Path) -> None:
    store, warehouse = stores.write(tmp_path / "store", 8), tmp_path / "lake"
    process = stores.command(store, warehouse, name="status")
    output = process.communicate()[0]
    assert process.returncode == 0, output
    assert output.startswith("rocketmq.T: 0 messages in 0 files of 0 bytes, 0 snapshots")
    assert "8 messages behind the store, " in output


def test_the_status_command_shows_a_topic_without_messages(tmp_path: Path) -> None:
    with stores.open_writer(tmp_path / "store"):
        pass
    process = stores.command(tmp_path / "store", tmp_path / "lake", name="status")
    output = process.communicate()[0]
    assert process.returncode == 0, output
    assert output.startswith("rocketmq.T: 0 messages in 0 files of 0 bytes, 0 snapshots")
    assert output.endswith("the store has no message of T, so 0 messages behind it\n")
