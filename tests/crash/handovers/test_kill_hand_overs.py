"""Some kills during hand-overs; `make soak-handovers` makes 200."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from handovers.campaigns import faults_of, run

KILLS = 3


@pytest.mark.crash
def test_nothing_acknowledged_is_lost_or_out_of_order(
    tmp_path: Path, campaign: Callable[[str, int], None]
) -> None:
    outcome = asyncio.run(run(tmp_path, 3, KILLS, seed=0, java=None, least=2))
    assert outcome.faults == []
    assert outcome.acknowledged and outcome.handed_on
    campaign("hand-overs: kills of either master", outcome.kills.total())


@pytest.mark.parametrize(
    ("queues", "fault"),
    [
        ({0: [1, 3], 1: [2]}, ""),
        ({0: [1, 9, 3], 1: [2]}, ""),  # nothing is known of what was not acknowledged
        ({0: [1], 1: [2]}, "1 lost: [3]"),
        ({0: [3, 1], 1: [2]}, "the order of queue 0"),
        ({0: [1, 3], 1: [2, 9], 2: [9]}, "1 twice: [9]"),
    ],
)
def test_what_is_wrong_is_seen(queues: dict[int, list[int]], fault: str) -> None:
    found = faults_of("here", queues, [1, 2, 3])
    assert len(found) == bool(fault)
    assert all(fault in each for each in found)
