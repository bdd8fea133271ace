"""The io_uring backend: blocks on disk, tails that are written again, memory that is used again."""

import errno
import os
import random
import resource
import select
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest

from congreve.io_backends.backend import Segment
from congreve.io_backends.errors import BackendError, SegmentSizeError
from congreve.io_backends.probe import uring_refusal

uring = pytest.importorskip(
    "congreve.io_backends.uring.uring", reason="built without liburing: io_uring is not tested"
)

BLOCK = 4096
SIZE = 1 << 20
WAIT_S = 20.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    refusal = uring_refusal(str(tmp_path))
    if refusal is not None:
        pytest.skip(refusal)
    return tmp_path


@pytest.fixture
def backend(folder: Path) -> "Iterator[uring.UringBackend]":
    backend = uring.UringBackend(window=1 << 20)
    yield backend
    backend.stop()


def added(backend: "uring.UringBackend", folder: Path, base: int = 0, size: int = SIZE) -> Segment:
    segment: Segment = backend.create(str(folder / f"{base:020d}"), base, size)
    segment.prewrite()
    backend.attach(segment)
    return segment


def noise(seed: int, length: int) -> bytes:
    return random.Random(seed).randbytes(length)


def growing(segment: Segment, data: bytes, dice: random.Random, steps: list[int]) -> Iterator[None]:
    """Appends `data`, as much as the segment takes, in steps of chance; yields behind each."""
    while segment.written < segment.size:
        step = min(dice.choice(steps), segment.size - segment.written)
        assert segment.append(data[segment.written : segment.written + step])
        yield


def test_what_is_durable_is_in_the_file(backend: "uring.UringBackend", folder: Path) -> None:
    dice = random.Random(1)
    segment = added(backend, folder)
    backend.start(0)
    data = noise(2, SIZE)
    for _ in growing(segment, data, dice, [1, 100, 300, 4000, 4096, 20_000]):
        assert backend.wait_durable(segment.written, WAIT_S)
        if dice.random() < 0.1:
            there = Path(segment.path).read_bytes()
            assert there[: segment.written] == data[: segment.written]
            assert not any(there[segment.written :]), "bytes behind the end of the log"
    assert Path(segment.path).read_bytes() == data


def test_no_two_writes_in_flight_hold_the_same_block(
    backend: "uring.UringBackend", folder: Path
) -> None:
    """A later group that begins in the last block of one in flight must not overtake it."""
    dice = random.Random(3)
    segment = added(backend, folder)
    backend.start(0)
    data = noise(4, SIZE)
    together = 0
    for _ in growing(segment, data, dice, [50, 300, 5000, 30_000]):
        backend.request(segment.written)
        flying = sorted(backend.in_flight)
        together = max(together, len(flying))
        for (_, end), (start, _) in pairwise(flying):
            assert end <= start
    assert backend.wait_durable(SIZE, WAIT_S)
    assert Path(segment.path).read_bytes() == data
    assert together > 1, "nothing was ever in flight together: the test showed nothing"


def test_the_eventfd_tells_of_each_completion(backend: "uring.UringBackend", folder: Path) -> None:
    segment = added(backend, folder)
    backend.start(0)
    for _ in range(5):
        assert segment.append(bytes(10_000))
        backend.request(segment.written)
        while backend.durable_offset < segment.written:
            assert select.select([backend.event_fd], [], [], WAIT_S)[0], "never told"
            os.read(backend.event_fd, 8)
    assert backend.failure_errno == 0


def test_a_write_that_is_alone_is_done_when_it_was_asked_for(
    backend: "uring.UringBackend", folder: Path
) -> None:
    dice = random.Random(12)
    segment = added(backend, folder)
    backend.start(0)
    data = noise(13, SIZE)
    for _ in growing(segment, data, dice, [1, 300, 4096, 20_000]):
        assert backend.write_through(segment.written)
        assert backend.durable_offset == segment.written
        there = Path(segment.path).read_bytes()
        assert there[: segment.written] == data[: segment.written]
        assert not any(there[segment.written :])
    assert not select.select([backend.event_fd], [], [], 0)[0], "nobody waits to be told"


