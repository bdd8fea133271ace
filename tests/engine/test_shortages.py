"""During a shortage a store refuses messages, reports it and retries; then it works as before."""

import contextlib
import logging
import os
import resource
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from congreve.engine.config import StoreConfig
from congreve.engine.health import Health, may_have_lost
from congreve.engine.results import PutStatus
from congreve.engine.store import MessageStore
from congreve.engine.store_files.verify import StoreExaminer
from congreve.io_backends.backends import BACKENDS
from congreve.io_backends.errors import BackendError, SyncError
from congreve.io_backends.mapped.mapped import MmapBackend
from congreve.records.message.message import Record


def config_of(root: Path, **settings: Any) -> StoreConfig:
    fields: dict[str, Any] = {
        "root_dir": str(root),
        "mapped_file_size_commit_log": 1 << 20,
        "mapped_file_size_consume_queue": 8000,
        "max_hash_slot_num": 7,
        "max_index_num": 64,
        "io_backend": "mmap",
    }
    return StoreConfig(**{**fields, **settings})


@contextlib.contextmanager
def no_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))  # open files stay open
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def put(store: MessageStore, number: int, *, queue_id: int = 0, size: int = 20) -> PutStatus:
    record = Record(
        topic="T", queue_id=queue_id, body=bytes(size), properties={"KEYS": f"{number}"}
    )
    return store.put(record).status


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("queues", [2, 100])
def test_a_checkpoint_without_descriptors_is_tried_again_and_the_store_stays_writable(
    tmp_path: Path, queues: int, caplog: pytest.LogCaptureFixture
) -> None:
    with MessageStore(config_of(tmp_path)) as store:
        keeper = store._housekeeping
        keeper.stop()
        for number in range(queues):
            put(store, number, queue_id=number)
        keeper._next_checkpoint, keeper._next_clean = 0.0, float("inf")
        with no_descriptors():
            for _ in range(5):
                keeper.round()
            assert store.writable
            assert "Too many open files" in store.health.shortages
            assert put(store, 1) is PutStatus.PUT_OK
        logged = [line.getMessage() for line in caplog.records if line.levelno >= logging.WARNING]
        assert sum(line.startswith("housekeeping: ") for line in logged) == 1
        keeper.round()
        assert "housekeeping" not in store.health.shortages
        assert store._checkpointer.log_end == store.log.max_offset
    assert not (tmp_path / "abort").exists()


def test_an_index_file_that_could_not_be_created_is_created_later(tmp_path: Path) -> None:
    with MessageStore(config_of(tmp_path)) as store:
        until(lambda: store.index is not None and store.index.indexed_offset == 0)
        with no_descriptors():
            for number in range(10):
                assert put(store, number) is (
                    PutStatus.CREATE_MAPEDFILE_FAILED  # its queue has no file yet
                )
        assert put(store, 0) is PutStatus.PUT_OK
        until(lambda: len(store.query("T", "0", 10, 0, 1 << 60).buffers) == 1)
        with no_descriptors():
            for number in range(1, 100):
                assert put(store, number) is PutStatus.PUT_OK
            until(lambda: "index" in store.health.shortages)
        until(lambda: len(store.query("T", "99", 10, 0, 1 << 60).buffers) == 1)
        until(lambda: store.health.shortages == "")
        assert len(os.listdir(tmp_path / "index")) == 2


@pytest.mark.parametrize("backend", BACKENDS)
def test_messages_are_refused_until_the_next_segment_can_be_created(
    tmp_path: Path, backend: str
) -> None:
    settings = {"io_backend": backend, "transient_store_pool_locked": False}
    config = config_of(tmp_path, message_index_enable=False, **settings)
    with MessageStore(config) as store:
        taken = 0
        put(store, 0, size=1000)
        with no_descriptors():
            while put(store, taken, size=100_000) is PutStatus.PUT_OK:
                taken += 1
            for _ in range(3):
                assert put(store, taken, size=100_000) is PutStatus.CREATE_MAPEDFILE_FAILED
            assert "open files" in (store.trouble() or "")
        for _ in range(25):
            assert put(store, taken, size=100_000) is PutStatus.PUT_OK
            taken += 1
            assert store.wait_durable(store.log.max_offset, 20)
        assert store.trouble() is None
    with MessageStore(config) as store:
        assert store.max_offset("T", 0) == taken + 1
    assert StoreExaminer(str(tmp_path)).verify().problems == []


def test_only_errors_that_may_lose_written_bytes_are_final(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for number in (5, 0):
        assert may_have_lost(BackendError("failed", number))
    for number in (24, 23, 12, 28, 122, 13):
        assert not may_have_lost(BackendError("refused", number))
        assert may_have_lost(SyncError("not synced", number))
    health = Health(MmapBackend())
    health.note_error("housekeeping", MemoryError())
    assert health.reason() is None
    assert health.shortages == "housekeeping: MemoryError"
    health.works("housekeeping")
    assert health.shortages == ""
    health.note_error("housekeeping", SyncError("cannot sync q: Too many open files", 24))
    assert health.reason() == "cannot sync q: Too many open files"
    assert health.failed
