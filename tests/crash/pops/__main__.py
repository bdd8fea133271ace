"""Kills brokers and members in the middle of pops, and writes tests/proof/results.md.

`python -m pops COUNT`, with tests/ and tests/crash/ on the path: so many kills of brokers, of one
broker, a pair and an elected group with each backend by turns. It ends with an error if a message
came again after its acknowledgement, was lost, or came too early.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pops.campaigns import Outcome, group, one_broker, pair, switching
from proof import page

OF_A_STORE = 10
"""Kills; the next ones get new stores."""
BACKENDS = ("mmap", "pool", "uring")
KINDS: dict[str, Callable[[Path, str, int], Outcome]] = {
    "one broker": one_broker,
    "one broker; the members pop or pull by turns": switching,
    "a SYNC_MASTER and its slave": pair,
    "an elected group": lambda *given: asyncio.run(group(*given)),
}


class Row:
    """The counts of one kind with one backend."""

    def __init__(self) -> None:
        self.counts = [0] * 7

    def add(self, outcome: Outcome) -> None:
        """Add those of some kills."""
        found = [outcome.kills] + [0] * 6
        for ledger in outcome.ledgers:
            early = len(ledger.early) if outcome.timely else 0
            of_ledger = (
                *(ledger.dead_members, len(ledger.acknowledged), ledger.came_again),
                *(len(ledger.again), len(ledger.missing), early),
            )
            found[1:] = map(sum, zip(found[1:], of_ledger, strict=True))
        self.counts = list(map(sum, zip(self.counts, found, strict=True)))


def main(count: int) -> int:
    """Run everything; the exit code."""
    began = time.monotonic()
    rows: dict[tuple[str, str], Row] = {}
    faults: list[str] = []
    turns = [(kind, backend) for kind in KINDS for backend in BACKENDS]
    done = 0
    while done < count:
        for kind, backend in turns:
            kills = min(OF_A_STORE, count - done)
            if kills <= 0:
                break
            with tempfile.TemporaryDirectory() as folder:
                outcome = KINDS[kind](Path(folder), backend, kills)
            faults += [f"{kind}, {backend}: {fault}" for fault in outcome.faults]
            rows.setdefault((kind, backend), Row()).add(outcome)
            done += kills
            print(f"{done} kills, wrong: {faults}", flush=True)
            _write(rows, done, (time.monotonic() - began) / 60, faults)
    return 1 if faults else 0


def _write(rows: dict[tuple[str, str], Row], done: int, minutes: float, faults: list[str]) -> None:
    page.write(
        "pops",
        [
            f"Last run: {page.today()}: {done} kills in {minutes:.0f} minutes,"
            f" {len(faults)} faults.",
            "",
            "| what was killed | backend | kills of brokers | members that died | acknowledged"
            " | came again | of those, acknowledged before | lost | too early |",
            "|---|---|---|---|---|---|---|---|---|",
            *(
                f"| {kind} | {backend} | {' | '.join(f'{each:,}' for each in row.counts)} |"
                for (kind, backend), row in rows.items()
            ),
        ],
    )


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