def test_a_write_behind_one_in_flight_waits_for_it(
    backend: "uring.UringBackend", folder: Path
) -> None:
    segment = added(backend, folder)
    backend.start(0)
    data = noise(14, SIZE)
    waited = 0
    while segment.written < SIZE:
        for _ in range(2):
            assert segment.append(data[segment.written : segment.written + 16 * BLOCK + 100])
            backend.request(segment.written - 50)
            waited += not backend.write_through(segment.written)
        assert backend.wait_durable(segment.written, WAIT_S)
        if SIZE - segment.written < 2 * (16 * BLOCK + 100):
            break
    assert Path(segment.path).read_bytes()[: segment.written] == data[: segment.written]
    assert waited > 0, "no write was ever in flight: the test showed nothing"


def test_what_is_appended_during_a_write_is_not_on_disk_before_it_is_asked_for(
    backend: "uring.UringBackend", folder: Path
) -> None:
    """Or a kill would leave the first members of a batch that lay in the block of a write."""
    dice = random.Random(19)
    segment = added(backend, folder)
    backend.start(0)
    data = b"\xda" * SIZE
    while segment.written < SIZE - 8 * BLOCK:
        assert segment.append(data[: dice.choice([100, 3000, 5000])])
        asked = segment.written
        backend.request(asked)
        assert segment.append(data[: dice.choice([50, 500])])  # while that one is in flight
        while backend.durable_offset < asked:
            assert select.select([backend.event_fd], [], [], WAIT_S)[0]
            os.read(backend.event_fd, 8)
        there = Path(segment.path).read_bytes()
        assert there[:asked] == data[:asked]
        assert not any(there[asked:]), "bytes behind the end of the write"


def test_a_small_group_that_waits_for_the_one_in_front_is_sent_when_that_is_done(
    backend: "uring.UringBackend", folder: Path
) -> None:
    """By nobody but him who hears of the first one's end."""
    segment = added(backend, folder)
    backend.start(0)
    data = noise(15, SIZE)
    waited = 0
    while segment.written < SIZE - 20 * BLOCK:
        for length in (16 * BLOCK + 100, 50, 50):
            assert segment.append(data[segment.written : segment.written + length])
            backend.request(segment.written)
        waited += len(backend.in_flight) == 1
        while backend.durable_offset < segment.written:
            assert select.select([backend.event_fd], [], [], WAIT_S)[0], "nobody sends what waits"
            os.read(backend.event_fd, 8)
    assert Path(segment.path).read_bytes()[: segment.written] == data[: segment.written]
    assert waited > 0, "nothing ever waited: the test showed nothing"


def test_stopping_writes_what_waits_for_the_write_in_flight(folder: Path) -> None:
    backend = uring.UringBackend(window=1 << 20)
    segment = added(backend, folder)
    backend.start(0)
    data = noise(16, 16 * BLOCK + 150)
    for end in (16 * BLOCK + 100, 16 * BLOCK + 150):
        assert segment.append(data[segment.written : end])
        backend.request(end)
    backend.stop()
    assert backend.durable_offset == len(data)
    assert Path(segment.path).read_bytes()[: len(data)] == data


def test_writes_of_the_loop_go_with_those_that_other_threads_wait_for_and_with_zeros(
    folder: Path,
) -> None:
    """Over the ends of segments and window, some too large for one write."""
    backend = uring.UringBackend(window=1 << 20)
    backend.start(0)
    size, count = 2 << 20, 3
    data = noise(17, size * count)
    dice = random.Random(18)
    written = [0]
    heard: list[bool] = []

    def wait_along() -> None:  # as checkpoints do
        while written[0] < len(data):
            upto = written[0]
            heard.append(backend.wait_durable(upto, WAIT_S) and backend.durable_offset >= upto)

    other = threading.Thread(target=wait_along)
    other.start()
    here = 0
    segments = []
    for base in range(0, len(data), size):
        segments.append(backend.create(str(folder / f"{base:020d}"), base, size))
        backend.attach(segments[-1])  # zeros are written while it is used
        while segments[-1].written < size:
            step = min(dice.choice([100, 5000, 70_000, 300_000]), size - segments[-1].written)
            assert segments[-1].append(data[written[0] : written[0] + step])
            done = backend.write_through(written[0] + step)
            here += done
            written[0] += step
            assert done or backend.wait_durable(written[0], WAIT_S)
            assert backend.durable_offset >= written[0]
    other.join()
    backend.stop()
    assert here > 0 and heard and all(heard)
    assert b"".join(Path(segment.path).read_bytes() for segment in segments) == data


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


