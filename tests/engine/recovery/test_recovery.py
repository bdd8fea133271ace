"""A store after stops of every kind, and after damage."""

import json
import logging
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from harness.stores.killed_store import copy_running

from congreve.base.clock import ManualClock
from congreve.engine.config import StoreConfig
from congreve.engine.errors import StoreError
from congreve.engine.file_sizes import FILLER_SIZE
from congreve.engine.state.checkpoint import QueueCheckpointFile
from congreve.engine.store import MessageStore
from congreve.engine.store_files.verify import StoreExaminer
from congreve.records.message.message import Record
from congreve.records.record import decode_record

TINY: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "golden/tiny_store.json").read_text()
)
SEGMENT = 4096


def config_of(root: Path, **settings: Any) -> StoreConfig:
    fields: dict[str, Any] = {
        "root_dir": str(root),
        "mapped_file_size_commit_log": SEGMENT,
        "mapped_file_size_consume_queue": 80,
        "max_hash_slot_num": 7,
        "max_index_num": 64,
    }
    return StoreConfig(**{**fields, **settings})


def fill(root: Path, count: int, **settings: Any) -> list[bytes]:
    """`count` messages over two queues of topic T; their bodies in order."""
    bodies = [b"message %d " % number * (1 + number % 5) for number in range(count)]
    with MessageStore(config_of(root, **settings), clock=ManualClock(1_700_000_000_000)) as store:
        for number, body in enumerate(bodies):
            store.put(
                Record(topic="T", body=body, queue_id=number % 2, properties={"KEYS": f"k{number}"})
            )
    return bodies


def mark_unclean(root: Path) -> None:
    (root / "abort").touch()


def bodies_of(store: MessageStore, topic: str = "T", queues: int = 2) -> list[list[bytes]]:
    """All bodies by queue, read through the queues' entries."""
    found = []
    for queue_id in range(queues):
        queue = store.queues.get(topic, queue_id)
        entries = [queue[offset] for offset in range(queue.min, queue.max)]
        records = [store.read(place) for place, size, _ in entries if size != FILLER_SIZE]
        found.append([decode_record(record).body for record in records if record is not None])
    return found


def check_sound(root: Path) -> None:
    assert StoreExaminer(str(root)).verify().problems == []


def write_tiny_store(root: Path) -> None:
    for name, file in TINY["files"].items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes.fromhex(file["hex"]).ljust(file["size"], b"\0"))


@pytest.mark.parametrize("unclean", [False, True])
@pytest.mark.parametrize("queues_lost", [False, True])
def test_a_store_of_the_reference_is_served_completely(
    tmp_path: Path, unclean: bool, queues_lost: bool
) -> None:
    """The four states in which the reference loses up to half of this store (D2, D5, D14)."""
    write_tiny_store(tmp_path)
    if unclean:
        mark_unclean(tmp_path)
    if queues_lost:
        shutil.rmtree(tmp_path / "consumequeue")
    with MessageStore(config_of(tmp_path)) as store:
        assert store.log.max_offset == TINY["max_phys_offset"]
        for message in TINY["messages"]:
            queue = store.queues.get(message["topic"], message["queueId"])
            entry = (message["physOffset"], message["size"], message["tagsCode"])
            assert queue[message["queueOffset"]] == entry
            record = store.read(message["physOffset"])
            assert record is not None
            assert decode_record(record).body.hex() == message["body_hex"]
    check_sound(tmp_path)
    for name, file in TINY["files"].items():
        if name.startswith(("commitlog/", "consumequeue/")):
            expected = bytes.fromhex(file["hex"]).ljust(file["size"], b"\0")
            assert (tmp_path / name).read_bytes() == expected, name


def test_a_clean_restart_reads_no_message_again(tmp_path: Path) -> None:
    bodies = fill(tmp_path, 100)
    with MessageStore(config_of(tmp_path)) as store:
        assert store.recovery is not None
        assert store.recovery.records == 0
        assert bodies_of(store) == [bodies[0::2], bodies[1::2]]
    check_sound(tmp_path)


