"""`congreve store info|verify` report the damage and change nothing."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from harness.stores.killed_store import copy_running

from congreve.base.clock import ManualClock
from congreve.engine.config import StoreConfig
from congreve.engine.errors import StoreError
from congreve.engine.store import MessageStore
from congreve.engine.store_files.verify import StoreExaminer
from congreve.records.message.message import Record

TINY: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "golden/tiny_store.json").read_text()
)
COUNT = len(TINY["messages"])


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """The store that the reference confirmed."""
    for name, file in TINY["files"].items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes.fromhex(file["hex"]).ljust(file["size"], b"\0"))
    return tmp_path


def snapshot(root: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_info_describes_a_store_of_the_reference(store: Path) -> None:
    info = StoreExaminer(str(store)).info()
    assert (info.segments, info.segment_size) == (2, 4096)
    assert (info.log_begin, info.log_end) == (0, TINY["max_phys_offset"])
    assert info.first_store_timestamp == TINY["messages"][0]["storeTimestamp"]
    assert info.last_store_timestamp == TINY["messages"][-1]["storeTimestamp"]
    assert info.clean
    assert info.index_files == 1
    ends = {(queue.topic, queue.queue_id): (queue.min, queue.max) for queue in info.queues}
    assert ends == {
        ("TopicTest", 0): (0, 10),
        ("TopicTest", 1): (0, 10),
        ("SCHEDULE_TOPIC_XXXX", 17): (0, 1),
    }


@pytest.mark.parametrize("is_remembered", [True, False])
def test_delay_levels_of_the_broker_are_not_reported_as_damage(
    tmp_path: Path, is_remembered: bool
) -> None:
    """verify() uses the levels of each start, if the store has them, else the caller's."""
    texts = ["7s 8s", "9s"]
    for text in texts:
        config = StoreConfig(
            root_dir=str(tmp_path),
            mapped_file_size_commit_log=65536,
            max_hash_slot_num=7,
            max_index_num=64,
            message_delay_level=text,
        )
        with MessageStore(config, clock=ManualClock(1_700_000_000_000)) as store:
            parked = {"DELAY": "1", "REAL_TOPIC": "T", "REAL_QID": "0"}
            store.put(Record(topic="SCHEDULE_TOPIC_XXXX", body=b"x", properties=parked))
    if is_remembered:
        assert StoreExaminer(str(tmp_path)).verify().problems == []
        return
    shutil.rmtree(tmp_path / "congreve")
    assert len(StoreExaminer(str(tmp_path)).verify().problems) == 2
    assert len(StoreExaminer(str(tmp_path)).verify(config.parking).problems) == 1


def test_a_valid_store_has_no_problems_and_is_not_changed(store: Path) -> None:
    before = snapshot(store)
    seen: list[int] = []
    report = StoreExaminer(str(store)).verify(progress=seen.append)
    assert (report.records, report.entries, report.problems) == (COUNT, COUNT, [])
    assert report.bytes == TINY["max_phys_offset"]
    assert seen == [4096, 4096]
    assert snapshot(store) == before


