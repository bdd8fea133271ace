"""Segments created ahead, and recycled ones: old bytes never come back."""

from __future__ import annotations

import logging
import os
import threading
import time
from pathlib import Path
from typing import cast

import pytest
from harness.stores.killed_store import copy_running

from congreve.base.clock import ManualClock
from congreve.engine.config import StoreConfig
from congreve.engine.log.commit_log import CommitLog
from congreve.engine.log.preparation import SegmentPreparation
from congreve.engine.queue.consume_queue import ConsumeQueue
from congreve.engine.store import MessageStore
from congreve.engine.store_files.verify import StoreExaminer
from congreve.io_backends.backend import Backend, Segment
from congreve.io_backends.errors import BackendError
from congreve.io_backends.mapped.mapped import MmapBackend
from congreve.records.message.message import Record
from congreve.records.record import decode_record

SEGMENT = 64 << 10
BODY = b"old bytes " * 300
WAIT_S = 30


def expired_segment(folder: Path) -> Segment:
    """A full segment of records in the log's folder."""
    (folder / "commitlog").mkdir()
    path = folder / "commitlog" / f"{0:020d}"
    path.write_bytes(b"\xda" * SEGMENT)
    return MmapBackend().open(str(path), 0, SEGMENT, SEGMENT)


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + WAIT_S
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} does not come"
        time.sleep(0.001)


def preparation_in(folder: Path) -> SegmentPreparation:
    return SegmentPreparation(str(folder / "commitlog"), SEGMENT, MmapBackend())


def test_an_expired_segment_becomes_the_next_one_as_zeros(tmp_path: Path) -> None:
    expired = expired_segment(tmp_path)
    inode = os.stat(expired.path).st_ino
    preparation = preparation_in(tmp_path)
    assert preparation.recycle(expired)
    assert os.listdir(tmp_path / "commitlog") == []
    del expired
    path = tmp_path / "commitlog" / f"{SEGMENT:020d}"
    preparation.begin(str(path), SEGMENT)
    segment = preparation.take(str(path), SEGMENT)
    assert path.stat().st_ino == inode
    assert path.read_bytes() == bytes(memoryview(segment)) == bytes(SEGMENT)
    assert (segment.base_offset, segment.written) == (SEGMENT, 0)
    preparation.close()
    assert not (tmp_path / "commitlog.prepared").exists()


def test_a_segment_with_open_views_is_not_overwritten(tmp_path: Path) -> None:
    expired = expired_segment(tmp_path)
    view = memoryview(expired)[100:200]
    inode = os.stat(expired.path).st_ino
    preparation = preparation_in(tmp_path)
    assert preparation.recycle(expired)
    del expired
    path = tmp_path / "commitlog" / f"{SEGMENT:020d}"
    preparation.begin(str(path), SEGMENT)
    preparation.take(str(path), SEGMENT)
    assert path.stat().st_ino != inode
    assert bytes(view) == b"\xda" * 100
    preparation.close()
    assert bytes(view) == b"\xda" * 100


def test_one_expired_segment_waits_at_most(tmp_path: Path) -> None:
    preparation = preparation_in(tmp_path)
    assert preparation.recycle(expired_segment(tmp_path))
    (tmp_path / "second").mkdir()
    second = expired_segment(tmp_path / "second")
    assert not preparation.recycle(second)
    assert os.path.exists(second.path)


@pytest.mark.parametrize("size", [SEGMENT, 100])
def test_files_that_a_crash_left_beside_the_log_are_used_only_as_zeros(
    tmp_path: Path, size: int
) -> None:
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog.prepared").mkdir()
    (tmp_path / "commitlog.prepared" / "expired").write_bytes(b"\xda" * size)
    (tmp_path / "commitlog.prepared" / "segment").write_bytes(b"\xda" * size)
    preparation = preparation_in(tmp_path)
    path = tmp_path / "commitlog" / f"{0:020d}"
    preparation.begin(str(path), 0)
    preparation.take(str(path), 0)
    assert path.read_bytes() == bytes(SEGMENT)
    preparation.close()


def test_a_segment_cannot_replace_one_of_the_log(tmp_path: Path) -> None:
    expired = expired_segment(tmp_path)
    preparation = preparation_in(tmp_path)
    with pytest.raises(BackendError, match="exists"):
        preparation.take(expired.path, 0)
    assert os.listdir(tmp_path / "commitlog.prepared") == []


