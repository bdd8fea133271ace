"""The mapped backend: durability, notification, and failures."""

import ctypes
import errno
import mmap
import os
import select
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from congreve.io_backends.backend import Segment
from congreve.io_backends.errors import BackendError, SegmentSizeError
from congreve.io_backends.mapped.mapped import MmapBackend
from congreve.io_backends.mapping import Mapping

SIZE = 64 * 1024
WAIT_S = 20.0


@pytest.fixture
def backend() -> Iterator[MmapBackend]:
    backend = MmapBackend()
    yield backend
    backend.stop()


def opened(backend: MmapBackend, folder: Path, base: int, written: int) -> Segment:
    path = str(folder / f"{base:020d}")
    Mapping(path, SIZE, create=True)
    return backend.open(path, base, SIZE, written)


def test_a_new_segment_is_zero_and_its_blocks_are_reserved(
    backend: MmapBackend, tmp_path: Path
) -> None:
    segment = backend.create(str(tmp_path / "a"), 0, SIZE)
    assert bytes(memoryview(segment)) == bytes(SIZE)
    assert memoryview(segment).readonly
    assert os.stat(segment.path).st_blocks * 512 >= SIZE


def test_a_segment_that_cannot_be_created_leaves_no_file(
    backend: MmapBackend, small_disk: Callable[[int], Path]
) -> None:
    disk = small_disk(SIZE)
    with pytest.raises(BackendError, match="No space"):
        backend.create(str(disk / "large"), 0, 2 * SIZE)
    with pytest.raises(BackendError, match="no such"):
        backend.create(str(disk / "nowhere" / "a"), 0, SIZE)
    assert list(disk.iterdir()) == []


def test_an_existing_file_is_never_created_again(backend: MmapBackend, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"precious")
    with pytest.raises(BackendError, match="exists"):
        backend.create(str(tmp_path / "a"), 0, SIZE)
    assert (tmp_path / "a").read_bytes() == b"precious"


def test_a_file_of_another_size_is_not_opened(backend: MmapBackend, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"short")
    with pytest.raises(SegmentSizeError, match="5 bytes"):
        backend.open(str(tmp_path / "a"), 0, SIZE, 0)
    with pytest.raises(BackendError, match="cannot be written"):
        backend.open(str(tmp_path / "a"), 0, 5, 6)


def test_rename_moves_the_file_and_updates_the_segment(
    backend: MmapBackend, tmp_path: Path
) -> None:
    segment = backend.create(str(tmp_path / "prepared"), 0, SIZE)
    (tmp_path / "log").mkdir()
    backend.rename(segment, str(tmp_path / "log" / "b"), SIZE)
    assert segment.path == str(tmp_path / "log" / "b")
    assert segment.base_offset == SIZE
    assert not (tmp_path / "prepared").exists()


def test_rename_does_not_overwrite_a_segment(backend: MmapBackend, tmp_path: Path) -> None:
    segment = backend.create(str(tmp_path / "prepared"), 0, SIZE)
    (tmp_path / "taken").write_bytes(b"precious")
    with pytest.raises(BackendError, match="exists"):
        backend.rename(segment, str(tmp_path / "taken"), SIZE)
    assert (tmp_path / "taken").read_bytes() == b"precious"
    assert segment.path == str(tmp_path / "prepared")


def test_the_tail_is_zeroed_and_reserved(backend: MmapBackend, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"x" * SIZE)
    segment = backend.open(str(path), 0, SIZE, 5000)
    segment.zero_tail()
    assert path.read_bytes() == b"x" * 5000 + bytes(SIZE - 5000)
    assert os.stat(path).st_blocks * 512 >= SIZE


def test_the_durable_offset_crosses_segments_and_signals_the_eventfd(
    backend: MmapBackend, tmp_path: Path
) -> None:
    for base in (0, SIZE):
        backend.attach(opened(backend, tmp_path, base, SIZE))
    backend.start(100)
    os.read(backend.event_fd, 8)
    assert backend.durable_offset == 100
    backend.request(SIZE + 7)
    while backend.durable_offset < SIZE + 7:
        assert select.select([backend.event_fd], [], [], WAIT_S)[0], "not notified"
        os.read(backend.event_fd, 8)
    assert backend.durable_offset == SIZE + 7
    assert backend.failure_errno == 0