def test_who_reads_while_the_window_moves_on_finds_every_byte(
    backend: "uring.UringBackend", folder: Path
) -> None:
    backend.start(0)
    laps = 8
    data = noise(11, laps * SIZE)
    segments: list[Segment] = []
    ended = threading.Event()

    def read() -> list[int]:
        """What the kernel copies it takes from those addresses, while the writer goes on."""
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


def test_old_bytes_of_the_window_never_reach_the_disk_again(
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


def test_a_disk_that_is_behind_gives_no_memory_until_it_has_caught_up(folder: Path) -> None:
    backend = uring.UringBackend(window=1 << 20)
    segment = added(backend, folder, size=4 * SIZE)
    backend.start(0)
    while segment.append(b"x" * 50_000):
        assert segment.written <= backend.window.size, "the window was given twice"
    behind = segment.written
    assert backend.wait_durable(behind, WAIT_S), "what was refused must not wait for a request"
    assert segment.append(b"y" * 50_000)
    backend.stop()
    assert Path(segment.path).read_bytes()[: segment.written] == (b"x" * behind + b"y" * 50_000)


@pytest.mark.parametrize("written", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 300_000])
def test_a_log_goes_on_in_the_middle_of_a_block(folder: Path, written: int) -> None:
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


def test_writing_goes_on_while_zeros_are_written_behind(folder: Path) -> None:
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


def waited(backend: "uring.UringBackend", upto: int) -> bool:
    return backend.wait_durable(upto, WAIT_S)


def written_through(backend: "uring.UringBackend", upto: int) -> bool:
    return backend.write_through(upto)


@pytest.mark.parametrize("durable", [waited, written_through])
@pytest.mark.parametrize("limit", [SIZE // 2, SIZE // 2 + 512])
def test_after_a_failed_or_short_write_nothing_is_ever_durable(
    backend: "uring.UringBackend",
    folder: Path,
    limit: int,
    durable: "Callable[[uring.UringBackend, int], bool]",
) -> None:  # defect D16
    segment = added(backend, folder)
    backend.start(0)
    assert segment.append(bytes(SIZE // 2))
    assert backend.wait_durable(SIZE // 2, WAIT_S)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        assert segment.append(bytes(3 * BLOCK))
        assert not durable(backend, segment.written)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert backend.failure_errno in {errno.EFBIG, errno.EIO}
    assert segment.append(bytes(BLOCK))
    assert not backend.wait_durable(SIZE // 2 + 1, 0.2), "a write was tried again"
    assert backend.durable_offset == SIZE // 2


def test_segments_that_are_no_whole_blocks_are_refused(
    backend: "uring.UringBackend", folder: Path
) -> None:
    with pytest.raises(BackendError, match="multiple of 4096"):
        backend.create(str(folder / "a"), 0, SIZE + 512)
    (folder / "b").write_bytes(b"short")
    with pytest.raises(SegmentSizeError):
        backend.open(str(folder / "b"), 0, SIZE, 0)
    with pytest.raises(BackendError, match="no such"):
        backend.create(str(folder / "nowhere" / "a"), 0, SIZE)
    assert [path.name for path in folder.iterdir()] == ["b"]


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(BackendError, match="in flight"):
        uring.UringBackend(depth=0)
    with pytest.raises(BackendError, match="window"):
        uring.UringBackend(window=4096)


def test_the_probe_says_why_and_leaves_nothing(folder: Path) -> None:
    assert uring_refusal(str(folder)) is None
    assert list(folder.iterdir()) == []
    refusal = uring_refusal(str(folder / "nowhere"))
    assert refusal is not None
    assert "nowhere" in refusal


def test_a_kernel_that_forbids_the_ring_costs_one_line(folder: Path) -> None:
    """The real refusal: the call is answered with EPERM, as Docker does by default."""
    program = f"""
import logging
from congreve.engine.backends import make_backend
from congreve.engine.config import StoreConfig
logging.basicConfig()
config = StoreConfig(root_dir={str(folder)!r}, io_backend="uring")
print(type(make_backend(config)).__name__)
"""
    forbidding = Path(__file__).with_name("forbidding.py")
    run = subprocess.run(
        [sys.executable, forbidding, sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    if "no filter" in run.stderr:
        pytest.skip(run.stderr)
    assert run.stdout == "PoolBackend\n", run.stderr
    (line,) = run.stderr.splitlines()
    assert "io_uring: Operation not permitted" in line
    assert list(folder.iterdir()) == []
