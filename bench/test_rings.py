"""Our io_uring backend on the C library compared with PyPI's `liburing`: why that package is not
the default.

Run: pip install liburing; pytest bench/test_rings.py. Each round writes 4 KiB to disk, one at a
time, over blocks written before. `others` is the progress of a second Python thread in turns per
second: a ring that waits while holding the GIL stops the whole broker.
"""

import mmap
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from congreve.io_backends.probe import uring_refusal

BLOCK = 4096
SIZE = 32 << 20
ROUNDS = 2000
TURN_S = 50e-6

Write = Callable[[], object]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    refusal = uring_refusal(str(tmp_path))
    if refusal is not None:
        pytest.skip(refusal)
    return tmp_path


@pytest.fixture
def through_backend(folder: Path) -> Iterator[Write]:
    from congreve.io_backends.uring.uring import UringBackend

    backend = UringBackend()
    segment = backend.create(str(folder / "segment"), 0, SIZE)
    segment.prewrite()
    backend.attach(segment)
    backend.start(0)
    data = bytes(BLOCK)

    def write() -> None:
        assert segment.append(data)
        assert backend.wait_durable(segment.written, 10)

    yield write
    backend.stop()


@pytest.fixture
def raw_file(folder: Path) -> Iterator[tuple[int, mmap.mmap]]:
    data = mmap.mmap(-1, 1 << 20)
    fd = os.open(folder / "raw", os.O_RDWR | os.O_CREAT | os.O_DIRECT)
    for at in range(0, SIZE, len(data)):
        os.pwritev(fd, [data], at)
    os.fsync(fd)
    yield fd, data
    os.close(fd)


@pytest.fixture
def through_package(raw_file: tuple[int, mmap.mmap]) -> Iterator[Write]:
    package = pytest.importorskip("liburing", reason="pip install liburing")
    fd, data = raw_file
    ring, cqe = package.Ring(), package.Cqe()
    package.io_uring_queue_init(8, ring)
    block = memoryview(data)[:BLOCK]
    vector = package.Iovec([block])
    at = 0

    def write() -> None:
        nonlocal at
        sqe = package.io_uring_get_sqe(ring)
        package.io_uring_prep_writev(sqe, fd, vector, offset=at, flags=package.RWF_DSYNC)
        at = (at + BLOCK) % SIZE
        package.io_uring_submit(ring)
        package.io_uring_wait_cqe(ring, cqe)
        done = cqe[0]
        assert done.res == BLOCK
        package.io_uring_cqe_seen(ring, done)

    yield write
    package.io_uring_queue_exit(ring)


@pytest.fixture
def through_system_calls(raw_file: tuple[int, mmap.mmap]) -> Write:
    fd, data = raw_file
    block = [memoryview(data)[:BLOCK]]
    at = 0

    def write() -> None:
        nonlocal at
        assert os.pwritev(fd, block, at, os.RWF_DSYNC) == BLOCK
        at = (at + BLOCK) % SIZE

    return write


@pytest.mark.parametrize("way", ["through_backend", "through_package", "through_system_calls"])
def test_a_block_on_disk(
    benchmark: BenchmarkFixture, request: pytest.FixtureRequest, way: str
) -> None:
    write: Write = request.getfixturevalue(way)
    stopping = threading.Event()
    turns = 0

    def take_turns() -> None:
        nonlocal turns
        while not stopping.is_set():
            time.sleep(TURN_S)
            turns += 1

    other = threading.Thread(target=take_turns)
    begin = time.monotonic()
    other.start()
    benchmark.group = "4 KiB, O_DIRECT and RWF_DSYNC"
    benchmark.pedantic(write, rounds=ROUNDS, warmup_rounds=100)
    stopping.set()
    other.join()
    benchmark.extra_info["others"] = round(turns / (time.monotonic() - begin))
