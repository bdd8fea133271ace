"""Upkeep keeps each row once: merges, expiry, orphans, beside exporters and after kills."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from congreve.lake.durable import SCHEMA, DurableTopic
from congreve.lake.export import Exporter
from congreve.lake.progress import EndOffsets
from congreve.lake.table import TopicTable, open_catalog
from congreve.lake.upkeep import Upkeep, UpkeepDone, UpkeepRules

from . import stores

NOW = UpkeepRules(keep_snapshots=1, snapshot_age_s=0, orphan_age_s=0)
ROUNDS_SHARE = 20  # of --kill-rounds


def table_of(warehouse: Path) -> TopicTable:
    return TopicTable(open_catalog(str(warehouse)), f"rocketmq.{stores.TOPIC}", SCHEMA, "day")


def export(store: Path, warehouse: Path, commit_bytes: int = 1) -> int:
    topic = DurableTopic(store, stores.TOPIC, "broker-a")
    return Exporter(topic, table_of(warehouse), commit_bytes).run()


def upkeep(warehouse: Path, rules: UpkeepRules = NOW) -> Upkeep:
    return Upkeep(table_of(warehouse), rules, lambda: time.time() + 1)


def files_of(warehouse: Path) -> list[str]:
    return [task.file.file_path for task in stores.table_of(warehouse).scan().plan_files()]


def column_bytes(file: str) -> int:
    footer = pq.read_metadata(file.removeprefix("file://"))
    return sum(footer.row_group(i).total_byte_size for i in range(footer.num_row_groups))


def progress(warehouse: Path) -> EndOffsets:
    table = table_of(warehouse)
    table.load()
    return table.progress()


@pytest.fixture
def lake(tmp_path: Path) -> tuple[Path, Path]:
    """A store and a warehouse with its messages, in four commits and some partitions."""
    store, warehouse = stores.write(tmp_path / "store", 200), tmp_path / "lake"
    export(store, warehouse)
    return store, warehouse


def test_small_files_of_a_day_become_one_in_the_order_of_queue_and_offset(
    lake: tuple[Path, Path],
) -> None:
    store, warehouse = lake
    before = progress(warehouse)
    merged, into = upkeep(warehouse).merge()
    assert (merged, into) == (16, 4)
    assert len(files_of(warehouse)) == 4
    assert stores.in_table(warehouse) == stores.in_duckdb(warehouse) == stores.in_store(store)
    for file in files_of(warehouse):
        rows = pq.read_table(file.removeprefix("file://")).to_pydict()
        order = list(zip(rows["queueId"], rows["queueOffset"], strict=True))
        assert order == sorted(order)
    assert progress(warehouse) == before
    assert upkeep(warehouse).merge() == (0, 0)
    assert export(store, warehouse) == 0


def test_a_merged_file_has_no_more_than_its_share(lake: tuple[Path, Path]) -> None:
    _, warehouse = lake
    limit = 2 * max(map(column_bytes, files_of(warehouse))) + 2
    merged, into = upkeep(warehouse, UpkeepRules(merge_bytes=limit)).merge()
    assert merged > into >= 5
    assert all(column_bytes(file) <= limit for file in files_of(warehouse))


def test_old_snapshots_are_removed_and_the_progress_is_kept(lake: tuple[Path, Path]) -> None:
    store, warehouse = lake
    stores.table_of(warehouse).append(SCHEMA.empty_table())  # a snapshot without progress
    before = progress(warehouse)
    assert upkeep(warehouse).expire() == 3
    assert len(stores.table_of(warehouse).snapshots()) == 2
    assert progress(warehouse) == before
    assert export(store, warehouse) == 0


def test_snapshots_are_kept_as_long_and_as_many_as_configured(lake: tuple[Path, Path]) -> None:
    _, warehouse = lake
    assert upkeep(warehouse, UpkeepRules(keep_snapshots=3, snapshot_age_s=0)).expire() == 1
    assert upkeep(warehouse, UpkeepRules(keep_snapshots=1, snapshot_age_s=3600)).expire() == 0


def test_files_without_a_snapshot_are_removed_once_they_are_old(lake: tuple[Path, Path]) -> None:
    store, warehouse = lake
    upkeep(warehouse).merge()
    assert upkeep(warehouse).remove_orphans() == 0  # older snapshots still refer to all
    upkeep(warehouse).expire()
    orphan = warehouse / "rocketmq" / stores.TOPIC / "data" / "orphan.parquet"
    orphan.write_bytes(b"x")
    young = UpkeepRules(orphan_age_s=3600)
    assert upkeep(warehouse, young).remove_orphans() == 0
    assert upkeep(warehouse).remove_orphans() >= 17
    assert not orphan.exists()
    left = {str(path) for path in warehouse.rglob("*.parquet")}
    assert left == {file.removeprefix("file://") for file in files_of(warehouse)}
    assert stores.in_table(warehouse) == stores.in_duckdb(warehouse) == stores.in_store(store)
    assert upkeep(warehouse).remove_orphans() == 0


def test_a_merge_that_an_exporter_overtakes_changes_nothing(
    lake: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, warehouse = lake
    with stores.open_writer(store) as writer:
        stores.put(writer, 200, 20)
    replace = TopicTable.replace

    def replace_too_late(table, old, files) -> None:
        export(store, warehouse)
        replace(table, old, files)

    monkeypatch.setattr(TopicTable, "replace", replace_too_late)
    assert upkeep(warehouse).merge() == (0, 0)
    assert stores.in_table(warehouse) == stores.in_duckdb(warehouse) == stores.in_store(store)


def test_an_export_that_a_merge_overtakes_starts_again(
    lake: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, warehouse = lake
    with stores.open_writer(store) as writer:
        stores.put(writer, 200, 20)
    append, merges = TopicTable.append, []

    def append_too_late(table, files, ends) -> None:
        if not merges:
            merges.append(upkeep(warehouse).merge())
        append(table, files, ends)

    monkeypatch.setattr(TopicTable, "append", append_too_late)
    assert export(store, warehouse) == 20
    assert merges == [(16, 4)]
    assert stores.in_table(warehouse) == stores.in_duckdb(warehouse) == stores.in_store(store)


def test_upkeep_of_a_missing_table_does_nothing(tmp_path: Path) -> None:
    assert upkeep(tmp_path / "lake").run() == UpkeepDone()


@pytest.mark.crash
def test_a_killed_upkeep_leaves_each_message_once(
    tmp_path: Path, kill_rounds: int, campaign: Callable[[str, int], None]
) -> None:
    rounds = max(kill_rounds // ROUNDS_SHARE, 1)
    store, warehouse, chance = (
        stores.write(tmp_path / "store", 60),
        tmp_path / "lake",
        random.Random(),
    )
    rules = ("--keep-snapshots", "1", "--snapshot-hours", "0", "--orphan-hours", "0")
    export(store, warehouse)
    started = time.monotonic()
    assert stores.upkeep_command(warehouse, *rules).wait() == 0
    usual = time.monotonic() - started
    for number in range(rounds):
        with stores.open_writer(store) as writer:
            stores.put(writer, 60 * (number + 1), 60)
        export(store, warehouse)
        process = stores.upkeep_command(warehouse, *rules)
        time.sleep(usual * chance.uniform(0.5, 1.2))
        process.kill()
        process.communicate()
        rows = stores.in_table(warehouse)
        assert rows == stores.in_duckdb(warehouse) == stores.in_store(store)
    campaign("upkeep of a table: kill", rounds)
