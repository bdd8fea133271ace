"""Elected groups under kills, cuts and shortened logs, as processes; writes tests/proof/results.md.

`python -m elections RUNS`, with tests/ and tests/crash/ on the path: a group of two or of three
members for each ten runs, two groups at a time. It ends with an error if a message was lost or
skipped, or an offset had two meanings; the stores of such a group stay in build/elections/.
"""

from __future__ import annotations

import multiprocessing
import shutil
import sys
import time
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from elections.runs import Outcome, run_and_remove
from proof import page

BUILD = Path(__file__).resolve().parents[3] / "build" / "elections"
OF_A_GROUP = 10
AT_A_TIME = 2
SIZES = (3, 2, 3)


def size_of(seed: int) -> int:
    return SIZES[seed % len(SIZES)]


def main(count: int) -> int:
    """Run everything; the exit code."""
    began = time.monotonic()
    shutil.rmtree(BUILD, ignore_errors=True)
    found: defaultdict[int, list[Outcome]] = defaultdict(list)
    wrong: list[str] = []
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(AT_A_TIME, mp_context=context) as processes:
        runs_of_groups = [min(OF_A_GROUP, count - first) for first in range(0, count, OF_A_GROUP)]
        groups = {
            processes.submit(run_and_remove, BUILD / str(seed), size_of(seed), runs, seed): seed
            for seed, runs in enumerate(runs_of_groups)
        }
        for done in as_completed(groups):
            seed, outcome = groups[done], done.result()
            found[size_of(seed)].append(outcome)
            wrong += [f"group {seed}: {each}" for each in outcome.faults]
            print(f"group {seed}: {outcome}", flush=True)
            _write(found, (time.monotonic() - began) / 60)
    return 1 if wrong else 0


def _write(found: dict[int, list[Outcome]], minutes: float) -> None:
    everything = [outcome for outcomes in found.values() for outcome in outcomes]
    page.write(
        "elections",
        [
            f"Last run: {page.today()}: {sum(each.runs for each in everything)} runs in"
            f" {minutes:.0f} minutes.",
            "",
            "| members | groups | runs | elections | acknowledged | offsets seen"
            " | lost, skipped, or with two meanings |",
            "|---|---|---|---|---|---|---|",
            *(
                f"| {size} | {len(of)} | {sum(each.runs for each in of)}"
                f" | {sum(each.switches for each in of):,}"
                f" | {sum(each.acknowledged for each in of):,}"
                f" | {sum(each.shown for each in of):,} | {sum(len(each.faults) for each in of)} |"
                for size, of in sorted(found.items())
            ),
        ],
    )


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
