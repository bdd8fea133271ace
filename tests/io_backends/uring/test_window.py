"""The window of memory that segments share: it is reused, and no old byte is visible."""

import os
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from congreve.io_backends.backend import Segment

from .segments import BLOCK, SIZE, WAIT_S, added, noise, uring


def test_the_log_is_larger_than_the_window_and_old_views_stay_right(
    backend: "uring.UringBackend", folder: Path
) -> None:
    backend.start(0)
    data = noise(5, 4 * SIZE)
    segments, views = [], []
    for base in range(0, 4 * SIZE, SIZE):
        segments.append(added(backend, folder, base))
        while segments[-1].written < SIZE:
            at = base + segments[-1].written
            assert segments[-1].append(data[at : at + 10_001][: SIZE - segments[-1].written])
            assert backend.wait_durable(base + segments[-1].written, WAIT_S)
        views.append(memoryview(segments[-1]))
    assert b"".join(views) == data
    backend.stop()
    assert b"".join(views) == data
    assert b"".join(Path(segment.path).read_bytes() for segment in segments) == data


def test_a_reader_finds_every_byte_while_the_window_moves_on(
    backend: "uring.UringBackend", folder: Path
) -> None:
    backend.start(0)
    laps = 8
    data = noise(11, laps * SIZE)
    segments: list[Segment] = []
    ended = threading.Event()

    def read() -> list[int]:
        """The kernel copies from those addresses while the writer continues."""
        wrong = []
        dice = random.Random(12)
        copy = os.memfd_create("copy")
        while not ended.is_set():
            segment = segments[-1 - dice.randrange(min(len(segments), 2))]
            view = memoryview(segment)
            start = dice.randrange(len(view) - BLOCK)
            length = os.pwrite(copy, view[start : start + 64 * BLOCK], 0)
            at = segment.base_offset + start
            if os.pread(copy, length, 0) != data[at : at + length]:
                wrong.append(at)
        os.close(copy)
        return wrong

    reader = ThreadPoolExecutor(max_workers=1)
    for base in range(0, laps * SIZE, SIZE):
        segment = added(backend, folder, base)
        while segment.written < SIZE:
            at = base + segment.written
            assert segment.append(data[at : at + 40_009][: SIZE - segment.written])
            assert backend.wait_durable(base + segment.written, WAIT_S)
        segments.append(segment)
        if base == 0:
            wrong = reader.submit(read)
    ended.set()
    assert wrong.result(WAIT_S) == []


def test_many_small_segments_that_wait_for_the_disk_get_their_own_bytes(folder: Path) -> None:
    """More files than the ring has places for."""
    backend = uring.UringBackend(window=8 << 20)
    backend.start(0)
    size, count = 16 * BLOCK, 40
    segments = []
    for number in range(count):
        segments.append(added(backend, folder, number * size, size))
        assert segments[-1].append(noise(number, size))
    assert backend.wait_durable(count * size, WAIT_S)
    backend.stop()
    for number, segment in enumerate(segments):
        assert Path(segment.path).read_bytes() == noise(number, size), f"segment {number}"


def test_old_bytes_of_the_window_are_never_written_again(
    backend: "uring.UringBackend", folder: Path
) -> None:
    backend.start(0)
    for base in (0, SIZE):
        segment = added(backend, folder, base)
        assert segment.append(b"\xda" * SIZE)
        assert backend.wait_durable(base + SIZE, WAIT_S)
    segment = added(backend, folder, 2 * SIZE)
    assert segment.append(b"\xda" * 100)
    assert backend.wait_durable(2 * SIZE + 100, WAIT_S)
    assert Path(segment.path).read_bytes() == b"\xda" * 100 + bytes(SIZE - 100)
    assert bytes(memoryview(segment)[100:]) == bytes(SIZE - 100)


def test_a_slow_disk_releases_no_memory_until_it_has_caught_up(folder: Path) -> None:
    backend = uring.UringBackend(window=1 << 20)
    segment = added(backend, folder, size=4 * SIZE)
    backend.start(0)
    while segment.append(b"x" * 50_000):
        assert segment.written <= backend.window.size, "the window was handed out twice"
    behind = segment.written
    assert backend.wait_durable(behind, WAIT_S), "the buffers must be freed without a request"
    assert segment.append(b"y" * 50_000)
    backend.stop()
    assert Path(segment.path).read_bytes()[: segment.written] == (b"x" * behind + b"y" * 50_000)


@pytest.mark.parametrize("written", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 300_000])
def test_a_log_continues_in_the_middle_of_a_block(folder: Path, written: int) -> None:
    before = noise(6, written)
    path = folder / "0"
    path.write_bytes(before + b"\xff" * (SIZE - written))
    backend = uring.UringBackend(window=1 << 20)
    segment = backend.open(str(path), 0, SIZE, written)
    segment.zero_tail()
    backend.attach(segment)
    backend.start(0)
    assert backend.durable_offset == written, "recovery found it, so it was synced at the start"
    assert segment.append(b"more")
    backend.stop()
    assert backend.durable_offset == written + 4
    wanted = before + b"more" + bytes(SIZE - written - 4)
    assert path.read_bytes() == wanted
    assert bytes(memoryview(segment)) == wanted


def test_writes_continue_while_zeros_are_written_after_them(folder: Path) -> None:
    backend = uring.UringBackend(window=4 << 20)
    size = 32 << 20
    segment = backend.create(str(folder / "0"), 0, size)
    backend.attach(segment)
    backend.start(0)
    data = noise(7, 6 << 20)
    while segment.written < len(data):
        assert segment.append(data[segment.written : segment.written + 70_001])
        assert backend.wait_durable(segment.written, WAIT_S)
    backend.stop()
    there = Path(segment.path).read_bytes()
    assert there[: len(data)] == data
    assert not any(there[len(data) :])
