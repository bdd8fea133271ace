"""What the benchmark of a crossed pair says about a client's sends around a kill."""

import pytest
from crossedpair.__main__ import figures
from harness.numbered_messages import Attempt

KILLED = 1_000.0
BEFORE = [Attempt(900, 910, 0, "a"), Attempt(910, 950, 1, "b")]


def test_a_send_that_waits_for_the_dead_broker_is_a_pause_and_a_failure() -> None:
    waiting = Attempt(990, 3_990, 2, "")
    found = figures("c", [*BEFORE, waiting, Attempt(3_991, 4_000, 3, "b")], KILLED)
    assert found == {
        "c: next acknowledgement": 3.0,
        "c: longest pause": 3.05,
        "c: longest send": 3.0,
        "c: failed sends": 1,
    }


def test_a_send_that_began_before_the_kill_is_not_the_next_acknowledgement() -> None:
    sends = [Attempt(999, 1_005, 2, "b"), Attempt(1_005, 1_020, 3, "b")]
    found = figures("c", [*BEFORE, *sends], KILLED)
    assert found["c: next acknowledgement"] == pytest.approx(0.02)
    assert found["c: longest pause"] == pytest.approx(0.055)


def test_a_client_that_knew_one_master_only_proves_nothing() -> None:
    with pytest.raises(RuntimeError, match="c: 1 sends before the kill"):
        figures("c", [BEFORE[0], Attempt(1_001, 1_002, 1, "a")], KILLED)