def test_a_prepared_segment_has_its_name_before_it_is_needed(tmp_path: Path) -> None:
    """A sync of a folder may take long, so the appending thread must not do it."""
    (tmp_path / "commitlog").mkdir()
    path = tmp_path / "commitlog" / f"{SEGMENT:020d}"
    preparation = preparation_in(tmp_path)
    preparation.begin(str(path), SEGMENT)
    wait_for(path)
    assert path.read_bytes() == bytes(SEGMENT)
    preparation.close()
    assert not path.exists()


def test_the_second_segment_is_made_when_an_eighth_of_the_first_is_full(tmp_path: Path) -> None:
    """A few messages take one segment only; each later segment is made as soon as one is in use,
    because it would be full before zeros that are requested at its half are written."""
    size = 64 << 20
    log = CommitLog(str(tmp_path / "commitlog"), size, MmapBackend(prewrites=True), ManualClock(1))
    log.load()
    queue = ConsumeQueue(str(tmp_path / "queue"), "T", 0)
    second, third = (tmp_path / "commitlog" / f"{number * size:020d}" for number in (1, 2))
    body = bytes(1 << 20)
    threads = threading.active_count()
    for _ in range(7):
        log.append_record(Record(topic="T", body=body), queue)
    assert threading.active_count() == threads
    for _ in range(2):
        log.append_record(Record(topic="T", body=body), queue)
    wait_for(second)
    while log.max_offset <= size:
        log.append_record(Record(topic="T", body=body), queue)
    wait_for(third)
    log.close()


class SlowSegment:
    """The preparation is closed while the first zeros are being written."""

    def __init__(self) -> None:
        self.preparation: SegmentPreparation | None = None
        self.calls: list[int] = []
        self.closer: threading.Thread | None = None

    def prewrite(self, upto: int) -> None:
        self.calls.append(upto)
        assert self.preparation is not None
        if self.closer is None:
            closer = threading.Thread(target=self.preparation.close)
            closer.start()
            self.closer = closer  # only now may it be joined
            assert self.preparation._closing.wait(WAIT_S)


class SlowBackend:
    prewrites = True

    def __init__(self, segment: SlowSegment) -> None:
        self.segment = segment

    def create(self, path: str, base_offset: int, size: int) -> SlowSegment:
        Path(path).write_bytes(b"")
        return self.segment


def test_a_stop_waits_for_one_range_of_zeros_at_most(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    segment = SlowSegment()
    preparation = SegmentPreparation(
        str(tmp_path / "commitlog"), 1 << 30, cast(Backend, SlowBackend(segment))
    )
    segment.preparation = preparation
    preparation.begin(str(tmp_path / "commitlog" / "next"), 1 << 30)
    deadline = time.monotonic() + WAIT_S
    while segment.closer is None and time.monotonic() < deadline:
        time.sleep(0.001)
    assert segment.closer is not None
    segment.closer.join(WAIT_S)
    assert segment.calls == [64 << 20]
    assert os.listdir(tmp_path) == ["commitlog"]
    assert os.listdir(tmp_path / "commitlog") == []


def test_a_segment_without_a_durable_name_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "commitlog").mkdir()
    path = tmp_path / "commitlog" / f"{0:020d}"
    preparation = preparation_in(tmp_path)

    def refuse(folder: str) -> None:
        if not folder.endswith(".prepared"):
            raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr("congreve.io_backends.backend.sync_folder", refuse)
        with pytest.raises(BackendError, match="Input/output error"):
            preparation.take(str(path), 0)
    assert not path.exists()
    assert preparation.take(str(path), 0).path == str(path)
    preparation.close()


