"""Comparison with an earlier checkout; this checkout stands in for it."""

import sys
from pathlib import Path

from sidebyside.before import Amounts, Turn, play, ratio


def test_both_brokers_run_in_turn(tmp_path: Path) -> None:
    amounts = Amounts(seconds=0.1, messages=3_200, fill_page_cache=False)
    turns = list(play("pull-32x128B-sql", Path(sys.executable), 2, amounts, tmp_path, {}))
    assert len(turns) == 2
    assert all(turn.rate > 0 for pair in turns for turn in pair)


def test_the_ratio_is_the_median_of_the_pairs() -> None:
    turns = [
        (Turn(rate=now, cpu_us=1), Turn(rate=before, cpu_us=2))
        for now, before in ((10, 5), (30, 10), (8, 8))
    ]
    assert ratio(turns, "rate") == (10, 8, 2)
    assert ratio(turns, "cpu_us") == (1, 2, 0.5)
