"""Runs parsers for a long time without time limits, for builds that check memory accesses.

`python -m parsers ROUNDS [SECONDS [ONLY]]`, with tests/ on the path: ROUNDS mutations of each
parser, but at most SECONDS of CPU (0: no limit), of those parsers whose code has a file that ends
in ONLY. It prints a row of a table for each, and fails if one holds more and more memory.
"""

from __future__ import annotations

import gc
import sys
import time
from typing import NamedTuple

from . import inputs, measure
from .parser import Parser
from .table import PARSERS, SEED_NUMBER

LENGTHS = (64, 1024, 16 * 1024)
WARM_UP = 2_000
"""Mutations before memory is counted: caches and tables are full then."""
LOOK_EACH = 500
GROWTH_MAX = 1 << 20
"""Bytes that may be allocated at the end and were not after the warm-up."""


class Run(NamedTuple):
    """What one parser took."""

    name: str
    mutated: int
    costly: int
    seconds: float
    growth: int

    @property
    def row(self) -> str:
        """A row of a table."""
        return (
            f"| {self.name} | {self.mutated:,} | {self.costly:,} | {self.seconds:.0f} |"
            f" {self.growth:,} |"
        )


def run(parser: Parser, rounds: int, seconds: float) -> Run:
    """Mutations until there are `rounds`, or for `seconds` of CPU; costly inputs before."""
    costly = 0
    for make in inputs.COSTLY.values():
        for length in LENGTHS:
            measure.run(parser.parse, make(length), parser.refuses)
            costly += 1
    began, count, held = time.process_time(), 0, allocated()
    for data in inputs.mutations(list(parser.seeds), SEED_NUMBER + rounds, rounds):
        measure.run(parser.parse, data, parser.refuses)
        count += 1
        if count == WARM_UP:
            held = allocated()
        if seconds and count % LOOK_EACH == 0 and time.process_time() - began > seconds:
            break
    spent = time.process_time() - began
    return Run(parser.name, count, costly, spent, allocated() - held)


def allocated() -> int:
    """Bytes that are in use now."""
    gc.collect()
    return measure.allocated()


def main(rounds: int, seconds: float = 0, only: str = "") -> int:
    chosen = [each for each in PARSERS if any(path.endswith(only) for path in each.modules)]
    print("| parser | mutations | costly inputs | CPU s | bytes more at the end |")
    print("|---|---|---|---|---|", flush=True)
    runs = []
    for parser in chosen:
        runs.append(run(parser, rounds, seconds))
        print(runs[-1].row, flush=True)
    total = sum(each.mutated for each in runs)
    print(f"\n{len(runs)} parsers: {total:,} mutated, {sum(each.costly for each in runs):,} costly")
    grown = [each.name for each in runs if each.growth > GROWTH_MAX]
    if grown:
        print(f"more than {GROWTH_MAX:,} bytes more at the end: {', '.join(grown)}")
    return 1 if grown else 0


if __name__ == "__main__":
    given = sys.argv[1:]
    sys.exit(main(int(given[0]), float(given[1]) if given[1:] else 0, "".join(given[2:3])))
