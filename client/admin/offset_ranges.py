"""Queue offsets as ranges with both ends."""

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Sequence

Range = tuple[int, int]
"""Offsets from the first to the last, inclusive."""


class OffsetSet:
    """A set of queue offsets as ranges."""

    def __init__(self, ranges: Iterable[Range] = ()) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        for first, last in ranges:
            self.add(first, last)

    def __contains__(self, offset: int) -> bool:
        at = bisect_right(self._firsts, offset) - 1
        return at >= 0 and offset <= self._lasts[at]

    @property
    def ranges(self) -> list[Range]:
        """The offsets in ascending order; no two ranges are adjacent."""
        return list(zip(self._firsts, self._lasts, strict=True))

    def add(self, first: int, last: int) -> None:
        """Add the offsets from `first` to `last`."""
        low = bisect_left(self._lasts, first - 1)
        high = bisect_right(self._firsts, last + 1)
        if low < high:
            first, last = min(first, self._firsts[low]), max(last, self._lasts[high - 1])
        self._firsts[low:high] = [first]
        self._lasts[low:high] = [last]

    def missing(self, first: int, last: int) -> list[Range]:
        """The offsets from `first` to `last` that are not in the set."""
        missing: list[Range] = []
        at = bisect_left(self._lasts, first)
        while at < len(self._firsts) and self._firsts[at] <= last:
            if first < self._firsts[at]:
                missing.append((first, self._firsts[at] - 1))
            first = self._lasts[at] + 1
            at += 1
        if first <= last:
            missing.append((first, last))
        return missing


class OffsetQueue:
    """Ranges whose offsets are taken from the front."""

    def __init__(self, ranges: Iterable[Range]) -> None:
        self._left = deque(ranges)

    def take(self, count: int) -> list[Range]:
        """The next `count` offsets, fewer at the end."""
        taken: list[Range] = []
        while count and self._left:
            first, last = self._left.popleft()
            end = min(last, first + count - 1)
            if end < last:
                self._left.appendleft((end + 1, last))
            taken.append((first, end))
            count -= end + 1 - first
        return taken


def ranges_of(offsets: Iterable[int]) -> list[Range]:
    """The ranges of ascending offsets."""
    ranges: list[Range] = []
    for offset in offsets:
        if ranges and ranges[-1][1] == offset - 1:
            ranges[-1] = (ranges[-1][0], offset)
        else:
            ranges.append((offset, offset))
    return ranges


def offsets_of(ranges: Sequence[Range]) -> list[int]:
    """The offsets of ranges."""
    return [offset for first, last in ranges for offset in range(first, last + 1)]


def count_of(ranges: Iterable[Range]) -> int:
    """The number of offsets in ranges."""
    return sum(last + 1 - first for first, last in ranges)
