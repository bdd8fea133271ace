"""Rounds of a store's threads that fail in a way that they did not expect."""

import logging
import threading
from pathlib import Path

import pytest

from congreve.engine.config import StoreConfig
from congreve.engine.log.flush_policy import FlushTimer
from congreve.engine.rounds import Rounds
from congreve.engine.store import MessageStore


def test_the_first_error_has_a_traceback_and_further_ones_are_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    calls = []

    def work() -> None:
        calls.append(1)
        if len(calls) < 5:
            raise KeyError("x")

    round_of_work = Rounds("the work", work)
    with caplog.at_level(logging.WARNING):
        for _ in range(6):
            round_of_work()
    assert len(calls) == 6
    assert [record.exc_info is not None for record in caplog.records] == [True, False]


def test_the_flush_goes_on_after_an_error(tmp_path: Path) -> None:
    config = StoreConfig(
        root_dir=str(tmp_path), flush_disk_type="ASYNC_FLUSH", flush_interval_commit_log=1
    )
    asked, flushed = [], threading.Event()

    def written() -> int:
        asked.append(1)
        if len(asked) < 3:
            raise ZeroDivisionError
        return 1 << 20

    timer = FlushTimer(
        config, written=written, durable=lambda: 0, request=lambda upto: flushed.set()
    )
    timer.start()
    assert flushed.wait(30)
    timer.stop()


def test_housekeeping_goes_on_after_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = StoreConfig(
        root_dir=str(tmp_path),
        mapped_file_size_commit_log=1 << 20,
        flush_interval_consume_queue=1,
        clean_resource_interval=1,
    )
    store, looked, enough = MessageStore(config), [], threading.Event()

    def watch() -> float:
        looked.append(1)
        if len(looked) == 4:
            enough.set()
        if len(looked) > 1:
            raise KeyError("x")
        return 0.0

    with store:
        looked.clear()
        looked.append(1)
        monkeypatch.setattr(store._housekeeping, "watch_disk", watch)
        assert enough.wait(30)
        monkeypatch.undo()
