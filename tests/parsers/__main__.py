"""Runs all parsers for a long time without time limits, for builds that check memory accesses.

`python -m parsers ROUNDS`, with tests/ on the path; prints how many inputs each kind took.
"""

from __future__ import annotations

import sys
from collections import Counter

from . import inputs, measure
from .table import PARSERS, SEED_NUMBER

LENGTHS = (64, 1024, 16 * 1024)


def main(rounds: int) -> None:
    counts: Counter[str] = Counter()
    for parser in PARSERS:
        for data in inputs.mutations(list(parser.seeds), SEED_NUMBER + rounds, rounds):
            measure.run(parser.parse, data, parser.refuses)
            counts["mutated"] += 1
        for make in inputs.COSTLY.values():
            for length in LENGTHS:
                measure.run(parser.parse, make(length), parser.refuses)
                counts["costly"] += 1
    print(f"{len(PARSERS)} parsers: " + ", ".join(f"{n:,} {kind}" for kind, n in counts.items()))


if __name__ == "__main__":
    main(int(sys.argv[1]))
