"""Bodies as columns: each message is in the table or among its dead letters, exactly once."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from fastavro import parse_schema, schemaless_writer

from congreve.engine.config import StoreConfig
from congreve.lake.bodies.body_schema import load_schema
from congreve.lake.bodies.body_table import BodyTable
from congreve.lake.commit_files import CommitFiles
from congreve.lake.durable import SCHEMA, DurableTopic
from congreve.lake.errors import CommitConflictError, ProgressError, TableError
from congreve.lake.export import Exporter
from congreve.lake.progress import Progress
from congreve.lake.restore import Restore
from congreve.lake.row_groups import RowGroups
from congreve.lake.status import status_of
from congreve.lake.table import TopicTable, open_catalog
from congreve.lake.upkeep import Upkeep, UpkeepRules

from . import bodies, stores

BROKER = "broker-a"
DLQ = bodies.TABLES[1]
WITHOUT_BODY = SCHEMA.remove(SCHEMA.get_field_index("body"))


def topic_table(warehouse: Path, schema: pa.Schema = SCHEMA) -> TopicTable:
    return TopicTable(open_catalog(str(warehouse)), f"rocketmq.{stores.TOPIC}", schema, "day")


def exporter(
    store: Path, warehouse: Path, schema: str, *, columns: pa.Schema = SCHEMA, commit_bytes: int = 1
) -> Exporter:
    table = BodyTable(topic_table(warehouse, columns), load_schema(schema), BROKER)
    return Exporter(DurableTopic(store, stores.TOPIC, BROKER), table, commit_bytes)


def write(root: Path, first: int, count: int, body: Any = bodies.mixed) -> Path:
    with stores.open_writer(root) as writer:
        stores.put(writer, first, count, body)
    return root


def in_both(warehouse: Path) -> list[stores.Row]:
    return sorted(row for name in bodies.TABLES for row in stores.in_table(warehouse, name))


def columns_of(warehouse: Path, *names: str) -> list[tuple[Any, ...]]:
    """The rows of the table by queue and offset."""
    rows = (
        stores.table_of(warehouse)
        .scan()
        .to_arrow()
        .sort_by([("queueId", "ascending"), ("queueOffset", "ascending")])
    )
    return [*zip(*(rows[name].to_pylist() for name in names), strict=True)]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A store, and the warehouse with its table."""
    root = tmp_path_factory.mktemp("bodies")
    store, warehouse = write(root / "store", 0, 120), root / "lake"
    assert exporter(store, warehouse, f"json:{bodies.schema_file(root)}").run() == 120
    return store, warehouse


def test_fields_are_columns_and_other_bodies_are_dead_letters(
    exported: tuple[Path, Path],
) -> None:
    store, warehouse = exported
    assert in_both(warehouse) == stores.in_store(store)
    fitting = [(n, n / 4, None, ["a", "b"], f"Tag{n % 3}") for n in range(120) if n % 3]
    fitting.sort(key=lambda row: (row[0] % 4, row[0]))
    assert columns_of(warehouse, "n", "price", "note", "body_tags", "tags") == fitting
    dead = stores.table_of(warehouse, DLQ).scan("queueId = 0 and queueOffset = 3").to_arrow()
    (row,) = dead.to_pylist()
    assert list(row) == [*SCHEMA.names, "reason"]
    assert (row["body"], row["keys"]) == (b"body 12", "key-12 all")
    assert "JSON is malformed" in row["reason"]


def test_duckdb_reads_the_columns(exported: tuple[Path, Path]) -> None:
    _, warehouse = exported
    files = [task.file.file_path for task in stores.table_of(warehouse).scan().plan_files()]
    query = "select count(*), sum(n), sum(price), sum(len(body_tags)) from read_parquet(?)"
    found = duckdb.execute(query, [[file.removeprefix("file://") for file in files]]).fetchone()
    total = sum(n for n in range(120) if n % 3)
    assert found == (80, total, total / 4, 160)


