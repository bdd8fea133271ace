"""Every state of small groups keeps what is promised, and seeded bugs are found."""

from __future__ import annotations

import pytest

from .bounds import SMALL, begin
from .explorer import explore
from .group import Bound, Group
from .mutants import MUTANTS, STATES_MAX, Mutant


@pytest.mark.parametrize("bound", SMALL, ids=repr)
def test_no_state_breaks_a_promise(bound: Bound) -> None:
    found = explore(bound, begin(bound))
    assert not found.broken, str(found)
    assert found.is_all


def test_a_new_group_keeps_its_promises_from_the_first_election_on() -> None:
    bound = Bound(2, messages=1, stops=0, lost_ends=0, lapses=0)
    found = explore(bound, Group.new(bound))
    assert not found.broken, str(found)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_seeded_bug_is_found(mutant: Mutant) -> None:
    with mutant.seeded():
        found = explore(mutant.bound, begin(mutant.bound), STATES_MAX)
    assert found.broken
    assert found.trace
