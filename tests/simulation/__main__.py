"""Simulates many groups, one seed after the other, and writes tests/proof/results.md.

`python -m simulation HOURS [PROCESSES [FIRST_SEED]]`, with tests/ on the path: so many simulated
hours. A seed that breaks a promise is printed, and ends the run with an error.
"""

from __future__ import annotations

import sys
import time
from concurrent.futures import Future, ProcessPoolExecutor

from proof import page

from .world import Outcome, Rates, simulate

MINUTES = 30.0
"""The time of one group."""
RATES = Rates(appends=240.0, faults=2.5)


def main(hours: float, processes: int = 2, first: int = 1) -> int:
    """Run everything; the exit code."""
    began = time.monotonic()
    seeds = range(first, first + round(hours * 60 / MINUTES))
    with ProcessPoolExecutor(processes, max_tasks_per_child=20) as pool:
        lives = {seed: pool.submit(simulate, seed, MINUTES, RATES) for seed in seeds}
        done, broken = _outcomes(lives)
    took = time.monotonic() - began
    minutes = sum(each.minutes for each in done)
    appends = sum(each.appends for each in done)
    faults = sum(each.faults for each in done)
    changes = sum(each.changes for each in done)
    page.write(
        "simulation",
        [
            f"Last run: {page.today()}, seeds {seeds[0]} to {seeds[-1]}: {minutes / 60:,.0f}"
            f" simulated hours in {took / 60:.0f} minutes of {processes} processes.",
            "",
            "| groups | appends | acknowledged | faults | changes of master or set | broken |",
            "|---|---|---|---|---|---|",
            f"| {len(done)} | {appends:,} | {sum(each.acknowledged for each in done):,}"
            f" | {faults:,} | {changes:,} | {broken} |",
            f"| in a minute | {appends / minutes:.0f} | | {faults / minutes:.1f}"
            f" | {changes / minutes:.1f} | |",
        ],
    )
    return 1 if broken else 0


def _outcomes(lives: dict[int, Future[Outcome]]) -> tuple[list[Outcome], int]:
    """What the seeds have seen, and how many of them broke a promise."""
    done, broken = [], 0
    for seed, life in lives.items():
        error = life.exception()
        if error is None:
            done.append(life.result())
        else:
            broken += 1
            print(f"seed {seed}: {type(error).__name__}: {error}", flush=True)
    return done, broken


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), *map(int, sys.argv[2:])))
