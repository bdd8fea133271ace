"""Which calls reach the disk for a send, a new segment, a state save and a clean stop, in order.

Calls on the log's segments are those that the store makes on its backend; all others are calls of
the file layer. tests/engine/state/test_state_file.py has the calls of a state save.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from congreve.base.clock import ManualClock
from congreve.engine.config import StoreConfig
from congreve.engine.results import PutStatus
from congreve.engine.store import MessageStore
from congreve.io_backends.fault.fault import FaultBackend
from congreve.io_backends.fault.plan import FaultPlan
from congreve.io_backends.files.file_system import DISK
from congreve.io_backends.files.recording import RecordingFileSystem
from congreve.io_backends.mapped.mapped import MmapBackend
from congreve.records.message.message import Record

SEGMENT = 64 << 10
FIRST, SECOND, THIRD = (f"commitlog/{number * SEGMENT:020d}" for number in range(3))
QUEUE = "consumequeue/T/0"
LATER = 3_600_000  # ms: no thread writes by itself while a test runs


class Recorded:
    """A store with a recording of its calls."""

    def __init__(self, root: Path, flush_disk_type: str, *, index: bool) -> None:
        self.files = RecordingFileSystem(DISK, str(root))
        self.config = StoreConfig(
            root_dir=str(root),
            flush_disk_type=flush_disk_type,
            mapped_file_size_commit_log=SEGMENT,
            mapped_file_size_consume_queue=20 * 1000,
            max_hash_slot_num=100,
            max_index_num=400,
            message_index_enable=index,
            flush_interval_commit_log=LATER,
            flush_interval_consume_queue=LATER,
        )
        self.store = MessageStore(
            self.config,
            clock=ManualClock(1_700_000_000_000),
            backend=FaultBackend(MmapBackend(), FaultPlan(), self.files.note),
            files=self.files,
            disk_use=lambda _: 0.5,
            mark_interval_s=LATER,
        )

    def send(self, size: int = 100) -> None:
        """Put one message, and wait for the disk if the flush policy requires it."""
        put = self.store.put(Record(topic="T", body=bytes(size), properties={"KEYS": "k"}))
        assert put.status is PutStatus.PUT_OK
        if self.config.sync_flush:
            assert self.store.wait_durable(put.end, 10)

    def taken(self) -> list[str]:
        """The calls since the last taken(), as `name path size`.

        The size is left out if it is 0, or that of a state file. Failed calls are included: some
        test whether a file exists.
        """
        calls, self.files.calls[:] = self.files.changes, []
        return [
            f"{name} {path}" if size == 0 or path.endswith(".json.tmp") else f"{name} {path} {size}"
            for name, path, size in calls
        ]

    def wait_for(self, name: str, path: str) -> None:
        """Wait until another thread has made this call."""
        deadline = time.monotonic() + 30
        while not any(call[:2] == (name, path) for call in self.files.calls):
            assert time.monotonic() < deadline, self.files.calls
            time.sleep(0.005)

    def wait_for_index(self) -> None:
        """Wait until the index has all messages."""
        index, log = self.store.index, self.store.log
        deadline = time.monotonic() + 30
        while index is not None and index.indexed_offset < log.max_offset:
            assert time.monotonic() < deadline
            time.sleep(0.005)


@contextmanager
def opened(root: Path, flush_disk_type: str, *, index: bool = False) -> Iterator[Recorded]:
    """A store that has just got its first message and prepared its second segment."""
    recorded = Recorded(root, flush_disk_type, index=index)
    with recorded.store:
        recorded.taken()
        recorded.send()
        recorded.wait_for("rename_segment", SECOND)
        recorded.wait_for_index()
        yield recorded


def of(calls: list[str], *folders: str) -> list[str]:
    """The calls on paths in these folders."""
    return [call for call in calls if call.split()[1].startswith(folders)]


def prepared(target: str) -> list[str]:
    """The thread that prepares the next segment looks for an expired one, then makes one."""
    return [
        "remove commitlog.prepared/segment",
        "rename commitlog.prepared/segment",
        "make_folder commitlog.prepared",
        "remove commitlog.prepared/segment",
        f"create_segment commitlog.prepared/segment {SEGMENT}",
        f"rename_segment {target}",
    ]


def saved(path: str, *, first: bool) -> list[str]:
    """The save of a state file; `first` has no predecessor to keep."""
    folder = path.rpartition("/")[0]
    calls = [
        f"make_folder {folder}",
        f"create {path}.tmp",
        f"set_mode {path}.tmp",
        f"write {path}.tmp",
        f"sync {path}.tmp",
        f"remove {path}.bak.tmp",
        f"link {path}.bak.tmp",
        f"rename {path}.bak",
        f"rename {path}",
        f"sync_folder {folder}",
    ]
    left_out = (f"set_mode {path}.tmp", f"rename {path}.bak") if first else ()
    return [call for call in calls if call not in left_out]


@pytest.mark.parametrize("policy", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_the_first_message_creates_its_queue_and_the_next_segment(
    tmp_path: Path, policy: str
) -> None:
    with opened(tmp_path, policy) as recorded:
        calls = recorded.taken()
        assert of(calls, "consumequeue") == [
            f"make_folder {QUEUE}",
            f"create_map {QUEUE}/{0:020d} 20000",
            f"reserve {QUEUE}/{0:020d} 4096",
        ]
        synced = [f"sync_segments {FIRST} 198"] if policy == "SYNC_FLUSH" else []
        assert [call for call in calls if call.startswith("sync")] == synced
        others = of(calls, "commitlog")
        assert [call for call in others if call not in synced] == prepared(SECOND)
        assert len(calls) == 3 + len(others)


def test_an_asynchronous_send_makes_no_system_call(tmp_path: Path) -> None:
    with opened(tmp_path, "ASYNC_FLUSH", index=True) as recorded:
        recorded.taken()
        for _ in range(20):
            recorded.send()
        recorded.wait_for_index()
        assert recorded.taken() == []


def test_a_synchronous_send_syncs_its_segment_once(tmp_path: Path) -> None:
    with opened(tmp_path, "SYNC_FLUSH", index=True) as recorded:
        recorded.taken()
        for _ in range(3):
            recorded.send()
        recorded.wait_for_index()
        assert recorded.taken() == [f"sync_segments {FIRST} 198"] * 3


def test_a_new_segment_exists_already_and_the_following_one_is_created(tmp_path: Path) -> None:
    with opened(tmp_path, "ASYNC_FLUSH", index=True) as recorded:
        recorded.taken()
        recorded.send(SEGMENT - 300)
        recorded.wait_for("rename_segment", THIRD)
        assert recorded.taken() == prepared(THIRD)


def test_the_index_creates_its_file_and_reserves_space_for_its_entries(tmp_path: Path) -> None:
    with opened(tmp_path, "ASYNC_FLUSH", index=True) as recorded:
        name = next((tmp_path / "index").iterdir()).name
        assert of(recorded.taken(), "index") == [
            "make_folder index",
            f"create_map index/{name} 8440",
            f"reserve index/{name} 440",
            f"reserve index/{name} 7980",
        ]


def test_a_clean_stop_saves_in_order_and_removes_the_abort_file_last(tmp_path: Path) -> None:
    with opened(tmp_path, "ASYNC_FLUSH", index=True) as recorded:
        recorded.taken()
        name = next((tmp_path / "index").iterdir()).name
    assert recorded.taken() == [
        f"sync_map index/{name} 8440",
        *saved("congreve/index.json", first=True),
        f"sync_segments {FIRST} 198",
        f"sync_map {QUEUE}/{0:020d} 20",
        f"sync {QUEUE}",
        *saved("congreve/queues.json", first=False),
        "create checkpoint",
        "truncate checkpoint 4096",
        "write checkpoint 24",
        "sync_data checkpoint",
        "create congreve/durable.json",
        "write congreve/durable.json 512",
        "sync_data congreve/durable.json",
        "sync_folder congreve",
        f"remove {SECOND}",
        "sync_folder commitlog",
        "remove commitlog.prepared/segment",
        "remove commitlog.prepared/expired",
        "remove_folder commitlog.prepared",
        *saved("congreve/left-files.json", first=True),
        "remove abort",
    ]
