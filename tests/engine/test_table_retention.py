"""`lakeRetention`: segments that tables lack are kept; others may be deleted earlier."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from congreve.base.clock import ManualClock
from congreve.engine.config import StoreConfig
from congreve.engine.state.exported import ExportedFile, ExportedQueue, ExportedTopic
from congreve.engine.state.sealed import seal
from congreve.engine.store import MessageStore
from congreve.records.message.message import Record

START = 1_700_000_000_000
HOUR = 3_600_000


def open_store(root: Path, **settings: Any) -> MessageStore:
    config = StoreConfig(
        root_dir=str(root),
        **{"mapped_file_size_commit_log": 4096, "mapped_file_size_consume_queue": 400},
        **{"max_hash_slot_num": 7, "max_index_num": 64, "delete_commit_log_files_interval": 0},
        **{"file_reserved_time": 72, "lake_reserved_time": 1, **settings},
    )
    return MessageStore(config, clock=ManualClock(START), exported_topics=("T",))


def fill(store: MessageStore, topic: str = "T", count: int = 200) -> None:
    for number in range(count):
        store.put(Record(topic=topic, body=b"message %d" % number))


def clean(store: MessageStore) -> int:
    store._housekeeping._retention.request_manually()
    return store._housekeeping.clean()


def later(store: MessageStore, hours: int) -> None:
    assert isinstance(store.clock, ManualClock)
    store.clock.set(store.clock.now() + hours * HOUR)


def export(store: MessageStore, end: int) -> None:
    queue = store.queues.get("T", 0)
    noted = ExportedQueue(end, queue.place(end - 1))
    topic = ExportedTopic("table", {0: noted})
    ExportedFile(store.config.own_dir).replace({"T": topic})


def test_messages_that_no_table_has_are_kept_at_any_age(tmp_path: Path) -> None:
    with open_store(tmp_path, clean_file_forcibly_enable=True) as store:
        store._housekeeping._disk_use = lambda _: 0.89  # removes segments of any age
        fill(store)
        later(store, 1000)
        assert clean(store) == 0
        export(store, 100)
        assert clean(store) > 0
        assert 0 < store.min_offset("T", 0) <= 100
        assert clean(store) == 0


def test_messages_that_tables_have_expire_after_their_own_time(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        fill(store)
        export(store, 200)
        assert clean(store) == 0
        later(store, 2)
        assert clean(store) > 0
        assert store.min_offset("T", 0) > 100
        assert store.max_offset("T", 0) == 200


def test_a_queue_begins_behind_messages_before_they_are_removed(tmp_path: Path) -> None:
    class Log:
        """The store's log; the first offset of a queue is noted at each removal."""

        def __getattr__(self, name: str) -> Any:
            return getattr(store.log, name)

        def delete_oldest(self) -> None:
            store.log.delete_oldest()
            queue = store.queues.get("T", 0)
            assert queue[queue.min][0] >= store.log.min_offset
            removed.append(queue.min)

    removed: list[int] = []
    with open_store(tmp_path) as store:
        fill(store)
        export(store, 200)
        later(store, 2)
        store._housekeeping._log = Log()  # type: ignore[assignment]
        assert clean(store) == len(removed) > 1
        assert removed == sorted(set(removed))


def test_messages_of_other_topics_stay_for_their_time(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        fill(store, count=60)
        fill(store, "Other", 1)
        fill(store, count=140)
        export(store, 200)
        later(store, 2)
        assert clean(store) > 0
        assert store.min_offset("T", 0) <= 60
        assert store.min_offset("Other", 0) == 0
        later(store, 72)
        assert clean(store) > 0
        assert store.min_offset("Other", 0) == store.max_offset("Other", 0) == 1


def test_a_damaged_file_keeps_everything(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        fill(store)
        export(store, 200)
        (Path(store.config.own_dir) / "exported.json").write_text("{}")
        later(store, 1000)
        assert clean(store) == 0


def test_a_note_of_a_deleted_topic_is_not_about_the_next(tmp_path: Path) -> None:
    for count in (150, 200, 300):
        with open_store(tmp_path / str(count)) as store:
            fill(store)
            export(store, 200)
            store.delete_topic("T")
            fill(store, count=count)
            later(store, 1000)
            assert clean(store) > 0, "the segments of the deleted topic"
            assert (store.min_offset("T", 0), store.max_offset("T", 0)) == (0, count)
            assert store.get("T", 0, 0, 1).count == 1


def test_a_note_of_an_earlier_version_keeps_everything(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        fill(store)
        noted = Path(store.config.own_dir) / "exported.json"
        noted.write_text(seal(b'{"T":{"0":200}}'))
        later(store, 1000)
        assert clean(store) == 0
        assert not list(noted.parent.glob("*.damaged*"))
