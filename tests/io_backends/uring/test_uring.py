"""The io_uring backend: blocks on disk, writes in flight, tails that are written again."""

import errno
import os
import random
import resource
import select
import threading
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest

from .segments import BLOCK, SIZE, WAIT_S, added, growing, noise, uring


def test_durable_bytes_are_in_the_file(backend: "uring.UringBackend", folder: Path) -> None:
    dice = random.Random(1)
    segment = added(backend, folder)
    backend.start(0)
    data = noise(2, SIZE)
    for _ in growing(segment, data, dice, [1, 100, 300, 4000, 4096, 20_000]):
        assert backend.wait_durable(segment.written, WAIT_S)
        if dice.random() < 0.1:
            there = Path(segment.path).read_bytes()
            assert there[: segment.written] == data[: segment.written]
            assert not any(there[segment.written :]), "bytes after the end of the log"
    assert Path(segment.path).read_bytes() == data


def test_no_two_writes_in_flight_hold_the_same_block(
    backend: "uring.UringBackend", folder: Path
) -> None:
    """A later group that begins in the last block of one in flight must not overtake it."""
    dice = random.Random(3)
    segment = added(backend, folder)
    backend.start(0)
    data = noise(4, SIZE)
    assert segment.append(data[:300_000])  # more than one write holds
    together = 0
    for _ in growing(segment, data, dice, [50, 300, 5000, 30_000]):
        backend.request(segment.written)
        flying = sorted(backend.in_flight)
        together = max(together, len(flying))
        for (_, end), (start, _) in pairwise(flying):
            assert end <= start
    assert backend.wait_durable(SIZE, WAIT_S)
    assert Path(segment.path).read_bytes() == data
    assert together > 1, "no two writes were in flight together: the test proves nothing"


def test_the_eventfd_signals_each_completion(backend: "uring.UringBackend", folder: Path) -> None:
    segment = added(backend, folder)
    backend.start(0)
    for _ in range(5):
        assert segment.append(bytes(10_000))
        backend.request(segment.written)
        while backend.durable_offset < segment.written:
            assert select.select([backend.event_fd], [], [], WAIT_S)[0], "not notified"
            os.read(backend.event_fd, 8)
    assert backend.failure_errno == 0


def test_a_lone_write_is_complete_when_its_flush_returns(
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
    assert not select.select([backend.event_fd], [], [], 0)[0], "no thread waits for a notification"


def test_a_lone_write_is_told_to_those_that_requested_something_before(
    backend: "uring.UringBackend", folder: Path
) -> None:
    """Their bytes may be in it: nothing else would wake them."""
    segment = added(backend, folder)
    backend.start(0)
    backend.request(0)
    for heard in (True, False):
        assert segment.append(bytes(100))
        assert backend.write_through(segment.written)
        assert bool(select.select([backend.event_fd], [], [], 0)[0]) == heard
        if heard:
            os.read(backend.event_fd, 8)


def test_threads_hear_of_their_bytes_beside_one_that_writes_itself(
    backend: "uring.UringBackend", folder: Path
) -> None:
    segment = added(backend, folder)
    backend.start(0)
    heard = []

    def hold_answers() -> None:
        while segment.written < SIZE:
            upto = segment.written
            backend.request(upto)
            while backend.durable_offset < upto:
                heard.append(bool(select.select([backend.event_fd], [], [], WAIT_S)[0]))
                with suppress(BlockingIOError):
                    os.read(backend.event_fd, 8)

    other = threading.Thread(target=hold_answers)
    other.start()
    data = noise(21, SIZE)
    for _ in growing(segment, data, random.Random(22), [100, 3000, 9000]):
        if not backend.write_through(segment.written):
            assert backend.wait_durable(segment.written, WAIT_S)
    other.join()
    assert all(heard)
    assert Path(segment.path).read_bytes() == data


def test_a_write_after_one_in_flight_waits_for_it(
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
    assert waited > 0, "no write was in flight: the test proves nothing"


def test_bytes_appended_during_a_write_are_not_written_before_their_flush(
    backend: "uring.UringBackend", folder: Path, quick: bool
) -> None:
    """Otherwise a kill would leave the first members of a batch in the block of a write."""
    dice = random.Random(19)
    segment = added(backend, folder)
    backend.start(0)
    data = b"\xda" * SIZE
    while segment.written < SIZE // (4 if quick else 1) - 8 * BLOCK:
        assert segment.append(data[: dice.choice([100, 3000, 5000])])
        asked = segment.written
        backend.request(asked)
        assert segment.append(data[: dice.choice([50, 500])])  # while that one is in flight
        while backend.durable_offset < asked:
            assert select.select([backend.event_fd], [], [], WAIT_S)[0]
            os.read(backend.event_fd, 8)
        there = Path(segment.path).read_bytes()
        assert there[:asked] == data[:asked]
        assert not any(there[asked:]), "bytes after the end of the write"


def test_a_small_group_is_written_when_the_write_before_it_is_complete(
    backend: "uring.UringBackend", folder: Path
) -> None:
    """Only the code that handles the end of the first write may send it."""
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
            assert select.select([backend.event_fd], [], [], WAIT_S)[0], (
                "the waiting group is not written"
            )
            os.read(backend.event_fd, 8)
    assert Path(segment.path).read_bytes()[: segment.written] == data[: segment.written]
    assert waited > 0, "no group waited: the test proves nothing"


def test_a_stop_writes_groups_that_wait_for_the_write_in_flight(folder: Path) -> None:
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


def test_the_loop_submits_its_writes_beside_those_of_threads_and_zeros(
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


def waited(backend: "uring.UringBackend", upto: int) -> bool:
    return backend.wait_durable(upto, WAIT_S)


def written_through(backend: "uring.UringBackend", upto: int) -> bool:
    return backend.write_through(upto)


@pytest.mark.parametrize("durable", [waited, written_through])
@pytest.mark.parametrize("limit", [SIZE // 2, SIZE // 2 + 512])
def test_after_a_failed_or_short_write_no_further_byte_is_durable(
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
