"""The pool of locked buffers: what is read, written and refused, and when."""

import errno
import resource
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from congreve.io_backends.backend import Segment
from congreve.io_backends.errors import BackendError, NoBufferError
from congreve.io_backends.pool import PoolBackend

SIZE = 64 << 10
WAIT_S = 20.0


@pytest.fixture
def backend() -> Iterator[PoolBackend]:
    backend = PoolBackend(buffers=2, commit_interval_ms=60_000, commit_thorough_ms=60_000)
    yield backend
    backend.stop()


def started(backend: PoolBackend, folder: Path, base: int = 0) -> Segment:
    segment = backend.create(str(folder / f"{base:020d}"), base, SIZE)
    backend.attach(segment)
    if base == 0:
        backend.start(0)
    return segment


def on_disk(segment: Segment) -> bytes:
    return Path(segment.path).read_bytes()


def test_bytes_are_read_from_the_buffer_before_they_are_on_disk(
    backend: PoolBackend, tmp_path: Path
) -> None:
    segment = started(backend, tmp_path)
    assert segment.append(b"fresh")
    assert bytes(memoryview(segment)[:5]) == b"fresh"
    assert on_disk(segment) == bytes(SIZE)
    assert backend.wait_durable(5, WAIT_S)
    assert on_disk(segment) == b"fresh" + bytes(SIZE - 5)
    assert backend.durable_offset == 5


def test_a_full_segment_moves_to_its_file_under_the_same_views(
    backend: PoolBackend, tmp_path: Path
) -> None:
    segment = started(backend, tmp_path)
    view = memoryview(segment)[:4]
    segment.append(b"head" + b"x" * (SIZE - 4))
    assert backend.free_buffers == 1
    assert backend.wait_durable(SIZE, WAIT_S)
    deadline = time.monotonic() + WAIT_S
    while backend.free_buffers < 2 and time.monotonic() < deadline:
        time.sleep(0.001)
    assert backend.free_buffers == 2
    # The view maps the file now, so it shows bytes that are written there.
    with open(segment.path, "r+b") as file:
        file.write(b"HEAD")
    assert bytes(view) == b"HEAD"


def test_an_empty_pool_refuses_and_works_again_when_the_disk_has_caught_up(
    backend: PoolBackend, tmp_path: Path
) -> None:
    first = started(backend, tmp_path)
    first.append(bytes(SIZE))
    second = started(backend, tmp_path, SIZE)
    with pytest.raises(NoBufferError, match="transientStorePoolSize"):
        backend.create(str(tmp_path / "third"), 2 * SIZE, SIZE)
    assert not (tmp_path / "third").exists()
    assert backend.wait_durable(SIZE, WAIT_S)
    deadline = time.monotonic() + WAIT_S
    while backend.free_buffers == 0 and time.monotonic() < deadline:
        time.sleep(0.001)
    third = started(backend, tmp_path, 2 * SIZE)
    assert bytes(memoryview(third)) == bytes(SIZE)
    assert second.append(b"on")


def test_an_unreferenced_buffer_returns_to_the_pool(backend: PoolBackend, tmp_path: Path) -> None:
    for name in "abcd":
        backend.create(str(tmp_path / name), 0, SIZE)
    assert backend.free_buffers == 2


@pytest.mark.parametrize("written", [0, 1, 4095, 4096, 10_000])
def test_writing_continues_in_an_opened_tail(tmp_path: Path, written: int) -> None:
    path = tmp_path / f"{0:020d}"
    path.write_bytes(b"o" * written + bytes(SIZE - written))
    backend = PoolBackend(buffers=1)
    segment = backend.open(str(path), 0, SIZE, written)
    backend.attach(segment)
    backend.start(written)
    assert backend.durable_offset == written
    assert segment.append(b"new")
    assert bytes(memoryview(segment)[: written + 3]) == b"o" * written + b"new"
    assert backend.wait_durable(written + 3, WAIT_S)
    assert path.read_bytes() == b"o" * written + b"new" + bytes(SIZE - written - 3)
    backend.stop()


