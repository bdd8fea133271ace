"""The durable mark: what it names, and what recovery makes of it."""

import errno
import random
import struct
from pathlib import Path

import msgspec
import pytest
from harness.stores.killed_store import copy_running
from harness.stores.small_store import small_store
from hypothesis import given
from hypothesis import strategies as st

from congreve.base.clock import ManualClock
from congreve.engine.errors import StoreError, StoreFormatError
from congreve.engine.health import Health
from congreve.engine.log.named_record import NamedRecord
from congreve.engine.replication.log_receiver import LogReceiver
from congreve.engine.state.durable_mark import DurableMarkFile, DurableMarks
from congreve.engine.store import MessageStore
from congreve.io_backends.fault.fault import FaultBackend
from congreve.io_backends.fault.plan import Fault, FaultPlan
from congreve.io_backends.files.faulty import Failpoint, FaultyFileSystem
from congreve.io_backends.files.file_system import DISK, FileSystem
from congreve.io_backends.mapped.mapped import MmapBackend
from congreve.records.message.message import Record

MARK = NamedRecord(100, 50, -7, 1_700_000_000_000)
BLANK_MAGIC = -875286124
LATER = 3_600_000  # ms: no thread writes by itself while a test runs


def store_of(
    root: Path, plan: FaultPlan | None = None, files: FileSystem = DISK, **settings: object
) -> MessageStore:
    """Only the test syncs, writes checkpoints and writes marks."""
    config = small_store(
        root,
        flush_interval_commit_log=LATER,
        flush_interval_consume_queue=LATER,
        message_index_enable=False,
        **settings,
    )
    return MessageStore(
        config,
        clock=ManualClock(1_700_000_000_000),
        backend=FaultBackend(MmapBackend(), plan or FaultPlan()),
        disk_use=lambda _: 0.5,
        mark_interval_s=LATER,
        files=files,
    )


def put(store: MessageStore, size: int = 100) -> int:
    """The physical offset after a new record."""
    return store.put(Record(topic="T", body=bytes(size))).end


def mark_of(store: MessageStore) -> NamedRecord | None:
    return DurableMarkFile(store.config.own_dir).load()


def marks_of(store: MessageStore) -> DurableMarks:
    """A writer of marks that the test drives."""
    file = DurableMarkFile(store.config.own_dir, store.files)
    return DurableMarks(file, store.log, store.backend, store.health)


def test_a_mark_is_read_as_it_was_written(tmp_path: Path) -> None:
    file = DurableMarkFile(str(tmp_path))
    assert file.load() is None
    file.replace(MARK)
    assert file.load() == MARK
    file.clear()
    assert file.load() is None


@pytest.mark.parametrize("at", [0, 8, 40])
def test_a_damaged_mark_counts_as_none(tmp_path: Path, at: int) -> None:
    file = DurableMarkFile(str(tmp_path))
    file.replace(MARK)
    (path,) = tmp_path.iterdir()
    data = bytearray(path.read_bytes())
    data[at] ^= 0xFF
    path.write_bytes(data)
    assert file.load() is None


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    DurableMarkFile(str(tmp_path)).replace(MARK)
    faulty = FaultyFileSystem(DISK, Failpoint("open", str(tmp_path), errno.EMFILE, 1, 1))
    with pytest.raises(StoreError, match=r"cannot read .*durable.json"):
        DurableMarkFile(str(tmp_path), faulty).load()


@given(seed=st.integers(0, 1 << 30), failing=st.integers(0, 12))
def test_a_mark_never_names_what_is_not_durable(
    tmp_path_factory: pytest.TempPathFactory, seed: int, failing: int
) -> None:
    """A sync may fail at any time; then no later record is named."""
    dice = random.Random(seed)
    plan = FaultPlan(groups={failing: Fault(error=errno.EIO)}, record=True)
    backend = FaultBackend(MmapBackend(), plan)
    config = small_store(
        tmp_path_factory.mktemp("marks"),
        flush_interval_commit_log=LATER,
        flush_interval_consume_queue=LATER,
        message_index_enable=False,
    )
    store = MessageStore(config, backend=backend, disk_use=lambda _: 0.5, mark_interval_s=LATER)
    with store:
        marks, ends = marks_of(store), [0]
        for _ in range(40):
            match dice.randrange(3):
                case 0:
                    ends.append(max(put(store, dice.randrange(300)), ends[-1]))
                case 1:
                    store.wait_durable(dice.choice(ends), 10)
                case 2:
                    marks.round()
            synced = max((group.start + len(group.data) for group in backend.recorded), default=0)
            mark = mark_of(store)
            assert mark is None or (mark.end <= synced and mark.end in ends)
        if store.wait_durable(ends[-1], 10):
            marks.round()
            mark = mark_of(store)
            assert ends[-1] == (0 if mark is None else mark.end)


