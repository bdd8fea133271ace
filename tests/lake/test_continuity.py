"""A table continues the messages that it has, and no other ones with their offsets."""

from __future__ import annotations

import re
import shutil
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from congreve.console.lake import lake
from congreve.engine.state.exported import ExportedFile, ExportedQueue, ExportedTopic
from congreve.engine.state.identity import IdentityFile
from congreve.lake import progress
from congreve.lake.durable import SCHEMA, DurableTopic
from congreve.lake.errors import ProgressError, TableError
from congreve.lake.export import Exporter
from congreve.lake.follow import Follower
from congreve.lake.progress import LAST_MESSAGES, Progress
from congreve.lake.table import TopicTable, open_catalog
from congreve.records.message.message import Record

from . import stores

BROKER = "broker-a"
QUEUES = 4


def exporter(store: Path, warehouse: Path) -> Exporter:
    table = TopicTable(open_catalog(str(warehouse)), f"rocketmq.{stores.TOPIC}", SCHEMA, "day")
    noted = ExportedFile(str(store / "congreve"))

    def of_queues() -> dict[int, ExportedQueue]:
        known = noted.load()
        return known[stores.TOPIC].queues if stores.TOPIC in known else {}

    return Exporter(DurableTopic(store, stores.TOPIC, BROKER), table, noted=of_queues)


def other(number: int) -> bytes:
    return b"BODY %d" % number


def make_again(root: Path, messages: int) -> None:
    """Delete the topic, and fill it with other messages of the same size."""
    with stores.open_writer(root) as store:
        store.delete_topic(stores.TOPIC)
        stores.put(store, 400, messages, other)


def as_earlier_version(patch: pytest.MonkeyPatch) -> None:
    """Let exporters write no last messages."""

    def to_properties(known: Progress) -> dict[str, str]:
        found = progress.to_properties(known)
        del found[LAST_MESSAGES]
        return found

    patch.setattr("congreve.lake.table.to_properties", to_properties)


def expire_all(root: Path) -> None:
    """Leave the queues their entries, and no message."""
    with stores.open_writer(root) as store:
        end = store.log.max_offset
        while store.log.segments[-1].base_offset < end:
            store.put(Record(topic="Other", body=bytes(1000)))
        while len(store.log.segments) > 1:
            store.log.delete_oldest()
        for queue in store.queues:
            queue.correct_min_offset(store.log.min_offset)


@pytest.mark.parametrize("messages", [4, 30, 40, 80])
def test_a_topic_that_was_made_again_is_not_exported_to_its_old_table(
    tmp_path: Path, messages: int
) -> None:
    root, warehouse = stores.write(tmp_path / "store", 40), tmp_path / "lake"
    follower = exporter(root, warehouse)
    assert follower.run() == 40
    before = stores.in_table(warehouse)
    make_again(root, messages)
    for each in (follower, exporter(root, warehouse)):
        with pytest.raises(ProgressError, match="deleted topic of this name"):
            each.run()
    assert stores.in_table(warehouse) == before


def test_a_note_of_a_deleted_topic_is_replaced(tmp_path: Path) -> None:
    root, warehouse = stores.write(tmp_path / "store", 40), tmp_path / "lake"
    each, noted = exporter(root, warehouse), ExportedFile(str(root / "congreve"))
    each.run()
    make_again(root, 80)
    with pytest.raises(ProgressError):
        Follower([each], 60, noted=noted).run()
    assert noted.load() == {stores.TOPIC: ExportedTopic("", {})}


def test_two_stores_do_not_share_a_broker_name_in_a_table(tmp_path: Path) -> None:
    warehouse = tmp_path / "lake"
    assert exporter(stores.write(tmp_path / "one", 40), warehouse).run() == 40
    with stores.open_writer(tmp_path / "two") as store:
        stores.put(store, 100, 60, other)
    with pytest.raises(ProgressError, match="belongs to another store"):
        exporter(tmp_path / "two", warehouse).run()


@pytest.mark.parametrize("is_same", [True, False])
def test_a_table_of_an_earlier_version_is_adopted_by_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_same: bool
) -> None:
    root, warehouse = stores.write(tmp_path / "store", 40), tmp_path / "lake"
    with monkeypatch.context() as patch:
        as_earlier_version(patch)
        exporter(root, warehouse).run()
    if is_same:
        with stores.open_writer(root) as store:
            stores.put(store, 40, 20)
        assert exporter(root, warehouse).run() == 20
        assert stores.in_table(warehouse) == stores.in_store(root)
    else:
        make_again(root, 80)
        with pytest.raises(ProgressError, match="deleted topic"):
            exporter(root, warehouse).run()


def test_a_copy_of_a_store_continues_the_table(tmp_path: Path) -> None:
    root, warehouse = stores.write(tmp_path / "store", 40), tmp_path / "lake"
    exporter(root, warehouse).run()
    copy = shutil.copytree(root, tmp_path / "copy")
    (copy / "congreve" / "identity.json").unlink()
    with stores.open_writer(copy) as store:
        stores.put(store, 40, 20)
    assert exporter(copy, warehouse).run() == 20
    with stores.open_writer(root) as store:  # the one that was the master goes another way
        stores.put(store, 60, 40, other)
    with pytest.raises(ProgressError, match="another message"):
        exporter(root, warehouse).run()


