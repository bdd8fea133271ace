"""Groups under virtual time: a short form of `make soak-simulation`."""

from __future__ import annotations

import pytest
from proof.mutants import MUTANTS

from .world import BrokenPromiseError, simulate

SEEDED = {
    "an epoch is given twice": 1,
    "a store of the newest epoch counts as one from the future": 1,
}
"""Seeded bugs, and a seed that shows each."""


@pytest.mark.parametrize("seed", range(1, 4))
def test_nothing_acknowledged_is_lost(seed: int) -> None:
    found = simulate(seed, minutes=2.0)
    assert found.acknowledged > 0.5 * found.appends > 100
    assert found.changes > 0 < found.faults


def test_a_seed_gives_the_same_life_again() -> None:
    assert simulate(4, minutes=1.0) == simulate(4, minutes=1.0)


@pytest.mark.parametrize("name", SEEDED)
def test_a_seeded_bug_shows(name: str) -> None:
    (mutant,) = [each for each in MUTANTS if each.name == name]
    with mutant.seeded(), pytest.raises(BrokenPromiseError):
        simulate(SEEDED[name], minutes=5.0)
