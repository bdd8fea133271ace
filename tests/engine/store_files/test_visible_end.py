"""A reader of a store that a broker is writing sees complete messages, and no holes."""

from __future__ import annotations

from pathlib import Path

import pytest

from congreve.base.clock import ManualClock
from congreve.engine.config import StoreConfig
from congreve.engine.state.lock import StoreLock, is_held
from congreve.engine.store import MessageStore
from congreve.engine.store_files.files import StoreFiles
from congreve.records.message.message import Record

COUNT = 200


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Two queues, a hundred messages of some 300 bytes each, of a broker that was killed."""
    config = StoreConfig(
        root_dir=str(tmp_path), flush_disk_type="ASYNC_FLUSH", mapped_file_size_commit_log=32 << 10
    )
    with MessageStore(config, clock=ManualClock(1_750_000_000_000)) as written:
        for number in range(COUNT):
            properties = {"TAGS": "A"} if number % 3 else {}
            written.put(
                Record(topic="T", body=b"%d" % number * 60, properties=properties,
                       queue_id=number % 2)
            )  # fmt: skip
    return tmp_path


def overwrite(store: Path, start: int, stop: int, value: int = 0) -> None:
    """Overwrite bytes of the log, by default with zeros as before they are written."""
    for path in (store / "commitlog").iterdir():
        base = int(path.name)
        data = bytearray(path.read_bytes())
        low, high = max(start - base, 0), min(stop - base, len(data))
        if low < high:
            data[low:high] = bytes([value]) * (high - low)
            path.write_bytes(data)


def places(store: Path, queue_id: int = 0) -> list[tuple[int, int]]:
    queue = StoreFiles(store).queue("T", queue_id)
    return [(int(e["physical_offset"]), int(e["size"])) for e in queue.entries(0, COUNT)]


def ends(store: Path) -> list[int]:
    files = StoreFiles(store)
    return [files.queue("T", queue_id).max_offset for queue_id in (0, 1)]


def test_a_lock_is_detected_without_taking_it(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    assert not is_held(path)
    lock = StoreLock(path)
    lock.acquire()
    assert is_held(path)
    lock.release()
    assert not is_held(path)
    StoreLock(path).acquire()


def test_a_log_is_read_to_its_end_even_while_a_broker_runs(store: Path) -> None:
    assert ends(store) == [100, 100]
    lock = StoreLock(str(store / "lock"))
    lock.acquire()
    assert ends(store) == [100, 100]
    lock.release()


@pytest.mark.parametrize("segments_gone", [False, True])
def test_records_that_are_not_written_yet_are_not_visible(store: Path, segments_gone: bool) -> None:
    physical, size = places(store)[60]
    overwrite(store, physical, 1 << 30)
    if segments_gone:
        for path in (store / "commitlog").iterdir():
            if int(path.name) > physical + size:
                path.unlink()
    lock = StoreLock(str(store / "lock"))
    lock.acquire()
    assert ends(store) == [60, 60]
    lock.release()
    assert ends(store) == [100, 100]  # no broker will write the missing bytes: readers report it


def test_a_reader_waits_for_an_earlier_write_that_is_not_finished(store: Path) -> None:
    # sectors in the middle of a record are missing; its begin and all that follows are there
    physical, size = next(p for p in places(store)[40:] if p[0] // 512 < (p[0] + p[1] - 1) // 512)
    begin = (physical // 512 + 1) * 512
    index = places(store).index((physical, size))
    overwrite(store, begin, begin + 512)
    lock = StoreLock(str(store / "lock"))
    lock.acquire()
    assert ends(store)[0] == index
    assert ends(store)[1] <= index + 2
    lock.release()


def test_damage_does_not_end_a_queue(store: Path) -> None:
    physical, size = places(store)[90]
    overwrite(store, physical + size // 2, physical + size // 2 + 3, value=255)
    lock = StoreLock(str(store / "lock"))
    lock.acquire()
    assert ends(store) == [100, 100]
    lock.release()