def test_messages_that_expired_are_known_by_their_place(tmp_path: Path) -> None:
    root, warehouse = stores.write(tmp_path / "store", 40), tmp_path / "lake"
    exporter(root, warehouse).run()
    expire_all(root)
    with stores.open_writer(root) as store:
        assert {q.min for q in store.queues.of_topic(stores.TOPIC)} == {10}
        stores.put(store, 40, 20)
    assert exporter(root, warehouse).run() == 20
    expire_all(root)
    (root / "congreve" / "identity.json").unlink()
    with stores.open_writer(root) as store:
        assert store.identity
    with pytest.raises(ProgressError, match="cannot be known"):
        exporter(root, warehouse).run()


def test_a_copy_that_noted_the_messages_knows_them_after_they_expired(tmp_path: Path) -> None:
    root, warehouse = stores.write(tmp_path / "store", 40), tmp_path / "lake"
    exporter(root, warehouse).run()
    copy = shutil.copytree(root, tmp_path / "copy")
    (copy / "congreve" / "identity.json").unlink()
    known = exporter(copy, warehouse).exported(is_copy=True)
    ExportedFile(str(copy / "congreve")).replace({stores.TOPIC: known})
    expire_all(copy)
    with stores.open_writer(copy) as store:
        stores.put(store, 40, 20)
    assert exporter(copy, warehouse).run() == 20


def test_a_slave_that_is_behind_notes_the_queues_that_it_has(tmp_path: Path) -> None:
    warehouse = tmp_path / "lake"
    exporter(stores.write(tmp_path / "master", 41), warehouse).run()
    slave = stores.write(tmp_path / "slave", 40)
    found = exporter(slave, warehouse).exported(is_copy=True)
    assert {i: queue.end for i, queue in found.queues.items()} == {1: 10, 2: 10, 3: 10}


def test_a_table_that_was_set_aside_makes_room_for_a_new_one(tmp_path: Path) -> None:
    root, warehouse = stores.write(tmp_path / "store", 40), tmp_path / "lake"
    exporter(root, warehouse).run()
    before = stores.in_table(warehouse)
    make_again(root, 60)
    arguments = ["--topic", stores.TOPIC, "--warehouse", str(warehouse), "--to", "rocketmq.old"]
    done = CliRunner().invoke(lake, ["set-aside", *arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert exporter(root, warehouse).run() == 60
    assert stores.in_table(warehouse) == stores.in_store(root)
    assert stores.in_table(warehouse, "old") == before


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("set-aside", "--to", "old"), "'old' names no table: write NAMESPACE.NAME"),
        (("set-aside", "--to", "nowhere.old"), "cannot be named nowhere.old: Namespace does not"),
        (("status", "--table", "orders"), "'orders' names no table: write NAMESPACE.NAME"),
        (("export", "--table", "a."), "'a.' names no table: write NAMESPACE.NAME"),
        (("export", "--table", "a.b.c"), "table a.b.c cannot be created: Invalid path"),
    ],
)
def test_names_that_no_table_can_have_are_refused(
    tmp_path: Path, arguments: tuple[str, ...], says: str
) -> None:
    root = stores.write(tmp_path / "store", 4)
    exporter(root, tmp_path / "lake").run()
    place = ["--topic", stores.TOPIC, "--warehouse", str(tmp_path / "lake")]
    place += [] if "--to" in arguments else ["--store", str(root)]
    with pytest.raises(TableError, match=re.escape(says)):
        CliRunner().invoke(lake, [*arguments, *place], catch_exceptions=False)


def test_a_warehouse_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "lake").write_text("")
    with pytest.raises(TableError, match="lake is no folder: File exists"):
        open_catalog(str(tmp_path / "lake"))


def of_life(life: int, number: int) -> bytes:
    return b"life %d, %d" % (life, number)


@settings(max_examples=15, deadline=None)
@given(steps=st.lists(st.sampled_from(["put", "export", "make again", "copy"]), max_size=8))
def test_a_table_never_mixes_topics(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("steps")
    root, warehouse = stores.write(folder / "store", 4), folder / "lake"
    lives = 0
    exported: set[int] = set()
    for number, step in enumerate(["export", *steps, "export"], 1):
        if step == "put":
            with stores.open_writer(root) as store:
                stores.put(store, number * 100, 8, partial(of_life, lives))
        elif step == "make again":
            lives += 1
            with stores.open_writer(root) as store:
                store.delete_topic(stores.TOPIC)
                stores.put(store, number * 100, 4 * number, partial(of_life, lives))
        elif step == "copy":
            root = shutil.copytree(root, folder / f"copy {number}")
            (root / "congreve" / "identity.json").unlink()
            with stores.open_writer(root):
                assert IdentityFile(str(root / "congreve")).load()
        else:
            try:
                exporter(root, warehouse).run()
            except ProgressError:
                assert lives not in exported
            else:
                exported.add(lives)
                assert stores.in_table(warehouse) == stores.in_store(root)
    assert len(exported) == 1
