"""The cursor tracks exactly which entries are done, even if the clock is set back."""

import numpy
from hypothesis import given
from hypothesis import strategies as st

from congreve.engine.timer.cursor import TimerCursor


def arrays(found: list[tuple[int, int]]) -> numpy.ndarray:
    return numpy.array(found, numpy.int64).reshape(-1, 2)


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("new"), st.lists(st.integers(1, 60), max_size=5)),
            st.tuples(st.just("take"), st.integers(1, 4)),
        ),
        max_size=40,
    )
)
def test_a_cursor_skips_exactly_the_entries_that_were_taken(steps) -> None:
    """Random arrivals, including early ones, compared with a set of the taken entries."""
    cursor = TimerCursor()
    everything: list[tuple[int, int]] = []
    waiting: list[tuple[int, int]] = []
    back = 0
    for what, amount in steps:
        if what == "new":
            fresh = [(wake, 100 + len(everything) + i) for i, wake in enumerate(amount)]
            pairs = arrays(fresh)
            before = cursor.mark
            cursor.note(pairs)
            back += cursor.mark != before
            everything += fresh
            waiting = sorted(waiting + fresh)
        elif waiting:
            taken, waiting = waiting[:amount], waiting[amount:]
            cursor.move(taken[-1])
        kept = arrays(everything)[cursor.is_pending(arrays(everything))]
        # More than STEPS jumps back are dropped one by one: some come twice, none is lost.
        if back <= 8:
            assert sorted(map(tuple, kept.tolist())) == waiting
        else:
            assert set(waiting) <= set(map(tuple, kept.tolist()))
        again = TimerCursor.from_rows(cursor.rows())
        assert vars(again) == vars(cursor)


def test_a_step_back_ends_when_the_clock_reaches_its_time_again() -> None:
    cursor = TimerCursor((1_000, 5), bound=6)
    cursor.note(arrays([(2_000, 10), (900, 11)]))
    assert (cursor.mark, cursor.bound, cursor.steps) == ((0, 0), 12, [(1_000, 5, 6)])
    cursor.move((900, 11))
    assert cursor.steps
    cursor.move((2_000, 10))
    assert cursor.steps == []
