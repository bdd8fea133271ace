"""Power cuts of one broker and its name server, under requests of every kind."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Mapping
from typing import NamedTuple

from cuts.disks import Disk, Disks
from cuts.power import cut
from wholebroker.checker import Found
from wholebroker.history import History
from wholebroker.lives import BrokerRuns

LIVES = 17
"""Cuts of one store; the next ones get a new store."""
WORK_S = (0.05, 1.2)
ANSWER_S = 60.0
SETTINGS = {"eventLoopWatchdogMillis": "0", "flushIntervalCommitLog": "20"}


class Cuts(NamedTuple):
    """What some cuts left: how many acknowledged messages were looked for, and what was wrong.

    Under ASYNC_FLUSH messages may be lost, and only in the end of the log.
    """

    cuts: int
    acknowledged: int
    lost: int
    wrong: list[str]


def cut_broker(
    disks: Disks,
    backend: str,
    policy: str,
    cuts: int,
    seed: int,
    environment: Mapping[str, str] | None = None,
) -> Cuts:
    """Cut its power `cuts` times; after each the broker starts with what its disk had.

    After the last of several cuts each delayed message and transaction must come, and the store's
    files must be whole. `environment` makes a broker that may lose anything.
    """
    chance = random.Random(seed)
    acknowledged = lost = 0
    wrong: list[str] = []
    for first in range(0, cuts, LIVES):
        disk = disks.add()
        runs = BrokerRuns(disk.path, backend, policy, seed + first, 1, SETTINGS)
        runs.broker.environment.update(environment or {})
        try:
            with runs:
                disk.sync()
                for number in range(first, min(first + LIVES, cuts)):
                    found = found_after_cut(runs, disk, chance.uniform(*WORK_S))
                    promised = [copies.promised for copies in runs.history.copies.values()]
                    acknowledged += sum(promised)
                    faults = torn_batches(runs.history, found)
                    if policy != "SYNC_FLUSH":
                        faults += not_the_end(runs.history, found)
                    lost += missing(runs.history, found, forgive=policy != "SYNC_FLUSH")
                    faults += runs.check(found)
                    wrong += [f"{backend} {policy} cut {number}: {each}" for each in faults]
                if cuts > 1 and environment is None:
                    wrong += runs.settle_and_stop()
        finally:
            disks.remove(disk)
    return Cuts(cuts, acknowledged, lost, wrong)


def found_after_cut(runs: BrokerRuns, disk: Disk, work_s: float) -> Found:
    """What the broker has after some work and a power cut, the first one after an answer."""
    clients = runs.use(work_s)
    deadline = time.monotonic() + ANSWER_S
    while not any(copies.promised for copies in list(runs.history.copies.values())):
        assert time.monotonic() < deadline, "nothing was acknowledged"
        time.sleep(0.01)
    cut([runs.broker, runs.namesrv], [disk])
    clients.join()
    runs.namesrv.start()
    runs.broker.start()
    return runs.read()


def not_the_end(history: History, found: Found) -> list[str]:
    """A missing message that the log had before one that is there."""
    placed = sorted(
        (copies.physical_offset, key)
        for key, copies in history.copies.items()
        if copies.place is not None and copies.promised
    )
    there = [(bool(found.by_number.get(key)), *key) for _, key in placed]
    return [
        f"{topic} {number} is missing, and {after[1]} {after[2]} behind it is there"
        for (is_there, topic, number), after in itertools.pairwise(there)
        if not is_there and after[0]
    ]


def torn_batches(history: History, found: Found) -> list[str]:
    """Batches of which more is missing than an end; a batch that is the end of the log may be torn.

    Batches whose beginning is there count as no batches from now on: their messages are checked.
    """
    wrong = []
    for topic, numbers in history.batches:
        there = [number for number in numbers if found.by_number.get((topic, number))]
        if there != numbers[: len(there)]:
            wrong.append(f"{topic}: of a batch of {numbers} only {there} are there")
    history.batches.clear()
    return wrong


def missing(history: History, found: Found, *, forgive: bool) -> int:
    """How many promised messages are missing; `forgive` promises them no more."""
    count = 0
    for key, copies in history.copies.items():
        fewer = max(0, copies.promised - len(found.by_number.get(key, [])))
        count += fewer if copies.at_once else 0
        if forgive:
            copies.promised -= fewer
    return count
