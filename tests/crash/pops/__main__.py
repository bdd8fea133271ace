"""Kills brokers and members in the middle of pops, and writes tests/proof/results.md.

`python -m pops COUNT`, with tests/ and tests/crash/ on the path: so many kills of brokers, of one
broker, a pair and an elected group with each backend by turns, some stores at once: they wait most
of the time. It ends with an error if a message came again after its acknowledgement, was lost, or
came too early.
"""

from __future__ import annotations

import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed

from pops.stores import BACKENDS, KINDS, Row, killed, stores
from proof import page

AT_ONCE = 3
"""Stores."""


def main(count: int) -> int:
    """Run everything; the exit code."""
    began = time.monotonic()
    rows = {(kind, backend): Row() for kind in KINDS for backend in BACKENDS}
    with ProcessPoolExecutor(AT_ONCE, max_tasks_per_child=1) as pool:
        work = {pool.submit(killed, *of): of[:2] for of in stores(count)}
        for ended in as_completed(work):
            rows[work[ended]].add(ended.result())
            done = sum(row.counts[0] for row in rows.values())
            faults = [fault for row in rows.values() for fault in row.faults]
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
                if row.counts[0]
            ),
        ],
    )


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
