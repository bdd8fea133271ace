"""Explores the bounds, seeds the bugs, and writes what it found into tests/proof/results.md.

`python -m proof small|large [PROCESSES]`, with tests/ on the path. It ends with an error if a
promise is broken, or a seeded bug is not found.
"""

from __future__ import annotations

import sys
import time
from concurrent.futures import ProcessPoolExecutor

from . import page
from .bounds import LARGE, SMALL, begin
from .explorer import Found, explore
from .group import Bound
from .mutants import MUTANTS, STATES_MAX, Mutant

MEMORY_FOR = 3_000_000
"""States after which a bound is left, some GB of memory."""


def explored(bound: Bound) -> Found:
    """All states of a bound."""
    return explore(bound, begin(bound), MEMORY_FOR)


def seeded(index: int) -> Found:
    """The nearest state in which a seeded bug shows."""
    mutant: Mutant = MUTANTS[index]
    with mutant.seeded():
        return explore(mutant.bound, begin(mutant.bound), STATES_MAX)


def main(size: str, processes: int = 2) -> int:
    """Run everything; the exit code."""
    began = time.monotonic()
    bounds = LARGE if size == "large" else SMALL
    with ProcessPoolExecutor(processes) as pool:
        states = pool.map(explored, bounds)
        bugs = pool.map(seeded, range(len(MUTANTS)))
        results = list(zip(bounds, states, strict=True))
        took = time.monotonic() - began
        found_bugs = list(bugs)
    rows = [_row(bound, found) for bound, found in results]
    count = sum(found.states for _, found in results)
    for mutant, found in zip(MUTANTS, found_bugs, strict=True):
        print(f"{mutant.name}: {found}\n")
    killed = sum(bool(found.broken) for found in found_bugs)
    page.write(
        "proof",
        [
            f"Last run: {page.today()}, `{size}`: {count:,} states in"
            f" {took:.0f} s of {processes} processes, {count / took:,.0f} a second.",
            "",
            "| members | least in sync | prompt | messages | stops | lost ends | late answers"
            " | lapses | states | steps | depth | CPU s | states a second | all | broken |",
            "|" + "---|" * 15,
            *rows,
            "",
            f"Seeded bugs found: {killed} of {len(MUTANTS)}.",
            "",
            "| seeded bug | states | steps to it |",
            "|---|---|---|",
            *(
                f"| {mutant.name} | {found.states:,} | {len(found.trace)} |"
                for mutant, found in zip(MUTANTS, found_bugs, strict=True)
            ),
        ],
    )
    return 0 if killed == len(MUTANTS) and all(row.endswith("| no |") for row in rows) else 1


def _row(bound: Bound, found: Found) -> str:
    print(f"{bound}: {found}\n", flush=True)
    settings = [str(each) for each in bound._replace(prompt="yes" if bound.prompt else "no")]
    broken = found.broken or "no"
    return (
        f"| {' | '.join(settings)} | {found.states:,} | {found.steps:,} | {found.depth} |"
        f" {found.seconds:.0f} | {found.states / found.seconds:,.0f} |"
        f" {'yes' if found.is_all else 'no'} | {broken} |"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], *map(int, sys.argv[2:])))
