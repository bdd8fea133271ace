"""A follower exports messages as soon as they are durable, and stops on request."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import threading
import time
from pathlib import Path

import pytest

from congreve import open_store
from congreve.engine.state.confirmed import ConfirmedFile
from congreve.engine.state.exported import ExportedFile
from congreve.lake.commit_files import CommitFiles
from congreve.lake.durable import SCHEMA, DurableTopic
from congreve.lake.errors import ProgressError
from congreve.lake.export import Exporter
from congreve.lake.follow import Follower
from congreve.lake.progress import Progress
from congreve.lake.table import TopicTable, open_catalog
from congreve.lake.upkeep import Upkeep, UpkeepRules

from . import stores


def exporter(
    store: Path, warehouse: Path, commit_bytes: int = 1 << 20, *, confirmed_only: bool = False
) -> Exporter:
    table = TopicTable(open_catalog(str(warehouse)), f"rocketmq.{stores.TOPIC}", SCHEMA, "day")
    topic = DurableTopic(store, stores.TOPIC, "broker-a", confirmed_only=confirmed_only)
    return Exporter(topic, table, commit_bytes)


def wait_for_rows(warehouse: Path, count: int) -> None:
    deadline = time.monotonic() + 60
    while len(stores.in_table(warehouse)) < count:
        assert time.monotonic() < deadline, f"the table has fewer than {count} rows"
        time.sleep(0.05)


def test_durable_messages_of_a_writer_reach_the_table(tmp_path: Path) -> None:
    root, warehouse = stores.write(tmp_path / "store", 40), tmp_path / "lake"
    follower = Follower([exporter(root, warehouse)], lag_s=0.05)
    thread = threading.Thread(target=follower.run)
    with stores.open_writer(root) as writer:
        thread.start()
        for first in (40, 60, 80):
            stores.put(writer, first, 20)
            writer.checkpoint()
            wait_for_rows(warehouse, first + 20)
        follower.stop()
        thread.join()
    assert stores.in_table(warehouse) == stores.in_duckdb(warehouse) == stores.in_store(root)


def test_an_export_begins_with_a_checkpoint(tmp_path: Path) -> None:
    """Otherwise twice an hour would pass until the next one."""
    root, warehouse = stores.write(tmp_path / "store", 12), tmp_path / "lake"
    follower = Follower([exporter(root, warehouse)], lag_s=3600)
    begun = time.monotonic() - 1801  # half of the lag is over
    with stores.open_writer(root) as writer:
        before = follower._checkpoints()
        assert not follower._is_due(begun, before)
        stores.put(writer, 12, 4)
        writer.checkpoint()
        assert follower._is_due(begun, before)
        assert not follower._is_due(time.monotonic(), before)
    assert follower._is_due(begun - 5400, follower._checkpoints())


def test_only_what_a_group_has_confirmed_is_exported(tmp_path: Path) -> None:
    root, warehouse = stores.write(tmp_path / "store", 40), tmp_path / "lake"
    found = open_store(root).arrow(stores.TOPIC, ["commitLogOffset"])
    places = sorted(found["commitLogOffset"].to_pylist())
    export = exporter(root, warehouse, confirmed_only=True)
    assert export.run() == 0
    confirmed = ConfirmedFile(str(root / "congreve"))
    for count in (10, 11, 40):
        # The end of a message is the beginning of the next one.
        end = (*places, 1 << 40)[count]
        confirmed.replace(end - 1)
        export.run()
        assert len(stores.in_table(warehouse)) == count - (count < 40)
        confirmed.replace(end)
        export.run()
        assert len(stores.in_table(warehouse)) == count
    assert stores.in_table(warehouse) == stores.in_store(root)


def test_offsets_are_noted_of_a_table_that_others_write(tmp_path: Path) -> None:
    root, warehouse = stores.write(tmp_path / "store", 40), tmp_path / "lake"
    slave = shutil.copytree(root, tmp_path / "slave")
    noted = ExportedFile(str(slave / "congreve"))
    follower = Follower([exporter(slave, warehouse)], lag_s=0.02, noted=noted, note_only=True)
    thread = threading.Thread(target=follower.run)
    thread.start()
    exporter(root, warehouse).run()
    deadline = time.monotonic() + 60

    def ends() -> dict[int, int]:
        topic = noted.load().get(stores.TOPIC)
        return {} if topic is None else {i: queue.end for i, queue in topic.queues.items()}

    while ends() != dict.fromkeys(range(4), 10):
        assert time.monotonic() < deadline, noted.load()
        time.sleep(0.02)
    follower.stop()
    thread.join()
    assert len(stores.table_of(warehouse).snapshots()) == 1


def test_the_follower_waits_for_the_first_checkpoint(tmp_path: Path) -> None:
    root, warehouse = stores.write(tmp_path / "store", 12), tmp_path / "lake"
    (root / "abort").touch()
    for file in (root / "congreve").glob("queues.json*"):
        file.unlink()
    follower = Follower([exporter(root, warehouse)], lag_s=0.05)
    thread = threading.Thread(target=follower.run)
    thread.start()
    with stores.open_writer(root) as writer:
        writer.checkpoint()
        wait_for_rows(warehouse, 12)
    follower.stop()
    thread.join()


def test_missing_and_failing_topics_do_not_delay_other_topics(
    tmp_path: Path,
) -> None:
    root, warehouse = stores.write(tmp_path / "store", 12), tmp_path / "lake"
    catalog = open_catalog(str(warehouse))
    catalog.create_namespace("rocketmq")
    catalog.create_table("rocketmq.foreign", SCHEMA.remove(0))

    def of(topic: str, table: str) -> Exporter:
        return Exporter(
            DurableTopic(root, topic, "broker-a"), TopicTable(catalog, table, SCHEMA, "day")
        )

    exporters = [of("later", "rocketmq.later"), of("T", "rocketmq.foreign"), of("T", "rocketmq.T")]
    follower = Follower(exporters, lag_s=0.05)
    thread = threading.Thread(target=follower.run)
    thread.start()
    wait_for_rows(warehouse, 12)
    follower.stop()
    thread.join()
    assert not catalog.table_exists("rocketmq.later")


def test_a_full_disk_ends_neither_an_export_nor_an_upkeep_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, warehouse = stores.write(tmp_path / "store", 12), tmp_path / "lake"
    catalog = open_catalog(str(warehouse))
    exporters = [exporter(root, warehouse)]
    later = TopicTable(catalog, "rocketmq.later", SCHEMA, "day")
    exporters.append(Exporter(DurableTopic(root, "later", "broker-a"), later))
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    failures: list[object] = []

    def once(name: str, of: type) -> None:
        real = getattr(of, name)

        def fail_once(*arguments: object) -> object:
            if name not in failures:
                failures.append(name)
                raise full
            return real(*arguments)

        monkeypatch.setattr(of, name, fail_once)

    once("write", CommitFiles)
    once("finish", CommitFiles)
    once("_merges", Upkeep)
    kept = [Upkeep(exporters[0].table.tables[0], UpkeepRules())]
    follower = Follower(exporters, 0.05, kept, upkeep_s=0.01)
    thread = threading.Thread(target=follower.run)
    thread.start()
    wait_for_rows(warehouse, 12)
    deadline = time.monotonic() + 60
    while len(failures) < 3:
        assert thread.is_alive() and time.monotonic() < deadline
        time.sleep(0.01)
    assert thread.is_alive()
    follower.stop()
    thread.join()


def test_stop_takes_effect_after_the_current_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, warehouse = stores.write(tmp_path / "store", 40), tmp_path / "lake"
    follower = Follower([exporter(root, warehouse, commit_bytes=1)], lag_s=60)
    append = TopicTable.append

    def append_and_stop(table: TopicTable, files: CommitFiles, progress: Progress) -> None:
        append(table, files, progress)
        follower.stop()

    monkeypatch.setattr(TopicTable, "append", append_and_stop)
    assert follower.run() == 10 == len(stores.in_table(warehouse))


def test_a_table_that_no_longer_fits_its_store_ends_the_follower(tmp_path: Path) -> None:
    warehouse = tmp_path / "lake"
    exporter(stores.write(tmp_path / "long", 40), warehouse).run()
    with pytest.raises(ProgressError, match="another store"):
        Follower([exporter(stores.write(tmp_path / "short", 20), warehouse)], 60).run()


def test_sigterm_ends_the_command(tmp_path: Path) -> None:
    root, warehouse = stores.write(tmp_path / "store", 40), tmp_path / "lake"
    process = stores.command(root, warehouse, "--lag", "3600", name="follow")
    assert process.stdout is not None
    assert process.stdout.readline() == "following T\n"
    process.send_signal(signal.SIGTERM)
    output = process.communicate()[0]
    assert process.returncode == 0, output
    assert "messages were added" in output


def test_the_end_of_standard_input_ends_the_command(tmp_path: Path) -> None:
    root = stores.write(tmp_path / "store", 4)
    more = ("--lag", "3600", "--stop-with-stdin")
    process = stores.command(root, tmp_path / "lake", *more, name="follow")
    assert process.wait(120) == 0, process.communicate()[0]
