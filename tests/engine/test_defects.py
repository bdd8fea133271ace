"""Defects of the reference that this store does not have: one test each, named by what it prevents.

The numbers are those of docs/reference-defects.md.
"""

import logging
import os
import shutil
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from congreve.base.clock import ManualClock
from congreve.engine.config import StoreConfig
from congreve.engine.errors import StoreLockedError
from congreve.engine.results import PutStatus
from congreve.engine.store import MessageStore
from congreve.engine.store_files.verify import StoreExaminer
from congreve.records.message.message import Record
from congreve.records.record import decode_record, encode_record

SEGMENT = 4096
HOUR = 3_600_000
START = 1_700_000_000_000
FILLER = struct.pack(">qiq", 0, 0x7FFFFFFF, 0)


def config_of(root: Path, **settings: Any) -> StoreConfig:
    fields: dict[str, Any] = {
        "root_dir": str(root),
        "mapped_file_size_commit_log": SEGMENT,
        "mapped_file_size_consume_queue": 80,
        "max_hash_slot_num": 7,
        "max_index_num": 64,
    }
    return StoreConfig(**{**fields, **settings})


def message(number: int, **fields: Any) -> Record:
    return Record(
        topic="T", body=b"message %d" % number, properties={"KEYS": f"k{number}"}, **fields
    )


def fill(root: Path, count: int, **settings: Any) -> None:
    with MessageStore(config_of(root, **settings), clock=ManualClock(START)) as store:
        for number in range(count):
            store.put(message(number))


def write_times(root: Path) -> dict[Path, int]:
    """The write times of all files."""
    return {path: path.stat().st_mtime_ns for path in root.rglob("*") if path.is_file()}


