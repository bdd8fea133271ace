"""The public class of a store, also with a failing disk."""

import errno
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from congreve.base.clock import ManualClock
from congreve.engine.config import StoreConfig
from congreve.engine.errors import StoreError, StoreFormatError
from congreve.engine.health import Health
from congreve.engine.log.watch import watch
from congreve.engine.queue.consume_queue import ConsumeQueue
from congreve.engine.results import PutStatus
from congreve.engine.store import MessageStore
from congreve.io_backends.errors import BackendError
from congreve.io_backends.files.faulty import Failpoint, FaultyFileSystem
from congreve.io_backends.files.file_system import DISK
from congreve.records.message.message import Record
from congreve.records.record import decode_record, encode_record, offset_message_id

START = 1_700_000_000_000


def config_of(root: Path, **settings: Any) -> StoreConfig:
    fields: dict[str, Any] = {
        "root_dir": str(root),
        "mapped_file_size_commit_log": 4096,
        "mapped_file_size_consume_queue": 80,
        "max_hash_slot_num": 7,
        "max_index_num": 64,
        "max_message_size": 2000,
    }
    return StoreConfig(**{**fields, **settings})


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START)


def element(body: bytes) -> bytes:
    return struct.pack(">5i", 22 + len(body), 0, 0, 0, len(body)) + body + struct.pack(">h", 0)


def test_a_put_returns_offset_and_time(tmp_path: Path, clock: ManualClock) -> None:
    host = ("10.0.0.7", 10911)
    with MessageStore(config_of(tmp_path), clock=clock) as store:
        first = store.put(Record(topic="T", body=b"one", queue_id=3, store_host=host))
        second = store.put(Record(topic="T", body=b"two", queue_id=3, store_host=host))
        assert (first.queue_offset, second.queue_offset) == (0, 1)
        assert second.physical_offset == first.end
        assert second.store_timestamp == START
        assert second.message_ids == offset_message_id(host, first.end)
        assert store.wait_durable(second.end, 10)
        record = store.read(second.physical_offset)
        assert record is not None
        assert decode_record(record).body == b"two"


def test_a_batch_has_an_id_for_each_member(tmp_path: Path) -> None:
    host = ("10.0.0.7", 10911)
    with MessageStore(config_of(tmp_path)) as store:
        shared = Record(topic="T", body=b"", store_host=host)
        put = store.put_batch(shared, element(b"a") + element(b"bb") + element(b"c"))
        offsets = [store.queues.get("T", 0)[offset][0] for offset in range(3)]
        assert put.message_ids.split(",") == [offset_message_id(host, at) for at in offsets]
        assert store.put_batch(shared, b"nonsense").status is PutStatus.MESSAGE_ILLEGAL
        assert store.max_offset("T", 0) == 3


@pytest.mark.parametrize(
    ("record", "status"),
    [
        (Record(topic="T", body=bytes(2001)), PutStatus.MESSAGE_ILLEGAL),
        (Record(topic="T" * 128, body=b""), PutStatus.MESSAGE_ILLEGAL),
        (Record(topic="", body=b""), PutStatus.MESSAGE_ILLEGAL),
        (
            Record(topic="T", body=b"", properties={"k": "v" * 32766}),
            PutStatus.PROPERTIES_SIZE_EXCEEDED,
        ),
        (Record(topic="T", body=b"", properties={"k": "a\x02b"}), PutStatus.MESSAGE_ILLEGAL),
    ],
)
def test_values_that_the_format_cannot_hold_are_refused(
    tmp_path: Path, record: Record, status: PutStatus
) -> None:
    with MessageStore(config_of(tmp_path)) as store:
        before = store.log.max_offset
        assert store.put(record).status is status
        assert store.log.max_offset == before


