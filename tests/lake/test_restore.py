"""A store rebuilt from tables serves the same messages at the same offsets."""

from __future__ import annotations

import random
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import congreve
from congreve import open_store
from congreve.base.clock import ManualClock
from congreve.engine.config import StoreConfig
from congreve.engine.errors import StoreError
from congreve.engine.rebuild.new_store import NewStore
from congreve.engine.store import MessageStore
from congreve.engine.store_files.verify import StoreExaminer
from congreve.lake.durable import SCHEMA, DurableTopic
from congreve.lake.errors import RestoreError
from congreve.lake.export import Exporter
from congreve.lake.restore import Restore
from congreve.lake.table import TopicTable, open_catalog
from congreve.lake.upkeep import Upkeep, UpkeepRules
from congreve.records.message.message import Record
from congreve.records.record import encode_record

from . import stores

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), min_size=1, max_size=9)
HOSTS = st.tuples(st.sampled_from(["10.0.0.7", "2001:db8::7"]), st.integers(1, 65_535))
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


@settings(max_examples=4)
@given(
    st.lists(
        st.builds(
            Record,
            topic=st.just("T"),
            body=st.binary(max_size=300),
            properties=st.dictionaries(TEXT, TEXT, max_size=4),
            queue_id=st.integers(0, 2),
            flag=st.integers(-(2**31), 2**31 - 1),
            sys_flag=st.sampled_from([0, 8]),
            born_timestamp=st.integers(0, 2**41),
            born_host=HOSTS,
            store_host=HOSTS,
            reconsume_times=st.integers(0, 2**31 - 1),
        ),
        min_size=20,
        max_size=60,
    )
)
def test_restored_records_have_the_bytes_of_the_log(
    tmp_path_factory: pytest.TempPathFactory, records: list[Record]
) -> None:
    root = tmp_path_factory.mktemp("bytes")
    with stores.open_writer(root / "store") as writer:
        for record in records:
            assert writer.put(record).end
        expected = bytes_of(writer)
    export(root / "store", root / "lake")
    assert Restore([table(root / "lake")], "broker-a", config(root / "new")).run() == len(records)
    with MessageStore(config(root / "new"), clock=ManualClock(stores.BEGIN_MS)) as restored:
        assert bytes_of(restored) == expected


def bytes_of(store: MessageStore) -> dict[tuple[int, int], bytes]:
    """By queue and offset: a record without its place in the log."""
    found = {}
    for queue in store.queues.queues_of("T"):
        for offset in range(queue.max):
            record = bytes(store.get("T", queue.queue_id, offset, 1).buffers[0])
            found[queue.queue_id, offset] = record[:28] + record[36:]
    return found


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
    assert Restore([table(warehouse, t) for t in "AB"], None, config(new)).run() == 20
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


def test_a_broker_without_messages_is_refused_with_the_names_of_those_that_have_some(
    tmp_path: Path,
) -> None:
    warehouse, new = tmp_path / "lake", tmp_path / "new"
    for broker in ("broker-a", "broker-b"):
        topic = DurableTopic(stores.write(tmp_path / broker, 8), stores.TOPIC, broker)
        Exporter(topic, table(warehouse)).run()
    with pytest.raises(RestoreError, match="no messages of broker-c, only those of broker-a, brok"):
        Restore([table(warehouse)], "broker-c", config(new)).run()
    with pytest.raises(RestoreError, match="messages of broker-a, broker-b: name one of them"):
        Restore([table(warehouse)], None, config(new)).run()
    assert not new.exists() and not (tmp_path / "new.restoring").exists()
    for broker in ("broker-a", "broker-b"):
        restored = tmp_path / f"new-{broker}"
        assert Restore([table(warehouse)], broker, config(restored)).run() == 8
        assert rows(restored) == rows(tmp_path / broker)


def test_a_table_without_some_of_the_messages_is_refused(tmp_path: Path) -> None:
    export(stores.write(tmp_path / "store", 40), tmp_path / "lake")
    stores.table_of(tmp_path / "lake").delete("queueId = 1 and queueOffset = 4")
    with pytest.raises(RestoreError, match="queue 1 of T: offset 5 comes after 3"):
        Restore([table(tmp_path / "lake")], "broker-a", config(tmp_path / "new")).run()
    assert not (tmp_path / "new").exists() and (tmp_path / "new.restoring").exists()


def test_the_command_restores_and_prints_the_number_of_messages(tmp_path: Path) -> None:
    store, warehouse = stores.write(tmp_path / "store", 8), tmp_path / "lake"
    export(store, warehouse)
    process = stores.command(tmp_path / "new", warehouse, name="restore")
    output = process.communicate()[0]
    assert process.returncode == 0, output
    assert "8 messages were restored" in output
    assert stores.in_store(tmp_path / "new") == stores.in_store(store)


def test_a_message_that_fits_into_no_segment_ends_the_restore(tmp_path: Path) -> None:
    record = encode_record(Record(topic="T", body=bytes(4096)))
    begins, ends = np.array([0]), np.array([len(record)])
    small = StoreConfig(root_dir=str(tmp_path / "new"), mapped_file_size_commit_log=4096)
    with (
        pytest.raises(StoreError, match="does not fit into a segment of 4096"),
        NewStore(small) as store,
    ):
        store.append(record, begins, ends)


@pytest.mark.parametrize("backend", ["mmap", "pool"])
def test_records_of_any_size_fill_segments(tmp_path: Path, backend: str) -> None:
    chance = random.Random(7)
    records = [
        encode_record(
            Record(topic="T", body=chance.randbytes(chance.choice([0, 99, 700])), queue_offset=i)
        )
        for i in range(200)
    ]
    ends = np.cumsum([len(record) for record in records])
    begins = ends - [len(record) for record in records]
    small = StoreConfig(
        root_dir=str(tmp_path / "new"), mapped_file_size_commit_log=4096, io_backend=backend
    )
    with NewStore(small) as store:
        for part in (slice(0, 90), slice(90, 91), slice(91, 200)):
            store.append(b"".join(records), begins[part], ends[part])
    assert StoreExaminer(small.root_dir).verify().problems == []
    assert len(list((tmp_path / "new" / "commitlog").iterdir())) > 10
    with MessageStore(small) as written:
        for number, record in enumerate(records):
            found = written.get("T", 0, number, 1).buffers[0]
            at = int.from_bytes(found[28:36])
            assert bytes(found) == record[:28] + at.to_bytes(8) + record[36:]
