"""Each step of writing each state file: the broker ends before or after it, or the step fails."""

import errno
import random
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Literal

import pytest
from harness.faulty_broker import ENDED_THERE
from wholebroker.checker import listed
from wholebroker.lives import BrokerRuns

from congreve.io_backends.files.faulty import Failpoint

FILES = [
    "topics.json",
    "topics.journal",
    "subscriptionGroup.json",
    "subscriptionGroup.journal",
    "consumerOffset",
    "consumerFilter.json",
    "delayOffset.json",
    "queues.json",
    "index.json",
    "timer",
    "transactionChecks.json",
    "deletedTopics.json",
    "checkpoint",
    "congreve-broker.conf",
]
CALLS = ["create", "write", "sync", "link", "rename"]
#: Calls that belong to no single file: syncs of folders, and the mark of a running broker.
STEPS = [
    *product(CALLS, FILES),
    ("sync", "store/config"),
    ("sync", "store/congreve"),
    ("create", "abort"),
    ("remove", "abort"),
]
FAILING = [step for step in STEPS if step[0] not in ("link", "remove")]
SIDES: tuple[Literal["before", "after"], ...] = ("before", "after")
SHORT = 100
LIVES_OF_A_STORE = 20
Count = Callable[[str, int], None]


@pytest.mark.crash
def test_a_broker_killed_while_it_writes_state_breaks_no_promise(
    tmp_path: Path, kill_rounds: int, campaign: Count
) -> None:
    dice = random.Random(12)
    points = [*product(STEPS, SIDES)]
    dice.shuffle(points)
    rounds = 1 if kill_rounds <= SHORT else kill_rounds // 9
    wrong: list[str] = []
    for first in range(0, rounds, LIVES_OF_A_STORE):
        with BrokerRuns(tmp_path / str(first), "mmap", "SYNC_FLUSH", seed=first) as lives:
            lives.kill_at_work()
            for number in range(first, min(first + LIVES_OF_A_STORE, rounds)):
                (call, file), side = points[number % len(points)]
                nth = 1 if number < len(points) else dice.randrange(1, 20)
                point = Failpoint(call, file, side, nth)
                code = lives.run_with_failpoint(point, stops=bool(number % 4 == 0))
                met = "met" if code == ENDED_THERE else "not met"
                campaign(f"R12 whole broker, failpoint {met}", 1)
                found = lives.start_and_check()
                wrong += [f"{call} {file} {nth} {side}: {fault}" for fault in found]
                lives.broker.kill()
            if kill_rounds > SHORT:
                lives.broker.start()
                wrong += lives.settle_and_stop()
    assert not wrong, listed(wrong)


@pytest.mark.crash
def test_a_change_is_refused_if_its_state_cannot_be_written(
    tmp_path: Path, kill_rounds: int, campaign: Count
) -> None:
    """The fault occurs once, or until the broker ends; then the broker is killed or stopped."""
    dice = random.Random(28)
    steps = list(FAILING)
    dice.shuffle(steps)
    rounds = 1 if kill_rounds <= SHORT else kill_rounds // 9
    wrong: list[str] = []
    for first in range(0, rounds, LIVES_OF_A_STORE):
        with BrokerRuns(tmp_path / str(first), "mmap", "SYNC_FLUSH", seed=first) as lives:
            lives.history.refusals_hold = False
            lives.kill_at_work()
            for number in range(first, min(first + LIVES_OF_A_STORE, rounds)):
                call, file = steps[number % len(steps)]
                error = dice.choice((errno.EIO, errno.ENOSPC))
                nth, times = dice.randrange(1, 10), dice.choice((1, 1, 100_000))
                point = Failpoint(call, file, error, nth, times)
                lives.run_with_failpoint(point, stops=dice.random() < 0.5)
                campaign("R12 whole broker, a call fails", 1)
                found = lives.start_and_check()
                where = f"{call} {file} {nth} {errno.errorcode[error]} x {times}"
                wrong += [f"{where}: {fault}" for fault in found]
                lives.broker.kill()
            if kill_rounds > SHORT:
                lives.broker.start()
                wrong += lives.settle_and_stop()
    assert not wrong, listed(wrong)