def test_a_store_that_is_not_open_refuses_calls(tmp_path: Path) -> None:
    store = MessageStore(config_of(tmp_path))
    assert store.put(Record(topic="T", body=b"")).status is PutStatus.SERVICE_NOT_AVAILABLE
    assert store.check_writable() == "the store is not open"
    assert list(tmp_path.iterdir()) == []


def test_a_watched_queue_is_reported_once_for_each_put(tmp_path: Path) -> None:
    arrivals: list[ConsumeQueue] = []
    with MessageStore(config_of(tmp_path), on_arrival=arrivals.append) as store:
        store.put(Record(topic="T", body=b""))
        assert arrivals == []
        watch(store.log.lock, store.queues.get("T", 0), 1)
        store.put(Record(topic="T", body=b""))
        assert [(queue.topic, queue.queue_id, queue.max) for queue in arrivals] == [("T", 0, 2)]


def test_offsets_of_a_queue_are_found_by_time_in_the_store(
    tmp_path: Path, clock: ManualClock
) -> None:
    with MessageStore(config_of(tmp_path), clock=clock) as store:
        for number in range(10):
            clock.set(START + number * 1000)
            store.put(Record(topic="T", body=b"%d" % number))
        assert (store.min_offset("T", 0), store.max_offset("T", 0)) == (0, 10)
        assert (store.min_offset("T", 1), store.max_offset("T", 1)) == (-1, 0)
        assert store.offset_at("T", 0, START + 4400) == 4
        assert store.offset_at("U", 0, START) == 0
        assert store.store_time("T", 0, 7) == START + 7000
        assert store.store_time("T", 0, 10) == -1
        assert store.earliest_store_time("T", 0) == START
        assert store.earliest_store_time("U", 0) == -1
        assert store.earliest_message_time() == START


def test_a_deleted_topic_stays_deleted_after_a_crash(tmp_path: Path) -> None:
    store = MessageStore(config_of(tmp_path))
    store.start()
    for topic in ("keep", "drop", "SCHEDULE_TOPIC_XXXX"):
        for queue_id in range(3):
            store.put(Record(topic=topic, body=b"x", queue_id=queue_id))
    assert store.unused_topics({"keep"}) == ["drop"]
    assert store.delete_topic("drop") == 3
    store.close()
    (tmp_path / "abort").touch()
    with MessageStore(config_of(tmp_path)) as again:
        assert sorted(again.queues.topics()) == ["SCHEDULE_TOPIC_XXXX", "keep"]
        assert not (tmp_path / "consumequeue/drop").exists()
        assert again.put(Record(topic="drop", body=b"new")).queue_offset == 0


def test_a_failed_disk_refuses_messages_with_the_reason_and_keeps_the_abort_file(
    tmp_path: Path,
) -> None:
    store = MessageStore(config_of(tmp_path))
    store.start()
    store.put(Record(topic="T", body=b"before"))
    store.health.fail("the disk failed: Input/output error")
    put = store.put(Record(topic="T", body=b"after"))
    assert put.status is PutStatus.SERVICE_NOT_AVAILABLE
    assert store.check_writable() == "the disk failed: Input/output error"
    assert not store.writable
    assert store.read(0) is not None
    store.close()
    assert (tmp_path / "abort").exists()


def test_a_backend_failure_is_detected_without_a_report() -> None:
    class FailedBackend:
        failure_errno = 0

    backend = FailedBackend()
    health = Health(backend)  # type: ignore[arg-type]
    assert health.reason() is None
    backend.failure_errno = 5
    assert health.reason() == "the disk failed: Input/output error"
    assert health.failed
    health.set_disk_full("full")
    health.set_disk_full(None)
    assert health.reason() == "the disk failed: Input/output error"


def test_a_store_with_other_settings_is_refused_and_not_changed(tmp_path: Path) -> None:
    with MessageStore(config_of(tmp_path)) as store:
        store.put(Record(topic="T", body=b"x"))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(StoreFormatError, match=r"=8192: the files of .* were made with .*=4096"):
        MessageStore(config_of(tmp_path, mapped_file_size_commit_log=8192)).start()
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before
    with MessageStore(config_of(tmp_path)) as store:  # the lock was given back
        assert store.max_offset("T", 0) == 1


