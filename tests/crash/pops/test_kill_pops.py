"""Some kills in the middle of pops; `make soak-pops` makes a thousand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from .campaigns import group, one_broker, pair, switching

pytestmark = pytest.mark.crash
SEEDS = range(3)
Campaign = Callable[[str, int], None]


@pytest.mark.parametrize("backend", ["mmap", "pool", "uring"])
def test_acknowledged_messages_stay_away_and_others_come_back(
    backend: str, tmp_path: Path, campaign: Campaign
) -> None:
    outcome = one_broker(tmp_path, backend, SEEDS)
    assert outcome.faults == []
    campaign(f"V pops with acknowledgements, kills, {backend}", outcome.kills)


def test_a_group_switches_between_pops_and_pulls(tmp_path: Path, campaign: Campaign) -> None:
    outcome = switching(tmp_path, "mmap", SEEDS)
    assert outcome.faults == []
    campaign("V pops and pulls by turns, kills", outcome.kills)


def test_acknowledged_messages_stay_away_from_the_store_of_a_slave(
    tmp_path: Path, campaign: Campaign
) -> None:
    outcome = pair(tmp_path, "mmap", SEEDS)
    assert outcome.faults == []
    campaign("V pops with acknowledgements, kills, pair", outcome.kills)


def test_acknowledged_messages_stay_away_from_the_next_master(
    tmp_path: Path, campaign: Campaign
) -> None:
    outcome = asyncio.run(group(tmp_path, "mmap", SEEDS))
    assert outcome.faults == []
    campaign("V pops with acknowledgements, kills, elected group", outcome.kills)