def test_whole_pages_are_committed_without_a_flush(tmp_path: Path) -> None:
    backend = PoolBackend(buffers=1, commit_interval_ms=1, commit_least_pages=2)
    segment = started(backend, tmp_path)
    segment.append(b"y" * 9000)
    deadline = time.monotonic() + WAIT_S
    while on_disk(segment)[:8192] != b"y" * 8192 and time.monotonic() < deadline:
        time.sleep(0.002)
    assert on_disk(segment)[:8192] == b"y" * 8192
    assert backend.durable_offset == 0
    backend.stop()
    assert backend.durable_offset == 9000


def test_the_eventfd_signals_progress(backend: PoolBackend, tmp_path: Path) -> None:
    segment = started(backend, tmp_path)
    segment.append(b"x")
    backend.request(1)
    assert select.select([backend.event_fd], [], [], WAIT_S)[0]


def test_after_a_failed_write_no_further_byte_is_durable(tmp_path: Path) -> None:
    """The file may grow to its size, but a limit set later makes the kernel refuse the write."""
    program = f"""
import resource, signal, sys
from congreve.io_backends.pool import PoolBackend
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
backend = PoolBackend(buffers=1, locked=False)
segment = backend.create({str(tmp_path / "a")!r}, 0, {SIZE})
backend.attach(segment)
backend.start(0)
segment.append(b"one")
assert backend.wait_durable(3, 20)
segment.append(bytes(20_000))
resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))
assert not backend.wait_durable(20_003, 20)
assert backend.failure_errno == {errno.EFBIG}, backend.failure_errno
resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))
assert not backend.wait_durable(5, 0.1)
assert backend.durable_offset == 3
assert bytes(memoryview(segment)[:3]) == b"one"
backend.stop()
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


@pytest.mark.parametrize("before", [0, 100, 4096])
def test_a_partly_written_group_is_not_visible(tmp_path: Path, before: int) -> None:
    """Its first page is written last, so that a kill in between leaves no part of a batch."""
    backend = PoolBackend(buffers=1, locked=False, commit_interval_ms=3_600_000)
    segment = backend.create(str(tmp_path / "a"), 0, SIZE)
    backend.attach(segment)
    backend.start(0)
    assert segment.append(b"x" * before)
    assert backend.wait_durable(before, 10)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (SIZE // 2, limits[1]))
    try:
        assert segment.append(b"y" * (SIZE - before))
        assert not backend.wait_durable(SIZE, 10)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    backend.stop()
    there = (tmp_path / "a").read_bytes()
    assert there[:before] == b"x" * before
    assert not any(there[before : before // 4096 * 4096 + 4096])
    assert b"y" in there, "no byte was written: the test proves nothing"


@pytest.mark.parametrize("allowed", [0, 2 * SIZE])
def test_the_error_for_a_pool_that_cannot_be_locked_says_what_to_do(
    tmp_path: Path, allowed: int
) -> None:
    """The check covers the whole pool at the start, not only when the third segment is needed."""
    program = f"""
import ctypes, resource
from congreve.io_backends.errors import BackendError
from congreve.io_backends.pool import PoolBackend
resource.setrlimit(resource.RLIMIT_MEMLOCK, ({allowed}, {allowed}))
CAP_IPC_LOCK = 14
libc = ctypes.CDLL(None)
header = (ctypes.c_uint32 * 2)(0x20080522, 0)
data = (ctypes.c_uint32 * 6)()
assert libc.capget(header, data) == 0
for i in (0, 1, 2):
    data[i] &= ~(1 << CAP_IPC_LOCK)
assert libc.capset(header, data) == 0
try:
    PoolBackend(buffers=3).create({str(tmp_path / "a")!r}, 0, {SIZE})
except BackendError as error:
    assert "RLIMIT_MEMLOCK" in str(error) and "transientStorePoolLocked=false" in str(error), error
else:
    raise SystemExit("locked without a right to it")
PoolBackend(buffers=1, locked=False).create({str(tmp_path / "b")!r}, 0, {SIZE})
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
    assert not (tmp_path / "a").exists()


def test_a_pool_without_buffers_is_refused() -> None:
    with pytest.raises(BackendError, match="buffers=0"):
        PoolBackend(buffers=0)
