"""A run of an elected group with a kill, a cut and a shortened log; `make soak-elections`: 200."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from elections.runs import Watched, run

SIZE = 3


@pytest.mark.crash
def test_nothing_is_lost_or_skipped_and_no_offset_has_two_meanings(
    tmp_path: Path, campaign: Callable[[str, int], None]
) -> None:
    outcome = asyncio.run(run(tmp_path, SIZE, runs=1, seed=0))
    assert outcome.faults == []
    assert outcome.acknowledged and outcome.shown >= outcome.acknowledged
    campaign("elections: runs with a kill, a cut and a shortened log", outcome.runs)


async def test_what_was_skipped_or_had_two_meanings_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("elections.runs.WAIT_S", 0)
    watched = Watched("127.0.0.1:9876")
    for group, numbers in watched.consumed.items():
        numbers.update({1, 2} if group == "goes on" else {1})
    watched.see(0, 7, 1)
    assert await watched.are_consumed({1}) == watched.contradictions() == []
    watched.see(0, 7, 2)
    assert await watched.are_consumed({1, 2}) == ["skipped by the group that starts again: 1, [2]"]
    assert watched.contradictions() == ["two meanings of 1 offsets: [((0, 7), {1, 2})]"]
