"""The set of offsets that were resent."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from congreve.client.admin.offset_ranges import (
    OffsetQueue,
    OffsetSet,
    count_of,
    offsets_of,
    ranges_of,
)

OFFSETS = st.sets(st.integers(0, 60))


@given(OFFSETS)
def test_ranges_hold_the_offsets(offsets: set[int]) -> None:
    ranges = ranges_of(sorted(offsets))
    assert offsets_of(ranges) == sorted(offsets)
    assert all(last + 1 < first for (_, last), (first, _) in pairwise(ranges))


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 9))))
def test_a_set_of_ranges_behaves_like_a_set(added: list[tuple[int, int]]) -> None:
    ranges, plain = OffsetSet(), set[int]()
    for first, more in added:
        ranges.add(first, first + more)
        plain.update(range(first, first + more + 1))
    assert [offset in ranges for offset in range(75)] == [offset in plain for offset in range(75)]
    assert ranges.ranges == ranges_of(sorted(plain))
    missing = ranges.missing(10, 50)
    assert offsets_of(missing) == [offset for offset in range(10, 51) if offset not in plain]
    assert count_of(missing) == len(offsets_of(missing))


@given(OFFSETS, st.lists(st.integers(1, 9)))
def test_offsets_are_taken_from_the_front(offsets: set[int], counts: list[int]) -> None:
    queue, left = OffsetQueue(ranges_of(sorted(offsets))), sorted(offsets)
    for count in counts:
        assert offsets_of(queue.take(count)) == left[:count]
        left = left[count:]
