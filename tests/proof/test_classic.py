"""Every state of a SYNC_MASTER and its slaves keeps what is promised, and seeded bugs are found."""

from __future__ import annotations

import pytest

from .classic import BUGS, SMALL, Bound, Rules, explore


@pytest.mark.parametrize("bound", SMALL, ids=repr)
def test_no_state_breaks_a_promise(bound: Bound) -> None:
    found = explore(bound)
    assert not found.broken, found
    assert found.states > 1000


@pytest.mark.parametrize("rules", BUGS.values(), ids=BUGS)
def test_a_seeded_bug_is_found(rules: Rules) -> None:
    found = explore(SMALL[0], rules)
    assert found.broken
    assert found.trace