def test_a_mark_that_cannot_be_written_is_written_later(tmp_path: Path) -> None:
    faulty = FaultyFileSystem(DISK, Failpoint("write", "durable.json", errno.ENOSPC, 1, 1))
    with store_of(tmp_path, files=faulty) as store:
        health = Health(store.backend)
        file = DurableMarkFile(store.config.own_dir, faulty)
        marks = DurableMarks(file, store.log, store.backend, health)
        end = put(store)
        assert store.wait_durable(end, 10)
        marks.round()
        assert "durable mark" in health.shortages
        assert mark_of(store) is None
        marks.round()
        assert not health.shortages
        mark = mark_of(store)
        assert mark is not None
        assert mark.end == end


def test_a_stopped_store_is_marked_to_its_end(tmp_path: Path) -> None:
    with store_of(tmp_path) as store:
        end = max(put(store) for _ in range(5))
    mark = mark_of(store)
    assert mark is not None
    assert mark.end == end
    with store_of(tmp_path) as store:
        assert mark_of(store) == mark


def damaged_copy(root: Path, copy: Path) -> tuple[list[int], NamedRecord]:
    """A copy as a kill leaves it, with five records below the mark and five behind it.

    The second and the eighth of them are damaged. Returns where they end, and the mark.
    """
    with store_of(root) as store:
        ends = [put(store) for _ in range(5)]
        assert store.wait_durable(ends[-1], 10)
        marks_of(store).round()
        mark = mark_of(store)
        ends += [put(store) for _ in range(5)]
        copy_running(root, copy)
    log = copy / "commitlog" / f"{0:020d}"
    data = bytearray(log.read_bytes())
    data[ends[0] + 90] ^= 1
    data[ends[6] + 90] ^= 1
    log.write_bytes(data)
    assert mark is not None
    return ends, mark


def test_damage_below_the_mark_is_passed_and_damage_behind_it_ends_the_log(tmp_path: Path) -> None:
    ends, _ = damaged_copy(tmp_path / "store", tmp_path / "copy")
    with store_of(tmp_path / "copy") as store:
        assert store.recovery is not None
        assert (store.recovery.damaged, store.log.max_offset) == (1, ends[6])
        assert store.max_offset("T", 0) == 7


@pytest.mark.parametrize("is_whole", [False, True])
def test_a_record_that_looks_like_the_blank_of_a_segment_hides_no_later_one(
    tmp_path: Path, is_whole: bool
) -> None:
    root = tmp_path / "store"
    with store_of(root) as store:
        ends = [put(store) for _ in range(5)]
        assert store.wait_durable(ends[-1], 10)
        marks_of(store).round()
        copy_running(root, tmp_path / "copy")
    log = tmp_path / "copy" / "commitlog" / f"{0:020d}"
    data = bytearray(log.read_bytes())
    size = len(data) - ends[0] if is_whole else ends[1] - ends[0]
    data[ends[0] : ends[0] + 8] = struct.pack(">Ii", size, BLANK_MAGIC)
    log.write_bytes(data)
    with store_of(tmp_path / "copy") as store:
        assert store.recovery is not None
        assert (store.recovery.damaged_at, store.log.max_offset) == (ends[0], ends[-1])
        assert store.max_offset("T", 0) == 5
        assert store.get("T", 0, 2, 32).count == 3


