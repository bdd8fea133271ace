"""Records histories of brokers under faults, has them checked, and writes tests/proof/results.md.

`python -m histories COUNT`, with tests/ and tests/crash/ on the path. They are of one broker, a
pair and elected groups by turns. It ends with an error if one is not linearizable; then its
file stays in build/histories/.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

from cuts.disks import Disks, NoDisksError
from histories import porcupine
from histories.campaigns import Group, OneBroker, Pair, disks_of
from proof import page

BUILD = Path(__file__).resolve().parents[3] / "build" / "histories"
OF_A_STORE = 10
"""The next ones get new stores."""
KINDS = ("an elected group", "one broker", "an elected group", "a SYNC_MASTER and its slave")


def recorded(folder: Path, disks: Disks | None, count: int, seed: int) -> list[Path]:
    """Some histories of the kind whose turn it is."""
    chance = random.Random(seed)
    kind = KINDS[seed % len(KINDS)]
    if kind == "one broker":
        return asyncio.run(OneBroker(folder, chance).histories(count, folder))
    if "slave" in kind:
        return asyncio.run(Pair(folder, chance).histories(count, folder))
    on = disks_of(disks)
    files = asyncio.run(Group(folder, on, chance).histories(count, folder))
    for disk in on.values():
        assert disks is not None
        disks.remove(disk)
    return files


def main(count: int) -> int:
    """Run everything; the exit code."""
    began = time.monotonic()
    shutil.rmtree(BUILD, ignore_errors=True)
    wrong: list[str] = []
    rows: dict[str, list[int]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        try:
            disks = Disks(folder)
        except NoDisksError as error:
            print(f"no power cuts: {error}")
            disks = None
        try:
            for seed, first in enumerate(range(0, count, OF_A_STORE)):
                place = folder / str(seed)
                place.mkdir()
                files = recorded(place, disks, min(OF_A_STORE, count - first), seed)
                faults = porcupine.faults(files)
                wrong += faults
                _keep(files, faults)
                row = rows.setdefault(KINDS[seed % len(KINDS)], [0, 0])
                row[0] += len(files)
                row[1] += sum(file.read_text().count("\n") for file in files)
                print(f"{first + len(files)} histories, wrong: {wrong}", flush=True)
        finally:
            if disks is not None:
                disks.close()
    minutes = (time.monotonic() - began) / 60
    page.write(
        "histories",
        [
            f"Last run: {page.today()}: {count} histories in {minutes:.0f} minutes,"
            f" {len(wrong)} of them not linearizable; {'with' if disks else 'without'} power cuts.",
            "",
            "| histories of | histories | operations |",
            "|---|---|---|",
            *(f"| {name} | {found[0]:,} | {found[1]:,} |" for name, found in rows.items()),
        ],
    )
    return 1 if wrong else 0


def _keep(files: list[Path], faults: list[str]) -> None:
    for file in files:
        if any(str(file) in fault for fault in faults):
            BUILD.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, BUILD / f"{file.parent.name}-{file.name}")


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
