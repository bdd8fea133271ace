"""Each read of a store's files fails once: a reader raises an error and never returns less."""

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from congreve.base.clock import ManualClock
from congreve.base.errors import CongreveError
from congreve.engine.config import StoreConfig
from congreve.engine.errors import StoreError, StoreFormatError
from congreve.engine.state.lock import StoreLock
from congreve.engine.store import MessageStore
from congreve.engine.store_files.files import StoreFiles
from congreve.engine.store_files.verify import StoreExaminer
from congreve.io_backends.files.faulty import Failpoint, FaultyFileSystem
from congreve.io_backends.files.file_system import DISK, FileSystem
from congreve.io_backends.files.recording import Call, RecordingFileSystem
from congreve.records.message.message import Record

OPTIONAL = ("congreve/queues.json", "congreve/left-files.json")
"""Without them verify() has less to compare, and logs a warning."""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    config = StoreConfig(
        root_dir=str(tmp_path),
        mapped_file_size_commit_log=4096,
        mapped_file_size_consume_queue=20 * 10,
        max_hash_slot_num=10,
        max_index_num=40,
    )
    with MessageStore(config, clock=ManualClock(1_700_000_000_000)) as store:
        for number in range(40):
            store.put(Record(topic="T", body=b"x" * 200, queue_id=number % 2))
    return tmp_path


def examine(root: Path, files: FileSystem) -> object:
    examiner = StoreExaminer(str(root), files=files)
    return examiner.info(), examiner.verify()


def read_all(root: Path, files: FileSystem) -> object:
    store = StoreFiles(root, files=files)
    found = []
    for topic in store.topics():
        for queue_id in store.queues(topic):
            queue = store.queue(topic, queue_id)
            for entry in queue.entries(queue.min_offset, queue.max_offset):
                found.append(bytes(store.record(entry["physical_offset"], entry["size"])))
    return found


def read_beside_a_broker(root: Path, files: FileSystem) -> object:
    lock = StoreLock(str(root / "lock"))
    lock.acquire()
    try:
        return read_all(root, files)
    finally:
        lock.release()


@pytest.mark.parametrize("read", [examine, read_all, read_beside_a_broker])
def test_every_failed_read_is_reported(
    store: Path, read: Callable[[Path, FileSystem], object]
) -> None:
    recording = RecordingFileSystem(DISK, str(store))
    whole = read(store, recording)
    assert not recording.changes
    assert {call.name for call in recording.calls} >= {"status", "entries", "map"}
    for number in numbers(recording.calls):
        files = FaultyFileSystem(DISK, Failpoint("", str(store), errno.EIO, nth=number))
        with pytest.raises(CongreveError, match="Input/output error"):
            read(store, files)
        assert files.reached
    assert read(store, DISK) == whole


def numbers(calls: list[Call]) -> list[int]:
    return [number for number, call in enumerate(calls, 1) if not call.path.startswith(OPTIONAL)]


def test_an_expired_segment_differs_from_an_unreadable_one(store: Path) -> None:
    first = f"{0:020d}"
    broken = FaultyFileSystem(DISK, Failpoint("map", f"commitlog/{first}", errno.EIO))
    with pytest.raises(StoreError) as failed:
        StoreFiles(store, files=broken).segment(0)
    assert not isinstance(failed.value, StoreFormatError)
    files = StoreFiles(store)
    (store / "commitlog" / first).unlink()
    with pytest.raises(StoreFormatError, match="No such file"):
        files.segment(0)