def test_no_byte_is_durable_before_a_flush(backend: MmapBackend, tmp_path: Path) -> None:
    backend.attach(opened(backend, tmp_path, 0, 1000))
    backend.start(0)
    assert backend.wait_durable(400, WAIT_S)
    assert backend.durable_offset == 400


def test_stop_makes_all_written_bytes_durable(backend: MmapBackend, tmp_path: Path) -> None:
    backend.attach(opened(backend, tmp_path, 0, SIZE))
    backend.attach(opened(backend, tmp_path, SIZE, 1234))
    backend.start(0)
    backend.stop()
    backend.stop()
    assert backend.durable_offset == SIZE + 1234
    names = {thread.name for thread in threading.enumerate()}
    assert not names & {"flush", "fault-ahead"}


def test_a_wait_for_an_unattached_segment_times_out(backend: MmapBackend, tmp_path: Path) -> None:
    backend.attach(opened(backend, tmp_path, 0, SIZE))
    backend.start(0)
    assert not backend.wait_durable(SIZE + 1, 0.05)
    backend.attach(opened(backend, tmp_path, SIZE, 1))
    assert backend.wait_durable(SIZE + 1, WAIT_S)


def test_a_segment_that_is_completely_durable_is_released(
    backend: MmapBackend, tmp_path: Path
) -> None:
    segment = opened(backend, tmp_path, 0, SIZE)
    address = np.asarray(memoryview(segment)).ctypes.data
    backend.attach(segment)
    del segment
    backend.start(0)
    assert backend.wait_durable(SIZE, WAIT_S)
    assert is_mapped(address)
    backend.attach(opened(backend, tmp_path, SIZE, 0))
    assert not is_mapped(address)


def is_mapped(address: int) -> bool:
    ranges = (
        line.split()[0].split("-") for line in Path("/proc/self/maps").read_text().splitlines()
    )
    return any(int(start, 16) <= address < int(end, 16) for start, end in ranges)


def test_after_a_failed_sync_no_further_byte_is_durable(  # defect D16
    backend: MmapBackend, tmp_path: Path
) -> None:
    segment = opened(backend, tmp_path, 0, SIZE)
    backend.attach(segment)
    backend.start(0)
    assert backend.wait_durable(4096, WAIT_S)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    hole = ctypes.c_void_p(np.asarray(memoryview(segment)).ctypes.data + 8192)
    page = ctypes.c_size_t(4096)
    assert libc.munmap(hole, page) == 0  # msync over a hole fails
    try:
        assert not backend.wait_durable(SIZE, WAIT_S)
    finally:
        fixed = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x10
        libc.mmap(hole, page, mmap.PROT_READ, fixed, -1, ctypes.c_long(0))
    assert backend.failure_errno == errno.ENOMEM
    assert backend.durable_offset == 4096
    assert not backend.wait_durable(5000, WAIT_S), "a sync was tried again"
    assert backend.durable_offset == 4096


def resident(path: str) -> int:
    """Bytes of the file that count as this process's memory (proc(5), smaps)."""
    found, ours = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if line.endswith(path):
            ours = True
        elif ours and line.startswith("Rss:"):
            found, ours = found + int(line.split()[1]) * 1024, False
    return found


def test_released_pages_use_no_memory_and_lose_no_byte(
    backend: MmapBackend, tmp_path: Path
) -> None:
    segment = backend.create(str(tmp_path / "a"), 0, SIZE)
    data = os.urandom(SIZE - 4096)
    assert segment.append(data)  # dirty: nothing was synced
    assert resident(segment.path) == SIZE
    segment.forget_pages(SIZE // 2)
    assert resident(segment.path) == SIZE // 2
    segment.forget_pages(2 * SIZE)
    assert resident(segment.path) == 0
    assert memoryview(segment)[: len(data)] == data
    assert segment.append(b"more")
    assert bytes(memoryview(segment)[len(data) :][:4]) == b"more"
