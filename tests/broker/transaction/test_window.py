"""The window of ended half messages, compared with a plain set."""

from hypothesis import given
from hypothesis import strategies as st

from congreve.broker.transaction.window import HalfWindow
from congreve.engine.log.append_lock import AppendLock


@given(
    st.integers(0, 40),
    st.lists(st.integers(0, 120), max_size=150),
)
def test_the_window_behaves_like_a_set_with_a_completed_prefix(
    base: int, settled: list[int]
) -> None:
    window, model = HalfWindow(AppendLock(), base), set(range(base))
    for offset in settled:
        window.add(offset)
        model.add(offset)
    assert [window.contains(i) for i in range(200)] == [i in model for i in range(200)]
    assert window.base == min(set(range(200)) - model)
    assert window.open_offsets(130) == [i for i in range(130) if i not in model]


def test_the_window_moves_along_a_long_queue_and_keeps_open_offsets() -> None:
    window = HalfWindow(AppendLock())
    for begin in range(0, 400_000, 50_000):
        for offset in range(begin + 49_999, begin, -1):
            window.add(offset)
        assert window.open_offsets(begin + 50_000) == [begin]
        window.add(begin)
        assert window.base == begin + 50_000
        assert not window.contains(begin + 50_000)


def test_the_window_grows_while_an_offset_stays_open() -> None:
    window = HalfWindow(AppendLock(), 7)
    for offset in range(8, 300_000):
        window.add(offset)
    assert (window.base, window.open_offsets(300_001)) == (7, [7, 300_000])
    window.add(7)
    assert window.base == 300_000


def test_a_reset_clears_the_window() -> None:
    window = HalfWindow(AppendLock())
    window.add(5)
    window.start_at(3)
    assert window.open_offsets(8) == [3, 4, 5, 6, 7]