def await_next_segment(store: MessageStore, root: Path) -> None:
    """Return once the segment after the log's last one exists; a thread creates it."""
    base = (store.log.max_offset // SEGMENT + 1) * SEGMENT
    deadline = time.monotonic() + 60
    while not (root / "commitlog" / f"{base:020d}").exists():
        assert time.monotonic() < deadline, f"no segment {base} comes"
        time.sleep(0.002)


def bodies(store: MessageStore, queue_id: int = 0) -> list[bytes]:
    queue = store.queues.get("T", queue_id)
    found = [store.read(queue[offset][0]) for offset in range(queue.min, queue.max)]
    return [decode_record(record).body for record in found if record is not None]


def keys_found(store: MessageStore, key: str) -> list[bytes]:
    """Bodies by key, once the index has caught up with the log."""
    assert store.index is not None
    deadline = time.monotonic() + 60
    while store.index.indexed_offset < store.log.max_offset and time.monotonic() < deadline:
        time.sleep(0.002)
    found = store.query("T", key, 10, 0, START + 1000 * HOUR)
    return [decode_record(buffer).body for buffer in found.buffers]


def test_d1_a_record_larger_than_a_segment_is_refused_and_burns_no_segment(tmp_path: Path) -> None:
    with MessageStore(config_of(tmp_path)) as store:
        store.put(message(0))
        put = store.put(Record(topic="T", body=bytes(SEGMENT)))
        assert put.status is PutStatus.MESSAGE_ILLEGAL
        assert store.put(message(1)).queue_offset == 1
        assert len(store.log.segments) == 1


@pytest.mark.parametrize("stop", ["clean", "crash"])
def test_d2_older_keys_are_found_after_a_crash(tmp_path: Path, stop: str) -> None:
    fill(tmp_path, 40)
    if stop == "crash":
        (tmp_path / "abort").touch()
    with MessageStore(config_of(tmp_path)) as store:
        for number in range(40):
            assert keys_found(store, f"k{number}") == [b"message %d" % number]


def test_d5_delayed_messages_keep_their_time_when_queues_are_rebuilt(tmp_path: Path) -> None:
    topic = "SCHEDULE_TOPIC_XXXX"
    clock = ManualClock(START)
    with MessageStore(config_of(tmp_path), clock=clock) as store:
        for level in (1, 3, 18, 99):
            parked = {"DELAY": str(level), "REAL_TOPIC": "T", "REAL_QID": "0", "TAGS": "TagA"}
            store.put(Record(topic=topic, body=b"later", queue_id=0, properties=parked))
        due = [store.queues.get(topic, 0)[offset][2] - START for offset in range(4)]
        assert due == [1_000, 10_000, 7_200_000, 7_200_000]
    shutil.rmtree(tmp_path / "consumequeue")
    (tmp_path / "abort").touch()
    with MessageStore(config_of(tmp_path), clock=clock) as store:
        rebuilt = [store.queues.get(topic, 0)[offset][2] - START for offset in range(4)]
    assert rebuilt == due


def test_d6_records_after_a_cut_never_return(tmp_path: Path) -> None:
    """New records of the same length used to make old ones after them valid again."""
    fill(tmp_path, 9)
    shutil.rmtree(tmp_path / "congreve")
    log = tmp_path / "commitlog" / f"{0:020d}"
    data = bytearray(log.read_bytes())
    data[data.index(b"message 4")] ^= 1
    log.write_bytes(data)
    (tmp_path / "abort").touch()
    (tmp_path / "checkpoint").write_bytes(bytes(4096))
    with MessageStore(config_of(tmp_path)) as store:
        assert bodies(store) == [b"message %d" % n for n in range(4)]
        assert b"message 7" not in log.read_bytes()
        store.put(Record(topic="T", body=b"another 4", properties={"KEYS": "k4"}))
    shutil.rmtree(tmp_path / "congreve")
    with MessageStore(config_of(tmp_path)) as store:
        assert bodies(store) == [*(b"message %d" % n for n in range(4)), b"another 4"]


def test_d6_a_record_must_name_its_own_place(tmp_path: Path) -> None:
    fill(tmp_path, 2)
    shutil.rmtree(tmp_path / "congreve")
    log = tmp_path / "commitlog" / f"{0:020d}"
    data = log.read_bytes()
    first = data[: data.index(b"k0") + 2]
    end = len(first) * 2
    log.write_bytes((data[:end] + first).ljust(SEGMENT, b"\0"))
    with MessageStore(config_of(tmp_path)) as store:
        assert store.log.max_offset == end
        assert store.max_offset("T", 0) == 2


def test_d7_a_zero_filled_last_queue_file_gives_no_phantom_entry(tmp_path: Path) -> None:
    fill(tmp_path, 8)
    (tmp_path / "consumequeue/T/0" / f"{160:020d}").write_bytes(bytes(80))
    with MessageStore(config_of(tmp_path)) as store:
        assert store.max_offset("T", 0) == 8
        assert store.put(message(8)).queue_offset == 8
    assert StoreExaminer(str(tmp_path)).verify().problems == []


def test_d8_a_gap_in_queue_offsets_never_shifts_later_messages(tmp_path: Path) -> None:
    folder = tmp_path / "commitlog"
    folder.mkdir()
    log = b""
    for queue_offset in (0, 1, 3, 4):
        log += encode_record(
            Record(
                topic="T",
                body=b"at %d" % queue_offset,
                queue_offset=queue_offset,
                physical_offset=len(log),
                store_timestamp=START,
            )
        )
    (folder / f"{0:020d}").write_bytes(log.ljust(SEGMENT, b"\0"))
    with MessageStore(config_of(tmp_path)) as store:
        queue = store.queues.get("T", 0)
        for queue_offset in (0, 1, 3, 4):
            record = store.read(queue[queue_offset][0])
            assert record is not None
            assert decode_record(record).body == b"at %d" % queue_offset


def test_d9_a_queue_that_ends_in_filler_takes_new_messages(tmp_path: Path) -> None:
    """Filler claims two gigabytes of the log, so that all later records looked like duplicates."""
    fill(tmp_path, 3)
    queue = tmp_path / "consumequeue/U/0" / f"{0:020d}"
    queue.parent.mkdir(parents=True)
    queue.write_bytes((FILLER * 2).ljust(80, b"\0"))
    shutil.rmtree(tmp_path / "congreve")
    with MessageStore(config_of(tmp_path)) as store:
        assert store.log.max_offset < SEGMENT
        put = store.put(Record(topic="U", body=b"x"))
        assert put.queue_offset == 2
        assert store.queues.get("U", 0)[2][0] == put.physical_offset


def test_d11_a_second_process_changes_no_byte_of_a_store_in_use(tmp_path: Path) -> None:
    fill(tmp_path, 20)
    with MessageStore(config_of(tmp_path), mark_interval_s=3600) as store:
        store.put(message(20))
        assert keys_found(store, "k19")  # the index is complete
        await_next_segment(store, tmp_path)  # no thread of the open store writes now
        before = write_times(tmp_path)
        program = (
            "import sys; from congreve.engine.config import StoreConfig;"
            "from congreve.engine.store import MessageStore;"
            "MessageStore(StoreConfig(root_dir=sys.argv[1])).start()"
        )
        run = subprocess.run(
            [sys.executable, "-c", program, str(tmp_path)], capture_output=True, check=False
        )
        assert b"StoreLockedError" in run.stderr
        assert f"process {os.getpid()}".encode() in run.stderr
        with pytest.raises(StoreLockedError, match="in use"):
            MessageStore(config_of(tmp_path)).start()
        assert write_times(tmp_path) == before
        assert store.put(message(21)).status is PutStatus.PUT_OK


@pytest.mark.parametrize("claimed", [0x7FFFFFFF, -1, -(2**31), 0, 5, SEGMENT])
def test_d12_a_forged_size_is_bounded_by_the_segment(tmp_path: Path, claimed: int) -> None:
    fill(tmp_path, 3)
    shutil.rmtree(tmp_path / "congreve")
    (tmp_path / "abort").touch()
    log = tmp_path / "commitlog" / f"{0:020d}"
    data = bytearray(log.read_bytes())
    second = len(data[: data.index(b"k0") + 2])
    struct.pack_into(">i", data, second, claimed)
    log.write_bytes(data)
    with MessageStore(config_of(tmp_path)) as store:
        assert store.log.max_offset == second


def test_d13_offset_0_has_no_message_after_its_segment_is_deleted(tmp_path: Path) -> None:
    fill(tmp_path, 100)
    with MessageStore(config_of(tmp_path)) as store:
        store.log.delete_oldest()
        assert store.read(0) is None
        assert store.read(store.log.min_offset) is not None


# D14 has its tests in test_recovery.py: test_lost_queues_are_rebuilt.


def test_d15_age_and_time_search_follow_store_times_not_file_times(tmp_path: Path) -> None:
    clock = ManualClock(START)
    with MessageStore(config_of(tmp_path), clock=clock) as store:
        for number in range(100):
            clock.set(START + number * HOUR)
            store.put(message(number))
    for path in tmp_path.rglob("*"):
        os.utime(path, (0, 0))
    clock.set(START + 130 * HOUR)
    with MessageStore(config_of(tmp_path), clock=clock, disk_use=lambda _: 0.8) as store:
        assert store.offset_at("T", 0, START + 40 * HOUR) == 40
        removed = store._housekeeping.clean()
        first = store.min_offset("T", 0)
        assert removed == 1
        assert 0 < first <= 130 - 72
        assert bodies(store) == [b"message %d" % n for n in range(first, 100)]
        assert store.earliest_message_time() == START + first * HOUR


def test_d18_the_last_key_is_indexed_once_after_a_rebuild(tmp_path: Path) -> None:
    fill(tmp_path, 10)
    for _ in range(3):
        shutil.rmtree(tmp_path / "consumequeue")
        with MessageStore(config_of(tmp_path)) as store:
            assert keys_found(store, "k9") == [b"message 9"]


def test_d19_an_idle_store_writes_nothing(tmp_path: Path) -> None:
    fill(tmp_path, 10)
    with MessageStore(config_of(tmp_path)) as store:
        before = write_times(tmp_path)
        for _ in range(100):
            store._housekeeping.round()
        assert write_times(tmp_path) == before


def test_d26_one_rule_refuses_puts_by_the_fuller_partition(tmp_path: Path) -> None:
    use = {"commitlog": 0.5, "root": 0.5}
    config = config_of(tmp_path / "root", commit_log_dir=str(tmp_path / "commitlog"))
    with MessageStore(config, disk_use=lambda folder: use[Path(folder).name]) as store:
        seen = []
        for name, value in (("root", 0.91), ("root", 0.86), ("root", 0.85), ("commitlog", 0.91)):
            use[name] = value
            store._housekeeping.watch_disk()
            seen.append(store.put(message(1)).status)
        assert seen == [
            PutStatus.SERVICE_NOT_AVAILABLE,
            PutStatus.SERVICE_NOT_AVAILABLE,
            PutStatus.PUT_OK,
            PutStatus.SERVICE_NOT_AVAILABLE,
        ]
        assert "91% full" in str(store.check_writable())
        assert bodies(store) == [b"message 1"]


def test_d27_stray_files_do_not_prevent_a_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fill(tmp_path, 20)
    strays = [
        tmp_path / "commitlog/notes.txt",
        tmp_path / "commitlog/.hidden",
        tmp_path / "consumequeue/T/0/copy.tmp",
        tmp_path / "consumequeue/T/0" / f"{7:020d}",
        tmp_path / "consumequeue/T/not-a-queue/file",
        tmp_path / "consumequeue/stray",
        tmp_path / "index/readme",
    ]
    for stray in strays:
        stray.parent.mkdir(parents=True, exist_ok=True)
        stray.write_bytes(b"x")
    with caplog.at_level(logging.WARNING), MessageStore(config_of(tmp_path)) as store:
        assert len(bodies(store)) == 20
    assert "notes.txt" in caplog.text
    assert all(stray.read_bytes() == b"x" for stray in strays)


def test_no_thread_outlives_a_store(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    fill(tmp_path, 3)
    assert set(threading.enumerate()) == before