@pytest.mark.parametrize("changed", [{"store_timestamp": 1}, {"size": 1, "crc": 1}, None])
def test_the_mark_of_another_log_is_not_used(
    tmp_path: Path, changed: dict[str, int] | None
) -> None:
    ends, mark = damaged_copy(tmp_path / "store", tmp_path / "copy")
    file = DurableMarkFile(str(tmp_path / "copy/congreve"))
    if changed is None:
        file.replace(msgspec.structs.replace(mark, record=1 << 40))
    else:
        values = {name: getattr(mark, name) + more for name, more in changed.items()}
        file.replace(msgspec.structs.replace(mark, **values))
    with store_of(tmp_path / "copy") as store:
        assert store.log.max_offset == ends[0]
        again = mark_of(store)
        assert again is not None
        assert again.end == ends[0]


def lost_end(root: Path, *, checkpoint_at: int | None) -> list[int]:
    """A store killed with ten records of two queues on disk, of which the log loses all but three.

    The checkpoint is of the store after so many records. Returns where the records end.
    """
    with store_of(root / "store") as store:
        ends = []
        for number in range(10):
            ends.append(store.put(Record(topic="T", queue_id=number % 2, body=bytes(100))).end)
            if number + 1 == checkpoint_at:
                assert store.wait_durable(ends[-1], 10)
                store.checkpoint()
        assert store.wait_durable(ends[-1], 10)
        marks_of(store).round()
        copy_running(root / "store", root / "copy")
    log = root / "copy/commitlog" / f"{0:020d}"
    data = bytearray(log.read_bytes())
    data[ends[2] :] = bytes(len(data) - ends[2])
    log.write_bytes(data)
    return ends


@pytest.mark.parametrize("checkpoint_at", [None, 2, 3, 8])
def test_offsets_of_a_lost_end_are_not_given_again(
    tmp_path: Path, checkpoint_at: int | None
) -> None:
    ends = lost_end(tmp_path, checkpoint_at=checkpoint_at)
    for _ in range(2):
        with store_of(tmp_path / "copy") as store:
            assert store.log.max_offset == ends[2]
            assert [store.max_offset("T", queue) for queue in (0, 1)] == [5, 5]
    with store_of(tmp_path / "copy") as store:
        for queue in (0, 1):
            assert store.put(Record(topic="T", queue_id=queue, body=b"new")).queue_offset == 5


@pytest.mark.parametrize("checkpoint_at", [None, 3, 8])
def test_a_store_that_follows_ends_its_queues_with_its_log(
    tmp_path: Path, checkpoint_at: int | None
) -> None:
    ends = lost_end(tmp_path, checkpoint_at=checkpoint_at)
    store = store_of(tmp_path / "copy")
    store.start(follows=True)
    assert store.log.max_offset == ends[2]
    assert [store.max_offset("T", queue) for queue in (0, 1)] == [2, 1]
    store.close()


@pytest.mark.parametrize("checkpoint_at", [None, 3, 8])
def test_a_copied_record_takes_the_place_of_filler(
    tmp_path: Path, checkpoint_at: int | None
) -> None:
    """A master that lost its end becomes the slave of one that has the records."""
    lost_end(tmp_path, checkpoint_at=checkpoint_at)
    with store_of(tmp_path / "store") as whole, store_of(tmp_path / "copy") as store:
        receiver = LogReceiver(store)
        data = bytes(memoryview(whole.log.segments[0]))[receiver.received : whole.log.max_offset]
        receiver.writable(len(data))[:] = data
        receiver.take(len(data))
        for queue in (0, 1):
            entries = [whole.queues.get("T", queue)[number] for number in range(5)]
            assert [store.queues.get("T", queue)[number] for number in range(5)] == entries
            assert store.max_offset("T", queue) == 5
    with store_of(tmp_path / "copy") as store:
        assert [store.max_offset("T", queue) for queue in (0, 1)] == [5, 5]
        assert store.log.max_offset == whole.log.max_offset


def test_a_cut_below_the_mark_removes_the_mark_first(tmp_path: Path) -> None:
    with store_of(tmp_path) as store:
        ends = [put(store) for _ in range(5)]
    with pytest.raises(StoreFormatError, match="no record ends there"):
        store_of(tmp_path).start(cut_at=ends[2] - 7)
    assert mark_of(store) is None
    cut = store_of(tmp_path)
    cut.start(cut_at=ends[1])
    mark = mark_of(cut)
    assert mark is not None
    assert mark.end == ends[1]
    cut.close()
