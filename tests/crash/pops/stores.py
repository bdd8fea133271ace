"""The kinds of stores that soak-pops kills, and the counts of each."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

from pops.campaigns import Outcome, group, one_broker, pair, switching

KILLS = 10
"""Of a store."""
BACKENDS = ("mmap", "pool", "uring")
KINDS: dict[str, Callable[[Path, str, range], Outcome]] = {
    "one broker": one_broker,
    "one broker; the members pop or pull by turns": switching,
    "a SYNC_MASTER and its slave": pair,
    "an elected group": lambda *given: asyncio.run(group(*given)),
}


class Row:
    """The counts of one kind with one backend."""

    def __init__(self) -> None:
        self.counts = [0] * 7
        self.faults: list[str] = []

    def add(self, other: Row) -> None:
        """Add those of other stores."""
        self.counts = list(map(sum, zip(self.counts, other.counts, strict=True)))
        self.faults += other.faults


def stores(kills: int) -> Iterator[tuple[str, str, range]]:
    """Kind, backend and seeds of each store: a seed for each kill, so many in all."""
    for begin in count(step=KILLS):
        seeds = range(begin, begin + KILLS)
        for kind in KINDS:
            for backend in BACKENDS:
                if kills <= 0:
                    return
                yield kind, backend, seeds[:kills]
                kills -= KILLS


def killed(kind: str, backend: str, seeds: range) -> Row:
    """The counts of one store."""
    with tempfile.TemporaryDirectory() as folder:
        outcome = KINDS[kind](Path(folder), backend, seeds)
    row = Row()
    row.faults = [f"{kind}, {backend}: {fault}" for fault in outcome.faults]
    row.counts[0] = outcome.kills
    for ledger in outcome.ledgers:
        early = len(ledger.early) if outcome.timely else 0
        of_ledger = (
            *(ledger.dead_members, len(ledger.acknowledged), ledger.came_again),
            *(len(ledger.again), len(ledger.missing), early),
        )
        row.counts[1:] = map(sum, zip(row.counts[1:], of_ledger, strict=True))
    return row