def test_an_empty_segment_after_the_end_is_not_reported_as_torn(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = StoreConfig(
        root_dir=str(tmp_path / "store"),
        mapped_file_size_commit_log=SEGMENT,
        flush_disk_type="ASYNC_FLUSH",
    )
    empty, torn = tmp_path / "empty", tmp_path / "torn"
    with MessageStore(config) as store:
        for number in range(10):
            assert store.put(Record(topic="T", body=b"%d " % number + BODY)).end
        wait_for(tmp_path / "store" / "commitlog" / f"{SEGMENT:020d}")
        for copy in (empty, torn):
            copy_running(config.root_dir, copy)
        end = store.log.max_offset
    with open(torn / "commitlog" / f"{SEGMENT:020d}", "r+b") as behind:
        behind.write(b"something")
    for copy in (empty, torn):
        config = StoreConfig(root_dir=str(copy), mapped_file_size_commit_log=SEGMENT)
        with caplog.at_level(logging.WARNING), MessageStore(config) as store:
            assert (store.max_offset("T", 0), store.log.max_offset) == (10, end)
        assert any("torn" in logged for logged in caplog.messages) == (copy is torn)


def test_no_record_of_a_recycled_segment_is_ever_found_again(tmp_path: Path) -> None:
    """Ten rounds of recycling, with kills in between: recovery finds the latest bytes."""
    config = StoreConfig(
        root_dir=str(tmp_path / "store"),
        mapped_file_size_commit_log=SEGMENT,
        flush_disk_type="ASYNC_FLUSH",
        message_index_enable=False,
    )
    written = 0
    for round_ in range(10):
        with MessageStore(config) as store:
            for _ in range(60):
                assert store.put(Record(topic="T", body=b"%d " % written + BODY)).end
                written += 1
            while len(store.log.segments) > 1:
                store.log.delete_oldest()
            first = store.log.min_offset
            copy = tmp_path / f"killed-{round_}"
            copy_running(config.root_dir, copy)
        with MessageStore(
            StoreConfig(root_dir=str(copy), mapped_file_size_commit_log=SEGMENT)
        ) as s:
            assert s.max_offset("T", 0) == written
            for offset in range(s.min_offset("T", 0), written):
                record = decode_record(b"".join(s.get("T", 0, offset, 1).buffers))
                assert record.body == b"%d " % offset + BODY
                assert record.physical_offset >= first
        assert StoreExaminer(str(copy)).verify().problems == []


def test_a_batch_reserves_all_its_space_before_its_first_record(tmp_path: Path) -> None:
    """A disk that fills up within a batch used to leave the first part of it in the log."""
    log = CommitLog(str(tmp_path / "commitlog"), 1 << 20, MmapBackend(), ManualClock(1))
    log.load()
    queue = ConsumeQueue(str(tmp_path / "queue"), "T", 0, file_size=20 * 10)
    element = (30).to_bytes(4, "big") + bytes(4 + 4 + 4) + (5).to_bytes(4, "big") + b"hello"
    element = (len(element) + 2).to_bytes(4, "big") + element[4:] + bytes(2)
    log.append_records(Record(topic="T", body=b""), element * 7, queue)
    end = log.max_offset
    # The queue's third file cannot be made: a folder is in its place.
    (tmp_path / "queue" / f"{400:020d}").mkdir()
    with pytest.raises(BackendError):
        log.append_records(Record(topic="T", body=b""), element * 25, queue)
    assert (log.max_offset, queue.max) == (end, 7)
    (tmp_path / "queue" / f"{400:020d}").rmdir()
    assert log.append_records(Record(topic="T", body=b""), element * 25, queue).records == 25
    assert queue.max == 32
    assert queue.entries(0, 32)["size"].tolist() == [queue[0][1]] * 32


class CountedZeros:
    """A backend whose first zeros wait until the segment is needed."""

    prewrites = True

    def __init__(self) -> None:
        self.zeros = 0
        self.begun = threading.Event()
        self.needed = threading.Event()
        self.path = ""

    def create(self, path: str, base_offset: int, size: int) -> CountedZeros:
        self.path = path
        Path(path).write_bytes(b"")
        return self

    def prewrite(self, upto: int) -> None:
        self.zeros += 1
        self.begun.set()
        assert self.needed.wait(WAIT_S)

    def rename(self, segment: CountedZeros, path: str, base_offset: int) -> None:
        Path(self.path).rename(path)
        self.path = path


def test_a_segment_gets_no_zeros_after_one_that_was_late(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    backend = CountedZeros()
    preparation = SegmentPreparation(str(tmp_path / "commitlog"), SEGMENT, cast(Backend, backend))
    zeros = []
    for number in range(3):
        path = tmp_path / "commitlog" / f"{number * SEGMENT:020d}"
        preparation.begin(str(path), number * SEGMENT)
        if number:
            assert preparation._made is not None
            preparation._made.result(WAIT_S)
        else:
            assert backend.begun.wait(WAIT_S)
            threading.Timer(0.1, backend.needed.set).start()
        preparation.take(str(path), number * SEGMENT)
        zeros.append(backend.zeros)
    assert zeros == [1, 1, 2]
    preparation.close()