@pytest.mark.parametrize("folder", ["congreve", "consumequeue", "commitlog", "index", "."])
def test_damaged_files_are_not_changed(tmp_path: Path, folder: str) -> None:
    """Only a broker moves them aside or rebuilds them."""
    config = StoreConfig(
        root_dir=str(tmp_path),
        mapped_file_size_commit_log=65536,
        mapped_file_size_consume_queue=20 * 10,
        max_hash_slot_num=7,
        max_index_num=9,
    )
    with MessageStore(config) as store:
        for number in range(25):
            store.put(Record(topic="T", body=b"", properties={"KEYS": f"k{number}"}))
    for path in list((tmp_path / folder).glob("**/*" if folder != "." else "*")):
        if path.is_file():
            data = path.read_bytes()
            path.write_bytes(data[: len(data) // 2])
            path.with_name(path.name + ".bak").write_bytes(b"{")
    before = snapshot(tmp_path)
    examiner = StoreExaminer(str(tmp_path))
    examiner.info()
    examiner.verify()
    assert snapshot(tmp_path) == before


def test_a_damaged_record_is_reported_with_its_place(store: Path) -> None:
    log = store / "commitlog" / f"{0:020d}"
    data = bytearray(log.read_bytes())
    place = TINY["messages"][3]["physOffset"]
    data[place + 100] ^= 1
    log.write_bytes(data)
    report = StoreExaminer(str(store)).verify()
    size = TINY["messages"][3]["size"]
    assert report.problems[0] == f"{size} bytes at {place} in {log} hold no valid record"
    assert report.problems[1] == (
        f"the queues have {COUNT} entries, but the log has {COUNT - 1} messages"
    )


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("lost", [512, 1000 * 3, 1 << 14])
def test_an_end_of_the_log_that_was_on_disk_is_missed(
    tmp_path: Path, lost: int, clean: bool
) -> None:
    small = {"mapped_file_size_commit_log": 1 << 16, "mapped_file_size_consume_queue": 20 * 1000}
    with MessageStore(StoreConfig(root_dir=str(tmp_path), **small)) as living:
        for _ in range(100):
            put = living.put(Record(topic="T", body=bytes(1000)))
    end = put.end % (1 << 16)
    log = sorted((tmp_path / "commitlog").iterdir())[-1]
    with log.open("r+b") as file:
        file.seek(end - lost)
        file.write(bytes(lost))
    if not clean:
        (tmp_path / "abort").touch()
    [problem, *_] = StoreExaminer(str(tmp_path)).verify().problems
    assert f" in {log} hold no valid record" in problem
    place = int(problem.split(" at ")[1].split()[0])
    assert put.end - lost - 2000 < place <= put.end - lost


def test_a_missing_queue_is_reported(store: Path) -> None:
    shutil.rmtree(store / "consumequeue/TopicTest/1")
    report = StoreExaminer(str(store)).verify()
    assert report.problems == ["queue 1 of TopicTest is missing"]


def test_a_missing_queue_that_the_checkpoint_names_is_reported(tmp_path: Path) -> None:
    config = StoreConfig(root_dir=str(tmp_path), mapped_file_size_commit_log=4096)
    with MessageStore(config) as living:
        for queue_id in range(2):
            living.put(Record(topic="T", body=b"x", queue_id=queue_id))
            living.put(Record(topic="deleted", body=b"x", queue_id=queue_id))
        living.delete_topic("deleted")
    assert StoreExaminer(str(tmp_path)).verify().problems == []
    shutil.rmtree(tmp_path / "consumequeue/T/1")
    assert StoreExaminer(str(tmp_path)).verify().problems == ["queue 1 of T is missing"]


def test_entries_that_a_running_store_had_not_written_are_not_damage(tmp_path: Path) -> None:
    """A snapshot may have a message, and not its entry; the next start adds the entry."""
    small = {"mapped_file_size_commit_log": 1 << 16, "mapped_file_size_consume_queue": 20 * 100}
    copy = tmp_path / "copy"
    with MessageStore(StoreConfig(root_dir=str(tmp_path / "store"), **small)) as living:
        for _ in range(5):
            living.put(Record(topic="T", body=b"x"))
        copy_running(tmp_path / "store", copy)
    [entries] = (copy / "consumequeue/T/0").iterdir()
    with entries.open("r+b") as file:
        file.seek(20 * 3)
        file.write(bytes(20 * 2))
    report = StoreExaminer(str(copy)).verify()
    assert (report.records, report.entries, report.problems) == (5, 3, [])
    (copy / "abort").rename(copy / "stopped")
    assert len(StoreExaminer(str(copy)).verify().problems) == 3
    (copy / "stopped").rename(copy / "abort")
    with MessageStore(StoreConfig(root_dir=str(copy), **small)) as started:
        assert started.queues.get("T", 0).max == 5
    assert StoreExaminer(str(copy)).verify().entries == 5


def test_files_that_a_running_store_has_just_created_are_not_damage(tmp_path: Path) -> None:
    """A new file is empty until it gets its size."""
    small = {"mapped_file_size_commit_log": 1 << 16, "mapped_file_size_consume_queue": 20 * 100}
    with MessageStore(StoreConfig(root_dir=str(tmp_path), **small)) as living:
        living.put(Record(topic="T", body=b"x"))
        (tmp_path / "commitlog" / f"{1 << 16:020d}").touch()
        for topic in ("T1", "T2"):  # more empty files than complete ones
            (tmp_path / "consumequeue" / topic / "0").mkdir(parents=True)
            (tmp_path / "consumequeue" / topic / "0" / f"{0:020d}").touch()
        report = StoreExaminer(str(tmp_path)).verify()
    assert (report.records, report.entries, report.problems) == (1, 1, [])


def test_reports_are_bounded(store: Path) -> None:
    for path in (store / "consumequeue/TopicTest/0").iterdir():
        data = bytearray(path.read_bytes())
        data[19] ^= 1  # of the first entry's tags code
        path.write_bytes(data)
    report = StoreExaminer(str(store)).verify(limit=2)
    assert (len(report.problems), report.more_problems) == (2, 1)


def test_a_missing_store_and_missing_segments_are_distinguished(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is not a store"):
        StoreExaminer(str(tmp_path))
    (tmp_path / "commitlog").mkdir()
    assert StoreExaminer(str(tmp_path)).verify().records == 0
    assert StoreExaminer(str(tmp_path)).info().log_end == 0


@pytest.mark.parametrize("size", [100, 0])
@pytest.mark.parametrize("number", [0, 1])
def test_a_truncated_segment_is_named_and_the_others_are_read(
    store: Path, number: int, size: int
) -> None:
    segments = sorted((store / "commitlog").iterdir())
    os.truncate(segments[number], size)
    says = f"{segments[number]} has {size} bytes instead of 4096"
    assert StoreExaminer(str(store)).info().problems == [says]
    report = StoreExaminer(str(store)).verify()
    assert report.problems[0] == says
    assert 0 < report.records < COUNT


def test_a_segment_that_is_missing_in_the_middle_is_named(store: Path) -> None:
    (store / "commitlog" / f"{4096:020d}").rename(store / "commitlog" / f"{8192:020d}")
    found = StoreExaminer(str(store)).verify().problems
    assert found[0].startswith("bytes 4096 to 8192 of the log are missing")


def test_files_other_than_segments_are_ignored(store: Path) -> None:
    (store / "commitlog" / f"{8192:020d}").mkdir()
    (store / "commitlog" / "notes").touch()
    assert StoreExaminer(str(store)).verify().problems == []


def test_segments_that_the_reference_created_ahead_are_not_reported_as_damage(store: Path) -> None:
    last = store / "commitlog" / f"{4096:020d}"
    end = TINY["max_phys_offset"] - 4096
    last.write_bytes(last.read_bytes()[:end].ljust(4096, b"\0"))
    (store / "commitlog" / f"{8192:020d}").write_bytes(bytes(4096))
    report = StoreExaminer(str(store)).verify()
    assert (report.problems, report.bytes) == ([], TINY["max_phys_offset"])
