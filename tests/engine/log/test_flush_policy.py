"""When ASYNC_FLUSH flushes."""

import threading
import time
from pathlib import Path

import pytest

from congreve.engine.config import StoreConfig
from congreve.engine.log.flush_policy import FlushPolicy, FlushTimer
from congreve.engine.results import PutStatus
from congreve.engine.store import MessageStore
from congreve.records.message.message import Record

PAGE = 4096


def config(**settings: object) -> StoreConfig:
    fields = {"root_dir": "unused", "flush_disk_type": "ASYNC_FLUSH", **settings}
    return StoreConfig(**fields)  # type: ignore[arg-type]


def test_a_flush_waits_for_enough_whole_pages() -> None:
    policy = FlushPolicy(config(), now_ms=0)
    assert not policy.due(written=4 * PAGE - 1, durable=0, now_ms=500)
    assert policy.due(written=4 * PAGE, durable=0, now_ms=500)
    assert not policy.due(written=4 * PAGE + 10, durable=4 * PAGE, now_ms=1000)


def test_after_the_thorough_interval_any_number_of_bytes_is_flushed() -> None:
    policy = FlushPolicy(config(), now_ms=0)
    assert not policy.due(written=1, durable=0, now_ms=9_999)
    assert policy.due(written=1, durable=0, now_ms=10_000)
    assert not policy.due(written=2, durable=1, now_ms=19_999)
    assert policy.due(written=2, durable=1, now_ms=20_000)


def test_no_flush_is_due_without_written_bytes() -> None:
    assert not FlushPolicy(config(), now_ms=0).due(written=5, durable=5, now_ms=1 << 40)


def test_the_timer_flushes_all_written_bytes() -> None:
    asked = threading.Event()
    upto = []

    def request(offset: int) -> None:
        upto.append(offset)
        asked.set()

    timer = FlushTimer(
        config(flush_interval_commit_log=1),
        written=lambda: 10 * PAGE,
        durable=lambda: 0,
        request=request,
    )
    timer.start()
    assert asked.wait(10)
    timer.stop()
    timer.stop()
    assert set(upto) == {10 * PAGE}


@pytest.mark.parametrize("timed", [True, False])
def test_an_append_wakes_a_flush_without_a_timer(tmp_path: Path, timed: bool) -> None:
    settings = config(
        root_dir=str(tmp_path),
        io_backend="mmap",
        mapped_file_size_commit_log=64 << 10,
        flush_interval_commit_log=3_600_000,
        flush_commit_log_least_pages=2,
        flush_commit_log_timed=timed,
    )
    with MessageStore(settings) as store:
        assert store.put(Record(topic="T", body=b"little")).status is PutStatus.PUT_OK
        end = store.put(Record(topic="T", body=bytes(3 * PAGE))).end
        deadline = time.monotonic() + (0.2 if timed else 20)
        while store.backend.durable_offset < end and time.monotonic() < deadline:
            time.sleep(0.002)
        assert (store.backend.durable_offset >= end) is not timed


def test_sync_flush_needs_no_timer() -> None:
    before = threading.active_count()
    timer = FlushTimer(
        config(flush_disk_type="SYNC_FLUSH"),
        written=lambda: 0,
        durable=lambda: 0,
        request=lambda _: None,
    )
    timer.start()
    assert threading.active_count() == before
    timer.stop()