def test_a_start_after_a_crash_reads_only_beyond_the_checkpoint(tmp_path: Path) -> None:
    bodies = fill(tmp_path, 100)
    config = config_of(tmp_path)
    store = MessageStore(config)
    store.start()
    store.put(Record(topic="T", body=b"behind the checkpoint"))
    copy = tmp_path.with_name("copy")
    copy_running(tmp_path, copy)
    store.close()
    with MessageStore(config_of(copy)) as again:
        assert again.recovery is not None
        assert again.recovery.records == 1
        assert bodies_of(again) == [[*bodies[0::2], b"behind the checkpoint"], bodies[1::2]]
    check_sound(copy)


@pytest.mark.parametrize("lost", ["one queue", "last file", "first file", "all queues"])
@pytest.mark.parametrize("unclean", [False, True])
def test_lost_queues_are_rebuilt(tmp_path: Path, lost: str, unclean: bool) -> None:
    """D14: the reference leaves a lost queue empty and starts its offsets at 0 again."""
    bodies = fill(tmp_path, 100)
    queue = tmp_path / "consumequeue/T/1"
    files = sorted(queue.iterdir())
    match lost:
        case "one queue":
            shutil.rmtree(queue)
        case "last file":
            files[-1].unlink()
        case "first file":
            files[0].unlink()
        case "all queues":
            shutil.rmtree(tmp_path / "consumequeue")
    if unclean:
        mark_unclean(tmp_path)
    with MessageStore(config_of(tmp_path)) as store:
        assert bodies_of(store) == [bodies[0::2], bodies[1::2]]
        put = store.put(Record(topic="T", body=b"next", queue_id=1))
        assert put.queue_offset == 50
    check_sound(tmp_path)


def test_a_lost_checkpoint_causes_a_scan_and_loses_no_message(tmp_path: Path) -> None:
    bodies = fill(tmp_path, 100)
    for unclean in (False, True):
        shutil.rmtree(tmp_path / "congreve")
        if unclean:
            mark_unclean(tmp_path)
        with MessageStore(config_of(tmp_path)) as store:
            assert store.recovery is not None
            assert store.recovery.records == 100
            assert bodies_of(store) == [bodies[0::2], bodies[1::2]]
    check_sound(tmp_path)


def test_the_checkpoint_of_another_log_is_not_used(
    tmp_path: Path,
) -> None:
    fill(tmp_path / "a", 30)
    other = fill(tmp_path / "b", 60)
    shutil.rmtree(tmp_path / "b/congreve")
    shutil.copytree(tmp_path / "a/congreve", tmp_path / "b/congreve")
    file = QueueCheckpointFile(str(tmp_path / "b/congreve"))
    known = file.load()
    assert known is not None
    known.last_store_timestamp += 1
    file.replace(known)
    with MessageStore(config_of(tmp_path / "b")) as store:
        assert bodies_of(store) == [other[0::2], other[1::2]]


def tail_of_two(root: Path) -> tuple[Path, int, int]:
    """A store of three messages; the last segment's file, and where the last record lies in it."""
    fill(root, 2)
    with MessageStore(config_of(root)) as store:
        put = store.put(Record(topic="T", body=b"the last message", properties={"KEYS": "k"}))
    shutil.rmtree(root / "congreve")  # so that no checkpoint covers the tail
    mark_unclean(root)
    return root / "commitlog" / f"{0:020d}", put.physical_offset, put.end


def test_a_log_that_is_torn_at_any_byte_of_its_last_record_is_recovered(
    tmp_path: Path, quick: bool
) -> None:
    master = tmp_path / "master"
    log, start, end = tail_of_two(master)
    whole = log.read_bytes()
    for cut in range(start, end, 5 if quick else 1):
        root = tmp_path / str(cut)
        shutil.copytree(master, root)
        (root / "commitlog" / log.name).write_bytes(whole[:cut].ljust(SEGMENT, b"\0"))
        with MessageStore(config_of(root)) as store:
            assert store.log.max_offset == start
            assert (store.max_offset("T", 0), store.max_offset("T", 1)) == (1, 1)
            put = store.put(Record(topic="T", body=b"new"))
            assert (put.physical_offset, put.queue_offset) == (start, 1)
        check_sound(root)
        shutil.rmtree(root)


