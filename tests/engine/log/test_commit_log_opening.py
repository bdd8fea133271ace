"""Opening a damaged log, and truncating it where recovery says."""

import logging
import os
from pathlib import Path
from typing import Any

import pytest

from congreve.base.clock import ManualClock
from congreve.engine.errors import StoreFormatError
from congreve.engine.log.commit_log import CommitLog
from congreve.engine.queue.consume_queue import ConsumeQueue
from congreve.io_backends.mapped.mapped import MmapBackend
from congreve.records.message.message import Record
from congreve.records.record import encode_record

SEGMENT = 4096
EACH = 1000  # bytes a record: four fill a segment


def log_in(folder: Path) -> CommitLog:
    return CommitLog(str(folder / "commitlog"), SEGMENT, MmapBackend(), ManualClock(1))


def queue_in(folder: Path) -> ConsumeQueue:
    return ConsumeQueue(str(folder / "queue"), "T", 0)


def fill(log: CommitLog, folder: Path, count: int) -> list[int]:
    queue = queue_in(folder)
    record = Record(topic="T", body=b"x" * (EACH - 92))
    return [log.append_record(record, queue).physical_offset for _ in range(count)]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Three segments; the last one holds two records, up to 10192."""
    log = log_in(tmp_path)
    log.load()
    fill(log, tmp_path, 10)
    log.backend.stop()
    log.close()
    return tmp_path


def path(folder: Path, index: int) -> Path:
    return folder / "commitlog" / f"{index * SEGMENT:020d}"


def test_an_empty_folder_is_an_empty_log(tmp_path: Path) -> None:
    log = log_in(tmp_path)
    log.load()
    assert (log.segments, log.min_offset, log.max_offset) == ((), 0, 0)
    assert log.read(0) is None
    assert log.segment_at(0) is None


def test_a_reopened_log_continues_at_its_end(store: Path) -> None:
    log = log_in(store)
    log.load()
    assert log.max_offset == 3 * SEGMENT
    log.set_end(10192)
    queue = queue_in(store / "second")
    done = log.append_record(Record(topic="T", body=b"more"), queue)
    assert done.physical_offset == 10192
    assert log.read(9192) is not None


@pytest.mark.parametrize("end", [0, 1, 1000, 4000, 4096, 5096, 8191, 8192, 10192, 12288])
def test_no_byte_after_the_cut_survives(store: Path, end: int) -> None:  # D6
    before = b"".join(path(store, i).read_bytes() for i in range(3))
    log = log_in(store)
    log.load()
    log.set_end(end)
    kept = min(end // SEGMENT, 2) + 1
    after = b"".join(path(store, i).read_bytes() for i in range(kept))
    assert after == before[:end] + bytes(kept * SEGMENT - end)
    assert len(os.listdir(store / "commitlog")) == len(log.segments) == kept
    assert log.max_offset == end
    assert fill(log, store / "second", 1) == [end if end % SEGMENT + EACH <= 4088 else 4096 * kept]


def test_a_cut_log_is_durable_before_it_is_used(store: Path) -> None:
    log = log_in(store)
    log.load()
    log.set_end(5096)
    log.backend.start(log.max_offset)
    assert log.backend.durable_offset == 5096
    fill(log, store / "second", 1)
    assert log.backend.wait_durable(log.max_offset, 20.0)
    log.backend.stop()


@pytest.mark.parametrize("end", [-1, 12289])
def test_the_end_must_be_inside_the_log(store: Path, end: int) -> None:
    log = log_in(store)
    log.load()
    with pytest.raises(StoreFormatError, match=str(end)):
        log.set_end(end)
    assert path(store, 2).stat().st_size == SEGMENT


def test_foreign_files_are_skipped_with_a_warning(  # D27
    store: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (store / "commitlog" / "notes.txt").write_text("do not touch")
    (store / "commitlog" / "99999999999999999999").mkdir()
    log = log_in(store)
    with caplog.at_level(logging.WARNING):
        log.load()
    assert len(log.segments) == 3
    assert "notes.txt" in caplog.text
    assert (store / "commitlog" / "notes.txt").read_text() == "do not touch"


def test_a_missing_segment_is_named(store: Path) -> None:
    path(store, 1).unlink()
    with pytest.raises(StoreFormatError, match="00000000000000008192 does not follow"):
        log_in(store).load()


@pytest.mark.parametrize(("index", "size"), [(0, 100), (1, 100), (2, 5000), (1, 0)])
def test_a_segment_of_another_size_is_named(store: Path, index: int, size: int) -> None:
    os.truncate(path(store, index), size)
    with pytest.raises(StoreFormatError, match=f"{index * SEGMENT:020d} has {size} bytes"):
        log_in(store).load()


@pytest.mark.parametrize("size", [SEGMENT // 2, SEGMENT * 2])
def test_segments_of_other_settings_are_not_called_missing(store: Path, size: int) -> None:
    log = CommitLog(str(store / "commitlog"), size, MmapBackend(), ManualClock(1))
    with pytest.raises(StoreFormatError, match=f"{0:020d} has {SEGMENT} bytes, .* say {size}"):
        log.load()


@pytest.mark.parametrize("size", [0, 1, 1500, 4095])
def test_a_truncated_last_segment_is_extended_to_full_size(store: Path, size: int) -> None:
    whole = path(store, 2).read_bytes()
    os.truncate(path(store, 2), size)
    log = log_in(store)
    log.load()
    assert path(store, 2).read_bytes() == whole[:size] + bytes(SEGMENT - size)
    assert log.max_offset == 3 * SEGMENT


def test_the_error_for_a_lone_segment_of_another_size_mentions_other_settings(
    tmp_path: Path,
) -> None:
    (tmp_path / "commitlog").mkdir()
    path(tmp_path, 0).write_bytes(b"x" * 100)
    with pytest.raises(StoreFormatError, match="mappedFileSizeCommitLog"):
        log_in(tmp_path).load()
    assert path(tmp_path, 0).read_bytes() == b"x" * 100


@pytest.mark.parametrize("size", [0, 98, 1 << 31])
def test_impossible_segment_sizes_are_refused(tmp_path: Path, size: int) -> None:
    with pytest.raises(StoreFormatError, match=str(size)):
        CommitLog(str(tmp_path), size, MmapBackend(), ManualClock(1))


def test_a_prepared_segment_of_a_crashed_run_does_not_prevent_a_start(tmp_path: Path) -> None:
    (tmp_path / "commitlog.prepared").mkdir()
    (tmp_path / "commitlog.prepared" / "segment").write_bytes(b"left over")
    log = log_in(tmp_path)
    log.load()
    assert fill(log, tmp_path, 1) == [0]
    log.close()
    assert not (tmp_path / "commitlog.prepared").exists()


def test_truncated_records_do_not_return_after_a_record_of_the_same_length(  # D6
    store: Path,
) -> None:
    log = log_in(store)
    log.load()
    log.set_end(8192)
    assert fill(log, store / "second", 1) == [8192]
    assert log.read(8192) is not None
    assert log.read(9192) is None
    stale: dict[str, Any] = {"topic": "T", "body": b"", "physical_offset": 1}
    assert encode_record(Record(**stale)) not in path(store, 2).read_bytes()
