"""A store rebuilt from tables serves the same messages at the same offsets."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest

import congreve
from congreve import open_store
from congreve.engine.clock import ManualClock
from congreve.engine.config import StoreConfig
from congreve.engine.errors import StoreError
from congreve.engine.offline.new_store import NewStore
from congreve.engine.offline.verify import StoreExaminer
from congreve.engine.store import MessageStore
from congreve.lake.durable import SCHEMA, DurableTopic
from congreve.lake.errors import RestoreError
from congreve.lake.export import Exporter
from congreve.lake.restore import Restore
from congreve.lake.table import TopicTable, open_catalog
from congreve.lake.upkeep import Upkeep, UpkeepRules
from congreve.records.message.message import Record

from . import stores

CHANGED = ("brokerName", "offsetMsgId", "commitLogOffset", "storeSize", "bodyCRC", "sysFlag")
"""A store has no broker name; the place in the log is a new one; bodies are plain."""


def table(warehouse: Path, topic: str = stores.TOPIC) -> TopicTable:
    return TopicTable(open_catalog(str(warehouse)), f"rocketmq.{topic}", SCHEMA, "day")


def export(store: Path, warehouse: Path, topic: str = stores.TOPIC) -> None:
    Exporter(DurableTopic(store, topic, "broker-a"), table(warehouse, topic), 1).run()


def config(root: Path) -> StoreConfig:
    return StoreConfig(root_dir=str(root), mapped_file_size_commit_log=1 << 20)


def rows(store: Path, topic: str = stores.TOPIC) -> list[dict[str, object]]:
    names = [name for name in SCHEMA.names if name not in CHANGED]
    found = open_store(store).arrow(topic, names).to_pylist()
    return sorted(found, key=lambda row: (row["queueId"], row["queueOffset"]))


def test_a_restored_store_has_the_same_messages_at_the_same_offsets(tmp_path: Path) -> None:
    store, warehouse = stores.write(tmp_path / "store", 100), tmp_path / "lake"
    export(store, warehouse)
    with stores.open_writer(store) as writer:
        stores.put(writer, 100, 100)
        stores.put_plain(writer, 2)
        writer.put(Record(topic="T", body=zlib.compress(b"plain"), sys_flag=1))
    export(store, warehouse)
    Upkeep(table(warehouse), UpkeepRules()).merge()
    new = tmp_path / "new"
    assert Restore([table(warehouse)], "broker-a", config(new)).run() == 203
    assert rows(new) == rows(store)
    assert StoreExaminer(str(new)).verify().problems == []
    with MessageStore(config(new), clock=ManualClock(stores.BEGIN_MS)) as writer:
        stores.put(writer, 200, 4)
    assert [q.max for q in open_store(new).queues("T")] == [54, 51, 51, 51]


def test_queues_begin_where_the_table_does_and_topics_mix_in_the_order_of_time(
    tmp_path: Path,
) -> None:
    store, warehouse = tmp_path / "store", tmp_path / "lake"
    with stores.open_writer(store) as writer:
        clock = writer.clock
        assert isinstance(clock, ManualClock)
        for topic in ("A", "B"):
            writer.queues.get(topic, 0).start_at(7)
        for number in range(20):
            clock.set(stores.BEGIN_MS + number)
            record = Record(topic="AB"[number % 2], body=b"%d" % number, store_host=stores.HOST)
            writer.put(record)
    for topic in ("A", "B"):
        export(store, warehouse, topic)
    new = tmp_path / "new"
    assert Restore([table(warehouse, t) for t in "AB"], "broker-a", config(new)).run() == 20
    for topic in ("A", "B"):
        assert rows(new, topic) == rows(store, topic)
        (queue,) = open_store(new).queues(topic)
        assert (queue.min, queue.max) == (7, 17)
    places = {
        row["storeTimestamp"]: row["commitLogOffset"]
        for topic in "AB"
        for row in open_store(new).arrow(topic, ["storeTimestamp", "commitLogOffset"]).to_pylist()
    }
    assert sorted(places.values()) == [places[time] for time in sorted(places)]


def test_a_broker_serves_a_restored_store(tmp_path: Path) -> None:
    with (
        congreve.serve(tmp_path / "data", mappedFileSizeCommitLog=1 << 20) as node,
        node.producer("writers") as producer,
    ):
        for number in range(10):
            producer.send(congreve.Message(topic="T", body=b"%d" % number, tags="t"))
    export(tmp_path / "data" / "store", tmp_path / "lake")
    new = tmp_path / "new" / "store"
    new.parent.mkdir()
    assert Restore([table(tmp_path / "lake")], "broker-a", config(new)).run() == 10
    with (
        congreve.serve(tmp_path / "new", mappedFileSizeCommitLog=1 << 20) as node,
        node.consumer("readers", topics={"T": "*"}) as consumer,
    ):
        seen: list[bytes] = []
        while len(seen) < 10:
            seen += [message.body for message in consumer.poll()]
    assert sorted(seen) == [b"%d" % number for number in range(10)]


def test_an_impossible_restore_is_refused(tmp_path: Path) -> None:
    warehouse, new = tmp_path / "lake", tmp_path / "new"
    with pytest.raises(RestoreError, match="no table"):
        Restore([table(warehouse)], "broker-a", config(new)).run()
    new.mkdir()
    export(stores.write(tmp_path / "store", 4), warehouse)
    with pytest.raises(StoreError, match="exists"):
        Restore([table(warehouse)], "broker-a", config(new)).run()


def test_an_incomplete_store_has_a_temporary_name(tmp_path: Path) -> None:
    first = Record(topic="T", body=b"x", queue_offset=3, store_timestamp=1)
    with (
        pytest.raises(StoreError, match="offset 5 comes after 3"),
        NewStore(config(tmp_path / "new")) as store,
    ):
        store.put(first)
        store.put(Record(topic="T", body=b"x", queue_offset=5, store_timestamp=2))
    assert not (tmp_path / "new").exists() and (tmp_path / "new.restoring").exists()


def test_the_command_restores_and_prints_the_number_of_messages(tmp_path: Path) -> None:
    store, warehouse = stores.write(tmp_path / "store", 8), tmp_path / "lake"
    export(store, warehouse)
    process = stores.command(tmp_path / "new", warehouse, name="restore")
    output = process.communicate()[0]
    assert process.returncode == 0, output
    assert "8 messages were restored" in output
    assert stores.in_store(tmp_path / "new") == stores.in_store(store)


def test_a_message_that_the_store_refuses_ends_the_restore(tmp_path: Path) -> None:
    small = StoreConfig(
        root_dir=str(tmp_path / "new"), mapped_file_size_commit_log=1 << 20, max_message_size=9
    )
    with (
        pytest.raises(StoreError, match="the message at 0 was not stored: MESSAGE_ILLEGAL"),
        NewStore(small) as store,
    ):
        store.put(Record(topic="T", body=b"ten bytes.", queue_offset=0, store_timestamp=1))
