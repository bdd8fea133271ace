"""Segments filled with zeros in advance compared with segments that are only reserved.

Run: pytest bench/test_segments.py. Each round writes 4 KiB to disk, one at a time, into new blocks.
Blocks reserved by fallocate have to be marked as written, so that each sync waits for the file
system's journal.
"""

import mmap
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from congreve.io_backends.backend import Backend
from congreve.io_backends.mapped.mapped import MmapBackend
from congreve.io_backends.pool import PoolBackend

BLOCK = 4096
SIZE = 32 << 20
ROUNDS = 1_000
WAYS = ("msync", "pwrite and fdatasync", "O_DIRECT and RWF_DSYNC")

Write = Callable[[], object]


def through(backend: Backend, path: Path, prepared: bool) -> Write:
    segment = backend.create(str(path), 0, SIZE)
    if prepared:
        segment.prewrite()
    backend.attach(segment)
    backend.start(0)
    data = bytes(BLOCK)

    def write() -> None:
        assert segment.append(data)
        assert backend.wait_durable(segment.written, 10)

    return write


def directly(fd: int, prepared: bool) -> Write:
    data = mmap.mmap(-1, 1 << 20)
    os.posix_fallocate(fd, 0, SIZE)
    if prepared:
        for at in range(0, SIZE, len(data)):
            os.pwritev(fd, [data], at)
    os.fsync(fd)
    block = [memoryview(data)[:BLOCK]]
    places = iter(range(0, SIZE, BLOCK))

    def write() -> None:
        assert os.pwritev(fd, block, next(places), os.RWF_DSYNC) == BLOCK

    return write


@pytest.fixture(params=["prepared", "reserved"])
def writes(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, Write]]:
    prepared = request.param == "prepared"
    mapped, pool = MmapBackend(), PoolBackend(locked=False)
    fd = os.open(tmp_path / "direct", os.O_RDWR | os.O_CREAT | os.O_DIRECT)
    yield dict(
        zip(
            WAYS,
            [
                through(mapped, tmp_path / "mapped", prepared),
                through(pool, tmp_path / "pool", prepared),
                directly(fd, prepared),
            ],
            strict=True,
        )
    )
    mapped.stop()
    pool.stop()
    os.close(fd)


@pytest.mark.parametrize("way", WAYS)
def test_a_block_on_disk(benchmark: BenchmarkFixture, writes: dict[str, Write], way: str) -> None:
    benchmark.group = f"4 KiB in a new segment, {way}"
    benchmark.pedantic(writes[way], rounds=ROUNDS, warmup_rounds=100)
