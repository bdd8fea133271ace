"""kill -9 of a whole broker under requests of every kind: its state matches its answers.

With `pytest -s` each violation is printed when it is found.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
from wholebroker.checker import listed
from wholebroker.lives import BrokerRuns

from congreve.io_backends.backends import refusal

#: Backend, policy and networkThreads. Over mapped files a killed process loses nothing with either
#: policy.
WAYS = [
    ("mmap", "SYNC_FLUSH", 1),
    ("mmap", "SYNC_FLUSH", 4),
    ("mmap", "ASYNC_FLUSH", 0),
    ("mmap", "ASYNC_FLUSH", 1),
    ("mmap", "ASYNC_FLUSH", 4),
    ("pool", "SYNC_FLUSH", 1),
    ("pool", "SYNC_FLUSH", 4),
    ("uring", "SYNC_FLUSH", 0),
    ("uring", "SYNC_FLUSH", 1),
    ("uring", "SYNC_FLUSH", 4),
]
KILLS_OF_A_STORE = 17
SHORT = 100


@pytest.mark.crash
@pytest.mark.parametrize(("backend", "policy", "lanes"), WAYS)
def test_kills_of_a_broker_break_no_promise(
    tmp_path: Path,
    kill_rounds: int,
    backend: str,
    policy: str,
    lanes: int,
    campaign: Callable[[str, int], None],
) -> None:
    """500 kills over the three backends from 1,000 rounds on."""
    if (reason := refusal(backend, str(tmp_path))) is not None:
        pytest.skip(reason)
    kills = max(1, kill_rounds // 20) if kill_rounds > SHORT else 1
    way = f"{backend}, {policy}, networkThreads={lanes}"
    wrong: list[str] = []

    def note(where: str, faults: list[str]) -> None:
        for fault in faults:
            print(f"{way}, {where}: {fault}", flush=True)
        wrong.extend(faults)

    for first in range(0, kills, KILLS_OF_A_STORE):
        with BrokerRuns(tmp_path / str(first), backend, policy, first, lanes) as lives:
            for kill in range(first, min(first + KILLS_OF_A_STORE, kills)):
                lives.end_somehow()
                note(f"kill {kill + 1} of {kills}", lives.start_and_check())
                campaign(f"R10 kill -9 under all kinds of requests, {way}", 1)
            if kill_rounds > SHORT or backend == "mmap":
                note("settled", lives.settle_and_stop())
        for (kind, code), times in lives.history.answers.items():
            campaign(f"R10 {kind}, " + (f"refused {code}" if code else "success"), times)
    assert not wrong, listed(wrong)