def test_a_folder_that_cannot_be_written_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="Not a directory"):
        MessageStore(config_of(tmp_path / "file" / "store")).start()
    assert os.listdir(tmp_path) == ["file"]


FULL_DISK = """
import resource, sys
from congreve.engine.config import StoreConfig
from congreve.engine.store import MessageStore
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
MessageStore(StoreConfig(root_dir=sys.argv[1])).start()
"""


def test_a_failed_start_on_a_full_disk_leaves_no_file(tmp_path: Path) -> None:
    root = tmp_path / "new" / "store"
    run = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(root)], capture_output=True, text=True, check=False
    )
    assert run.returncode == 1
    last = run.stderr.splitlines()[-1]
    assert "BackendError: cannot" in last, run.stderr
    assert not root.exists()


def test_a_put_is_refused_if_the_next_segment_cannot_be_created(tmp_path: Path) -> None:
    with MessageStore(config_of(tmp_path)) as store:
        store.put(Record(topic="T", body=b"x"))

        def refuse() -> Any:
            raise BackendError("cannot create: No space left on device")

        put = store._put(Record(topic="T", body=b""), store.queues.get("T", 0), 0, refuse)
        assert put.status is PutStatus.CREATE_MAPEDFILE_FAILED


def test_the_store_reports_its_figures(tmp_path: Path) -> None:
    with MessageStore(config_of(tmp_path), disk_use=lambda _: 0.25) as store:
        put = store.put(Record(topic="T", body=b"x"))
        store.wait_durable(put.end, 10)
        stats = store.stats()
        assert (stats.log_begin, stats.log_end, stats.durable) == (0, put.end, put.end)
        assert (stats.topics, stats.queues, stats.commit_log_disk_use) == (1, 1, 0.25)


def test_the_log_of_a_refused_message_is_truncated(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with MessageStore(config_of(tmp_path)) as store:
        put = store.put(Record(topic="T", body=b"secret" * 200, flag=1 << 40))
        assert put.status is PutStatus.MESSAGE_ILLEGAL
    assert str(1 << 40) in caplog.text
    assert "secret" not in caplog.text and len(caplog.text) < 500


def test_a_forged_record_for_a_lost_message_causes_no_search_of_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with MessageStore(config_of(tmp_path)) as store:
        store.put(Record(topic="T", body=b"0"))
        store.queues.get("T", 0).fill_to(2)
        at = store.log.max_offset + 88  # where a record has its body
        forged = Record(topic="T", body=b"forged", physical_offset=at, queue_offset=1)
        store.put(Record(topic="T", body=encode_record(forged)))
        assert store.read(at) is not None
        monkeypatch.setattr(store.repair, "repair", lambda *_: pytest.fail("it was searched"))
        assert store.record_at(at) is None


def test_a_store_that_cannot_remove_its_abort_file_releases_its_lock(tmp_path: Path) -> None:
    config = StoreConfig(root_dir=str(tmp_path), mapped_file_size_commit_log=1 << 20)
    files = FaultyFileSystem(DISK, Failpoint("remove", "/abort", errno.EIO))
    store = MessageStore(config, files=files)
    store.start()
    store.close()
    assert files.reached
    with MessageStore(config):
        pass


def test_a_failed_start_that_cannot_remove_its_segment_releases_its_lock(tmp_path: Path) -> None:
    config = StoreConfig(root_dir=str(tmp_path), mapped_file_size_commit_log=1 << 20)
    files = FaultyFileSystem(DISK, Failpoint("remove", "/commitlog", errno.EIO, times=1000))
    with pytest.raises(BackendError, match="cannot remove"):
        MessageStore(config, files=files).start()
    with MessageStore(config):
        pass
