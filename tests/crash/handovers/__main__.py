"""Kills either master during hand-overs, and writes tests/proof/results.md.

`python -m handovers COUNT`, with tests/ and tests/crash/ on the path: so many kills, ten in each
group. It ends with an error if an acknowledged message was lost or came out of order, a message is
stored twice, or a producer is not answered after a kill; the stores of such a group stay in
build/handovers/.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import time
from collections import defaultdict
from contextlib import closing
from pathlib import Path

from handovers.campaigns import VICTIMS, Outcome, run
from harness.drivers import java_driver
from proof import page

BUILD = Path(__file__).resolve().parents[3] / "build" / "handovers"
OF_A_GROUP = 10
GROUPS = {"three, minInSyncReplicas=2": (3, 2), "three": (3, 1), "two": (2, 1)}
"""Members, and how many stay in sync at least."""


def main(count: int) -> int:
    """Run everything; the exit code."""
    began = time.monotonic()
    shutil.rmtree(BUILD, ignore_errors=True)
    found: defaultdict[str, list[Outcome]] = defaultdict(list)
    wrong: list[str] = []
    for seed, first in enumerate(range(0, count, OF_A_GROUP)):
        name = list(GROUPS)[seed % len(GROUPS)]
        size, least = GROUPS[name]
        folder, kills = BUILD / str(seed), min(OF_A_GROUP, count - first)
        with closing(java_driver(folder / "java", "JSON")) as java:
            outcome = asyncio.run(run(folder, size, kills, seed, java, least=least))
        if not outcome.faults:
            shutil.rmtree(folder)
        found[name].append(outcome)
        wrong += [f"group {seed}: {each}" for each in outcome.faults]
        print(f"group {seed}: {outcome}", flush=True)
        _write(found, (time.monotonic() - began) / 60)
    return 1 if wrong else 0


def _write(found: dict[str, list[Outcome]], minutes: float) -> None:
    kills = sum(each.kills.total() for of in found.values() for each in of)
    page.write(
        "handovers",
        [
            f"Last run: {page.today()}: {kills} kills in {minutes:.0f} minutes.",
            "",
            "| members | kills of the old master | of the new one | waited for the victim"
            " | handed on, at least | acknowledged | stored without an answer | read again"
            " | lost, out of order, stored twice, or no answer |",
            "|---|---|---|---|---|---|---|---|---|",
            *(f"| {name} | {' | '.join(_counts(of))} |" for name, of in found.items()),
        ],
    )


def _counts(outcomes: list[Outcome]) -> list[str]:
    rows = [
        (
            *(each.kills[victim] for victim in VICTIMS),
            *(each.waits, each.handed_on, each.acknowledged, each.unanswered, each.twice),
            len(each.faults),
        )
        for each in outcomes
    ]
    return [f"{sum(column):,}" for column in zip(*rows, strict=True)]


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