def test_readers_of_messages_get_the_dead_letters_too(
    exported: tuple[Path, Path], tmp_path: Path
) -> None:
    store, warehouse = exported
    groups = RowGroups()
    groups.refresh(topic_table(warehouse))
    found = [
        (queue[1], offset)
        for queue, of_queue in groups.of_queue.items()
        for group in of_queue
        for offset in groups.files.read(group, queue, ["body"])["queueOffset"].to_pylist()
    ]
    assert sorted(found) == [row[:2] for row in stores.in_store(store)]
    restored = StoreConfig(root_dir=str(tmp_path / "restored"))
    assert Restore([topic_table(warehouse)], BROKER, restored).run() == 120
    assert stores.in_store(tmp_path / "restored") == stores.in_store(store)


def test_the_status_counts_dead_letters(exported: tuple[Path, Path]) -> None:
    store, warehouse = exported
    found = status_of(topic_table(warehouse), DurableTopic(store, stores.TOPIC, BROKER))
    assert (found.messages, found.dead_letters, found.behind) == (80, 40, 0)


def test_an_unchanged_schema_does_not_change_the_table(
    exported: tuple[Path, Path], tmp_path: Path
) -> None:
    store, warehouse = exported
    before = stores.table_of(warehouse).metadata_location
    assert exporter(store, warehouse, f"json:{bodies.schema_file(tmp_path)}").run() == 0
    assert stores.table_of(warehouse).metadata_location == before


def test_avro_bodies_become_columns(tmp_path: Path) -> None:
    schema = bodies.schema_file(tmp_path)
    avro = parse_schema(json.loads(bodies.ORDER))

    def body(number: int) -> bytes:
        stream = BytesIO()
        record = {"n": number, "price": number / 4, "note": "x" * number, "tags": ["a"]}
        schemaless_writer(stream, avro, record)
        data = stream.getvalue()
        return data if number % 3 else data[:-1]

    store, warehouse = write(tmp_path / "store", 0, 40, body), tmp_path / "lake"
    assert exporter(store, warehouse, f"avro:{schema}").run() == 40
    assert in_both(warehouse) == stores.in_store(store)
    found = sorted(columns_of(warehouse, "n", "price", "note"))
    assert found == [(n, n / 4, "x" * n) for n in range(40) if n % 3]


def test_a_table_without_whole_bodies_says_so_to_readers_of_messages(tmp_path: Path) -> None:
    store, warehouse = write(tmp_path / "store", 0, 40), tmp_path / "lake"
    schema = f"json:{bodies.schema_file(tmp_path)}"
    assert exporter(store, warehouse, schema, columns=WITHOUT_BODY).run() == 40
    assert "body" not in stores.table_of(warehouse).schema().column_names
    assert len(columns_of(warehouse, "n")) == 26
    assert [row[2] for row in stores.in_table(warehouse, DLQ)], "dead letters have their bodies"
    with pytest.raises(TableError, match="no column body"):
        RowGroups().refresh(topic_table(warehouse))
    with pytest.raises(TableError, match="drop bodies as it does"):
        exporter(store, warehouse, schema).run()


def test_new_fields_become_columns_and_older_rows_have_none(tmp_path: Path) -> None:
    store, warehouse = write(tmp_path / "store", 0, 40), tmp_path / "lake"
    exporter(store, warehouse, f"json:{bodies.schema_file(tmp_path)}").run()
    write(store, 40, 40, partial(bodies.order, city="Ulm", at={"x": 1.5}))
    point = {"type": "record", "name": "P", "fields": [{"name": "x", "type": "double"}]}
    wider = bodies.ORDER.replace('"int"', '"long"')
    more = ({"name": "city", "type": "string"}, {"name": "at", "type": ["null", point]})
    schema = bodies.schema_file(tmp_path, *more, text=wider)
    assert exporter(store, warehouse, f"json:{schema}").run() == 40
    Upkeep(topic_table(warehouse), UpkeepRules()).merge()
    assert in_both(warehouse) == stores.in_store(store)
    rows = sorted(columns_of(warehouse, "n", "city", "at"))
    assert rows[:26] == [(n, None, None) for n in range(40) if n % 3]
    assert rows[26:] == [(n, "Ulm", {"x": 1.5}) for n in range(40, 80)]
    # A schema that lacks a column leaves it null.
    write(store, 80, 8, bodies.order)
    exporter(store, warehouse, f"json:{bodies.schema_file(tmp_path)}").run()
    assert sorted(columns_of(warehouse, "n", "city"))[-1] == (87, None)


