"""How fast bytes become durable: raw writes, and groups of bytes through a backend."""

import mmap
import os
import random
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain

from congreve.io_backends.backend import Backend, Segment
from congreve.io_backends.errors import BackendError

#: Size of the file that raw writes reuse, and the most bytes that one measurement writes.
RAW_BYTES = 32 << 20
MEASURE_BYTES = 32 << 20
_WAIT_S = 10.0


@dataclass(frozen=True, slots=True)
class Sample:
    """The result of one measurement; latencies of one group to disk, in microseconds."""

    group_bytes: int
    in_flight: int
    groups: int
    p50_us: float
    p99_us: float
    bytes_per_s: float


def sample(group: int, in_flight: int, latencies_ns: list[int], elapsed_ns: int) -> Sample:
    """The Sample of these latencies. Raises BackendError if there are none."""
    if not latencies_ns:
        raise BackendError("nothing was measured: no write ended in time; use a longer --seconds")
    ordered = sorted(latencies_ns)
    return Sample(
        group,
        in_flight,
        len(ordered),
        ordered[len(ordered) // 2] / 1e3,
        ordered[len(ordered) * 99 // 100] / 1e3,
        len(ordered) * group * 1e9 / elapsed_ns,
    )


def raw_writes(
    folder: str, group: int, depth: int, seconds: float, chance: random.Random | None = None
) -> Sample:
    """O_DIRECT writes with RWF_DSYNC over a file of zeros that are on disk: the disk's own limit.

    `depth` threads have one write in flight each, at one place after the other, or with `chance`
    at random ones. Raises BackendError if the disk refuses.
    """
    path = os.path.join(folder, "raw")
    data = mmap.mmap(-1, max(group, 1 << 20))
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_DIRECT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise BackendError(f"cannot open {path} with O_DIRECT: {error.strerror}") from error
    try:
        for at in range(0, RAW_BYTES, 1 << 20):
            os.pwritev(fd, [memoryview(data)[: 1 << 20]], at)
        os.fdatasync(fd)
        places = list(range(RAW_BYTES // depth // group))
        if chance is not None:
            chance.shuffle(places)
        return _raw_rounds(fd, memoryview(data)[:group], depth, seconds, places)
    except OSError as error:
        raise BackendError(f"a raw write failed: {error.strerror}") from error
    finally:
        os.close(fd)
        os.unlink(path)


def _raw_rounds(fd: int, data: memoryview, depth: int, seconds: float, places: list[int]) -> Sample:
    group, lane = len(data), len(places)
    latencies: list[list[int]] = [[] for _ in range(depth)]
    failures: list[OSError] = []
    begin = time.perf_counter_ns()
    end = begin + int(seconds * 1e9)

    def write(number: int) -> None:
        at, mine = 0, latencies[number]
        try:
            while (start := time.perf_counter_ns()) < end:
                os.pwritev(fd, [data], (number * lane + places[at % lane]) * group, os.RWF_DSYNC)
                mine.append(time.perf_counter_ns() - start)
                at += 1
        except OSError as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(1, depth)]
    for thread in threads:
        thread.start()
    write(0)
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return sample(group, depth, list(chain(*latencies)), time.perf_counter_ns() - begin)


class BackendMeasure:
    """Measures one backend with one segment in a folder; a context manager that removes its files.

    `measurements` is the most that will follow; each writes up to MEASURE_BYTES.
    """

    def __init__(self, make: Callable[[], Backend], folder: str, measurements: int) -> None:
        self._make = make
        self._path = os.path.join(folder, "segment")
        self._size = measurements * MEASURE_BYTES
        self._data = bytes(1 << 20)

    def __enter__(self) -> "BackendMeasure":
        self._backend: Backend = self._make()
        self._segment: Segment = self._backend.create(self._path, 0, self._size)
        try:
            self._segment.prewrite()
            self._backend.attach(self._segment)
            self._backend.start(0)
        except BaseException:
            os.unlink(self._path)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._backend.stop()
        os.unlink(self._path)

    def sync_groups(self, group: int, in_flight: int, seconds: float) -> Sample:
        """SYNC_FLUSH: each group is requested at once, `in_flight` groups wait together."""
        waiting: deque[tuple[int, int]] = deque()
        latencies: list[int] = []
        begin = now = time.perf_counter_ns()
        stop = self._segment.written + MEASURE_BYTES - group
        while now < begin + seconds * 1e9 and self._segment.written <= stop:
            self._append(group)
            self._backend.request(self._segment.written)
            waiting.append((self._segment.written, now))
            if len(waiting) == in_flight:
                latencies.append(self._wait(*waiting.popleft()))
            now = time.perf_counter_ns()
        latencies += [self._wait(*one) for one in waiting]
        return sample(group, in_flight, latencies, time.perf_counter_ns() - begin)

    def async_groups(self, group: int, seconds: float) -> Sample:
        """ASYNC_FLUSH: groups are appended, and one request follows at the end.

        Latencies are those of the append; the bandwidth includes the flush to disk.
        """
        latencies = []
        begin = now = time.perf_counter_ns()
        stop = self._segment.written + MEASURE_BYTES - group
        while now < begin + seconds * 1e9 and self._segment.written <= stop:
            self._append(group)
            after = time.perf_counter_ns()
            latencies.append(after - now)
            now = after
        self._wait(self._segment.written, begin)
        return sample(group, 0, latencies, time.perf_counter_ns() - begin)

    def _append(self, group: int) -> None:
        data = memoryview(self._data)[:group]
        while not self._segment.append(data):
            if not self._backend.wait_durable(self._segment.written, _WAIT_S):
                raise BackendError(self._failure())

    def _wait(self, upto: int, since_ns: int) -> int:
        if not self._backend.wait_durable(upto, _WAIT_S):
            raise BackendError(self._failure())
        return time.perf_counter_ns() - since_ns

    def _failure(self) -> str:
        errno = self._backend.failure_errno
        return f"the disk failed: {os.strerror(errno)}" if errno else "the disk timed out"
