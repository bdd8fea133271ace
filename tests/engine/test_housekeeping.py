"""Checkpoints, cleaning and disk checks in a running store."""

import os
import time
from pathlib import Path
from typing import Any

from congreve.base.clock import ManualClock
from congreve.engine.config import StoreConfig
from congreve.engine.housekeeping import Housekeeping
from congreve.engine.state.checkpoint import QueueCheckpointFile
from congreve.engine.store import MessageStore
from congreve.engine.store_files.verify import StoreExaminer
from congreve.records.message.message import Record

START = 1_700_000_000_000
HOUR = 3_600_000


def config_of(root: Path, **settings: Any) -> StoreConfig:
    fields: dict[str, Any] = {
        "root_dir": str(root),
        "mapped_file_size_commit_log": 4096,
        "mapped_file_size_consume_queue": 80,
        "max_hash_slot_num": 7,
        "max_index_num": 64,
        "delete_commit_log_files_interval": 0,
    }
    return StoreConfig(**{**fields, **settings})


def fill(store: MessageStore, count: int) -> None:
    for number in range(count):
        store.put(Record(topic="T", body=b"message %d" % number, properties={"KEYS": f"{number}"}))


def test_a_checkpoint_covers_only_durable_bytes(tmp_path: Path) -> None:
    with MessageStore(config_of(tmp_path), clock=ManualClock(START)) as store:
        fill(store, 10)
        assert store._housekeeping.checkpoint()
        known = QueueCheckpointFile(str(tmp_path / "congreve")).load()
        assert known is not None
        assert known.log_end == store.log.max_offset
        promise = known.queues["T"][0]
        assert (promise.min, promise.max, promise.max_physical) == (0, 10, known.log_end)
        assert store.backend.durable_offset == store.log.max_offset
        times = (tmp_path / "checkpoint").read_bytes()
        assert int.from_bytes(times[:8], "big") == int.from_bytes(times[8:16], "big") == START


def test_a_checkpoint_is_written_when_all_queues_have_expired(tmp_path: Path) -> None:
    """The newest record is of a queue that was removed."""
    clock = ManualClock(START)
    with MessageStore(config_of(tmp_path, message_index_enable=False), clock=clock) as store:
        keeper: Housekeeping = store._housekeeping
        keeper.stop()
        fill(store, 50)
        for _ in range(50):
            store.put(Record(topic="U", body=bytes(100)))
        store.remove_topic("U")
        clock.advance(100 * HOUR)
        while store.min_offset("T", 0) < store.max_offset("T", 0):
            keeper._retention.request_manually()
            assert keeper.clean() > 0
        assert keeper.checkpoint()
        known = QueueCheckpointFile(str(tmp_path / "congreve")).load()
        assert known is not None
        assert known.log_end == store.log.max_offset


def test_a_checkpoint_is_written_after_its_interval_and_only_after_a_change(tmp_path: Path) -> None:
    seconds = 0.0
    with MessageStore(config_of(tmp_path)) as store:
        keeper: Housekeeping = store._housekeeping
        keeper.stop()
        keeper._monotonic = lambda: seconds
        keeper._next_checkpoint, keeper._next_clean = 60.0, 1e9
        path = tmp_path / "congreve/queues.json"
        fill(store, 1)
        before = path.stat().st_mtime_ns
        seconds = 59.0
        keeper.round()
        assert path.stat().st_mtime_ns == before
        seconds = 60.0
        keeper.round()
        known = QueueCheckpointFile(str(path.parent)).load()
        assert known is not None
        assert known.log_end == store.log.max_offset
        written = path.stat().st_ino
        seconds = 600.0
        keeper.round()
        assert path.stat().st_ino == written


def test_entries_and_keys_of_expired_segments_are_removed(tmp_path: Path) -> None:
    clock = ManualClock(START)
    with MessageStore(config_of(tmp_path), clock=clock, disk_use=lambda _: 0.8) as store:
        fill(store, 200)
        segments = len(store.log.segments)
        clock.advance(72 * HOUR)
        assert store._housekeeping.clean() == segments - 1
        (left,) = store.log.segments
        made_ahead = f"{left.base_offset + left.size:020d}"
        files = {*os.listdir(tmp_path / "commitlog")} - {made_ahead}
        assert files == {f"{left.base_offset:020d}"}
        first = store.min_offset("T", 0)
        assert store.queues.get("T", 0)[first][0] == store.log.min_offset
        assert len(os.listdir(tmp_path / "consumequeue/T/0")) < 50
        assert store.query("T", "0", 10, 0, 1 << 60).buffers == []
        assert store._housekeeping.clean() == 0
    with MessageStore(config_of(tmp_path), clock=clock) as store:
        assert store.recovery is not None
        assert store.recovery.records == 0
        assert (store.min_offset("T", 0), store.max_offset("T", 0)) == (first, 200)
    assert StoreExaminer(str(tmp_path)).verify().problems == []


def test_a_crash_between_deleting_and_its_checkpoint_rebuilds_nothing(tmp_path: Path) -> None:
    with MessageStore(config_of(tmp_path)) as store:
        fill(store, 200)
    log = sorted((tmp_path / "commitlog").iterdir())
    for path in log[:2]:
        path.unlink()
    (tmp_path / "abort").touch()
    with MessageStore(config_of(tmp_path)) as store:
        assert store.recovery is not None
        assert store.recovery.records == 0
        assert store.queues.get("T", 0)[store.min_offset("T", 0)][0] == store.log.min_offset
        assert store.max_offset("T", 0) == 200


def test_young_segments_stay_at_any_disk_use_below_the_forced_limit(tmp_path: Path) -> None:
    clock = ManualClock(START)
    with MessageStore(config_of(tmp_path), clock=clock, disk_use=lambda _: 0.85) as store:
        fill(store, 200)
        clock.advance(71 * HOUR)
        assert store._housekeeping.clean() == 0


def test_a_nearly_full_disk_keeps_the_segment_being_written(tmp_path: Path) -> None:
    with MessageStore(config_of(tmp_path), disk_use=lambda _: 0.99) as store:
        store.health.set_disk_full(None)
        fill(store, 200)
        for _ in range(10):
            store._housekeeping.clean()
        assert len(store.log.segments) == 1
        assert store.max_offset("T", 0) == 200


def resident(folder: Path) -> int:
    """Bytes of the folder's files that count as this process's memory (proc(5), smaps)."""
    found, ours = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split()[0]:
            ours = f" {folder}/" in line
        elif ours and line.startswith("Rss:"):
            found += int(line.split()[1]) * 1024
    return found


def test_a_large_log_needs_little_memory(tmp_path: Path) -> None:
    """Written bytes leave memory behind the writer, and bytes that were read after a while."""
    config = config_of(tmp_path, mapped_file_size_commit_log=256 << 20, io_backend="mmap")
    with MessageStore(config) as store:
        body = bytes(1 << 20)
        for _ in range(160):
            store.put(Record(topic="T", body=body))
        deadline = time.monotonic() + 60
        while resident(tmp_path) > 88 << 20 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert resident(tmp_path) <= 88 << 20
        assert all(body in bytes(store.get("T", 0, n, 1).buffers[0]) for n in range(160))
        assert resident(tmp_path) > 160 << 20
        store._housekeeping.forget_pages()
        assert resident(tmp_path) <= 80 << 20
        assert body in bytes(store.get("T", 0, 0, 1).buffers[0])
