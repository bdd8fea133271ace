"""Sorted runs of timer entries on disk, and the merge of many of them."""

import os
from collections.abc import Callable, Iterable
from functools import cached_property

import numpy
from numpy import int64
from numpy.typing import NDArray

from congreve.engine.errors import StoreError
from congreve.engine.timer.heap import TimerHeap
from congreve.io_backends.files.file_system import DISK, FileSystem

PAIR = 16  # bytes: wake i64, physical offset i64, little endian
BLOCK = 4_096  # pairs of a run in memory
MERGE_BLOCK = 65_536  # pairs written at once

Keep = Callable[[NDArray[int64]], NDArray[numpy.bool_]]


class Run:
    """A file of pairs (wake, physical offset), ascending; written once, then only read."""

    def __init__(self, folder: str, name: str, count: int, files: FileSystem = DISK) -> None:
        self._files = files
        self.name = name
        self.count = count
        self.path = os.path.join(folder, name)

    @cached_property
    def last(self) -> tuple[int, int]:
        """The greatest pair. Raises StoreError."""
        wake, offset = self.read(self.count - 1, 1)[0].tolist()
        return wake, offset

    @property
    def whole(self) -> bool:
        """Whether the file exists with all its pairs."""
        try:
            return self._files.status(self.path).st_size == self.count * PAIR
        except OSError:
            return False

    def first_after(self, wake: int, offset: int) -> int:
        """Index of the first pair greater than (wake, offset). Raises StoreError."""
        low, high = 0, self.count
        while low < high:
            middle = (low + high) // 2
            found = self.read(middle, 1)[0]
            if (int(found[0]), int(found[1])) <= (wake, offset):
                low = middle + 1
            else:
                high = middle
        return low

    def read(self, index: int, count: int) -> NDArray[int64]:
        """Pairs from `index` on, fewer at the end, none after it. Raises StoreError."""
        try:
            with self._files.open(self.path, os.O_RDONLY) as file:
                data = self._files.read(file, count * PAIR, index * PAIR)
        except OSError as error:
            raise StoreError(f"cannot read {self.path}: {error.strerror}") from error
        flat = numpy.frombuffer(data, "<i8", len(data) // PAIR * 2)
        return flat.reshape(-1, 2).astype(int64, copy=False)

    def remove(self) -> None:
        """Remove the file if it exists. Raises StoreError."""
        try:
            self._files.remove(self.path)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise StoreError(f"cannot remove {self.path}: {error.strerror}") from error


class RunReader:
    """Reads a run block by block; `keep` selects the pairs that are still needed."""

    def __init__(self, run: Run, start: int, keep: Keep) -> None:
        self.run = run
        self._at = start
        self._keep = keep

    def next_block(self) -> NDArray[int64] | None:
        """The next pairs, int64 of shape (n, 2); None at the run's end. Raises StoreError."""
        while self._at < self.run.count:
            pairs = self.run.read(self._at, BLOCK)
            self._at += max(len(pairs), 1)
            wanted = numpy.ascontiguousarray(pairs[self._keep(pairs)])
            if len(wanted):
                return wanted
        return None


class Merge:
    """Runs and entries in memory, as one sorted stream."""

    def __init__(self) -> None:
        self.heap = TimerHeap()
        self._readers: dict[int, RunReader] = {}

    def add_run(self, reader: RunReader) -> None:
        """Add a run to the merge. Raises StoreError."""
        block = reader.next_block()
        if block is not None:
            slot = self.heap.new_slot()
            self._readers[slot] = reader
            self.heap.feed(slot, block)

    def drop_runs(self, runs: Iterable[Run]) -> None:
        """Remove these runs from the merge."""
        names = {run.name for run in runs}
        for slot in [s for s, reader in self._readers.items() if reader.run.name in names]:
            del self._readers[slot]
            self.heap.forget(slot)

    def take(self, now: int, limit: int) -> NDArray[int64]:
        """Due rows (wake, offset, source), at most `limit`, in order. Raises StoreError."""
        pieces = [self.heap.take(now, limit)]
        while self.heap.starved >= 0:
            slot = self.heap.starved
            block = self._readers[slot].next_block()
            if block is None:
                del self._readers[slot]
                self.heap.end(slot)
            else:
                self.heap.feed(slot, block)
            pieces.append(self.heap.take(now, limit - sum(map(len, pieces))))
        return pieces[0] if len(pieces) == 1 else numpy.concatenate(pieces)


def write_run(
    folder: str, name: str, blocks: Iterable[NDArray[int64]], files: FileSystem = DISK
) -> Run:
    """Write these sorted pairs as a new run; it is durable afterwards. Raises StoreError."""
    path = os.path.join(folder, name)
    count = 0
    try:
        files.make_folder(folder)
        with files.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as file:
            for pairs in blocks:
                data = numpy.ascontiguousarray(pairs, "<i8").tobytes()
                files.write(file, data, count * PAIR)
                count += len(pairs)
            files.sync(file)
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror}") from error
    return Run(folder, name, count, files)


def merged_blocks(runs: Iterable[RunReader]) -> Iterable[NDArray[int64]]:
    """All pairs of the runs in order, block by block."""
    merge = Merge()
    for reader in runs:
        merge.add_run(reader)
    while len(rows := merge.take(numpy.iinfo(int64).max, MERGE_BLOCK)):
        yield rows[:, :2]