def test_a_flipped_bit_in_the_tail_ends_the_log_there(tmp_path: Path) -> None:
    master = tmp_path / "master"
    log, start, _ = tail_of_two(master)
    whole = bytearray(log.read_bytes())
    size, magic, crc, own_offset, body = 0, 4, 8, 30, whole.rindex(b"the last") - start
    for position in (start + at for at in (size, magic, crc, own_offset, body)):
        root = tmp_path / str(position)
        shutil.copytree(master, root)
        damaged = whole.copy()
        damaged[position] ^= 0x10
        (root / "commitlog" / log.name).write_bytes(damaged)
        with MessageStore(config_of(root)) as store:
            assert store.log.max_offset == start
            assert store.max_offset("T", 0) == 1
        check_sound(root)


def test_damage_in_the_old_part_loses_only_the_damaged_record(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bodies = fill(tmp_path, 100)
    shutil.rmtree(tmp_path / "congreve")
    log = tmp_path / "commitlog" / f"{0:020d}"
    data = bytearray(log.read_bytes())
    data[data.index(bodies[4])] ^= 1
    log.write_bytes(data)
    with caplog.at_level(logging.ERROR), MessageStore(config_of(tmp_path)) as store:
        assert store.recovery is not None
        assert store.recovery.damaged == 1
        assert bodies_of(store) == [[*bodies[0:4:2], *bodies[6::2]], bodies[1::2]]
    assert "damaged" in caplog.text


def test_queues_ahead_of_the_log_are_cut_back(tmp_path: Path) -> None:
    """What a power cut leaves when the log's last pages did not reach the disk."""
    fill(tmp_path, 3)
    shutil.rmtree(tmp_path / "congreve")
    log = tmp_path / "commitlog" / f"{0:020d}"
    with MessageStore(config_of(tmp_path)) as store:
        start = store.queues.get("T", 0)[1][0]
    shutil.rmtree(tmp_path / "congreve")
    log.write_bytes(log.read_bytes()[:start].ljust(SEGMENT, b"\0"))
    with MessageStore(config_of(tmp_path)) as store:
        assert (store.max_offset("T", 0), store.log.max_offset) == (1, start)
    check_sound(tmp_path)


@pytest.mark.parametrize("is_made_anew", [False, True])
def test_a_store_with_queues_but_without_their_log_does_not_start(
    tmp_path: Path, is_made_anew: bool
) -> None:
    """The log's folder may not be mounted: its queues must not be deleted."""
    bodies = fill(tmp_path, 30)
    log = tmp_path / "commitlog"
    log.rename(tmp_path / "away")
    if is_made_anew:
        log.mkdir()
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(StoreError, match=r"commitlog holds no log, but .*consumequeue holds"):
        MessageStore(config_of(tmp_path)).start()
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    shutil.rmtree(log, ignore_errors=True)
    (tmp_path / "away").rename(log)
    with MessageStore(config_of(tmp_path)) as store:
        assert bodies_of(store) == [bodies[0::2], bodies[1::2]]


def test_the_checkpoint_of_another_log_that_ends_with_a_blank_is_not_used(
    tmp_path: Path,
) -> None:
    """A kill between the end of a segment and the first record of the next leaves such a log."""
    store = MessageStore(config_of(tmp_path / "running"))
    store.start()
    while len(store.log.segments) == 1:
        store.put(Record(topic="T", body=b"x" * 600))
    copy_running(tmp_path / "running", tmp_path / "killed")
    store.close()
    log = tmp_path / "killed/commitlog"
    (log / f"{SEGMENT:020d}").write_bytes(bytes(SEGMENT))
    for records in (5, 0):
        with MessageStore(config_of(tmp_path / "killed")) as store:
            assert store.recovery is not None
            assert store.recovery.records == records
            copy_running(tmp_path / "killed", tmp_path / "again")
        shutil.rmtree(tmp_path / "killed")
        (tmp_path / "again").rename(tmp_path / "killed")


def test_a_clean_stop_leaves_the_files_that_the_reference_expects(tmp_path: Path) -> None:
    fill(tmp_path, 100)
    assert sorted(os.listdir(tmp_path)) == [
        "checkpoint", "commitlog", "congreve", "consumequeue", "index", "lock",
    ]  # fmt: skip
    for path in (tmp_path / "commitlog").iterdir():
        assert path.stat().st_size == SEGMENT
        assert path.name.isdecimal()
    for path in (tmp_path / "consumequeue").glob("*/*/*"):
        assert path.stat().st_size == 80
    assert (tmp_path / "lock").read_bytes() == b"lock"
    assert (tmp_path / "checkpoint").stat().st_size == 4096