def test_a_column_does_not_change_to_another_type(tmp_path: Path) -> None:
    store, warehouse = write(tmp_path / "store", 0, 8), tmp_path / "lake"
    exporter(store, warehouse, f"json:{bodies.schema_file(tmp_path)}").run()
    text = bodies.ORDER.replace('"int"', '"string"')
    other = bodies.schema_file(tmp_path, {"name": "z", "type": "int"}, text=text)
    with pytest.raises(TableError, match="cannot have the columns"):
        exporter(store, warehouse, f"json:{other}").run()


def test_a_table_of_whole_bodies_can_get_columns_but_not_lose_them(tmp_path: Path) -> None:
    store, warehouse = write(tmp_path / "store", 0, 40), tmp_path / "lake"
    plain = Exporter(DurableTopic(store, stores.TOPIC, BROKER), topic_table(warehouse))
    assert plain.run() == 40
    write(store, 40, 40)
    assert exporter(store, warehouse, f"json:{bodies.schema_file(tmp_path)}").run() == 40
    assert in_both(warehouse) == stores.in_store(store)
    write(store, 80, 4)
    with pytest.raises(TableError, match="columns of json bodies"):
        plain.run()


@pytest.mark.parametrize("after", ["json", "other json"])
def test_a_stop_between_both_commits_leaves_each_message_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: str
) -> None:
    store, warehouse = write(tmp_path / "store", 0, 60), tmp_path / "lake"
    schema = f"json:{bodies.schema_file(tmp_path)}"
    append = TopicTable.append

    def append_dead_only(table: TopicTable, files: CommitFiles, progress: Progress) -> None:
        if not table.name.endswith("_dlq"):
            raise KeyboardInterrupt
        append(table, files, progress)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(TopicTable, "append", append_dead_only)
        exporter(store, warehouse, schema, commit_bytes=1 << 20).run()
    assert len(stores.in_table(warehouse, DLQ)) == 20
    groups = RowGroups()
    groups.refresh(topic_table(warehouse))
    assert not any(groups.of_queue.values()), "the rows between these dead letters are missing"
    if after == "other json":  # which decides otherwise: it has to wait
        strict = bodies.schema_file(tmp_path, {"name": "missing", "type": "int"})
        with pytest.raises(ProgressError, match="fitted the schema"):
            exporter(store, warehouse, f"json:{strict}").run()
    write(store, 60, 10)
    exporter(store, warehouse, schema).run()
    assert in_both(warehouse) == stores.in_store(store)


def test_dead_letters_of_a_commit_that_lost_are_counted_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, warehouse = write(tmp_path / "store", 0, 120), tmp_path / "lake"
    loser = exporter(store, warehouse, f"json:{bodies.schema_file(tmp_path)}")
    append, lost = TopicTable.append, []

    def lose_once(table: TopicTable, *args: Any) -> None:
        if not lost and table.name.endswith(f".{stores.TOPIC}"):
            lost.append(table.name)
            raise CommitConflictError("another commit")
        append(table, *args)

    monkeypatch.setattr(TopicTable, "append", lose_once)
    assert loser.run() == 120
    assert lost
    assert in_both(warehouse) == stores.in_store(store)


def test_two_exporters_at_once_export_each_message_once(tmp_path: Path) -> None:
    store, warehouse = write(tmp_path / "store", 0, 120), tmp_path / "lake"
    schema = f"json:{bodies.schema_file(tmp_path)}"
    with ThreadPoolExecutor(2) as threads:
        counts = threads.map(lambda _: exporter(store, warehouse, schema).run(), range(2))
    assert sum(counts) == 120
    assert in_both(warehouse) == stores.in_store(store)
