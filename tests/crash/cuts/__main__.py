"""Cuts the power of brokers many times, and writes what it found into tests/proof/results.md.

`python -m cuts CUTS`, with tests/, tests/crash/ and bench/ on the path. It ends with an error if an
acknowledged message is lost, a byte is wrong, or a control loses nothing.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from cuts import controls
from cuts.disks import CachingDisk, Disk, Disks
from cuts.one_broker import Cuts, cut_broker
from cuts.replicas import cut_group, cut_pair
from durable.servers import nats_server
from harness import servers
from proof import page

from congreve.io_backends.backends import BACKENDS

POLICIES = ("SYNC_FLUSH", "ASYNC_FLUSH")
DISKS = {"clone": Disk, "write cache": CachingDisk}
CAMPAIGNS = len(DISKS) * len(BACKENDS) * 4
CONTROL_CUTS = 5
NO_FLUSHES = ",barrier=0"
HEAD = ("what lost its power", "disk", "cuts", "acknowledged, looked for", "lost", "wrong")
MAY_KEEP_ALL = "RocketMQ 4.9.4, SYNC_FLUSH"

Row = tuple[str, str, int, int, int, int | str]


def row(what: str, disk: str, found: Cuts) -> Row:
    """A row of the table; prints what was wrong."""
    print(what, disk, found[:-1], *found.wrong, sep="\n  ", flush=True)
    return what, disk, found.cuts, found.acknowledged, found.lost, len(found.wrong)


def of_ours(folder: Path, kind: str, each: int) -> Iterator[tuple[str, Cuts]]:
    """One broker with each backend and policy; pairs and groups with each backend."""
    seeds = itertools.count(each)
    with Disks(folder, DISKS[kind]) as disks:
        for backend in BACKENDS:
            for policy in POLICIES:
                found = cut_broker(disks, backend, policy, each, next(seeds))
                yield f"one broker, {backend}, {policy}", found
            for name, cut in (("pair", cut_pair), ("group of three", cut_group)):
                place = folder / f"{name}-{backend}"
                found = asyncio.run(cut(disks, place, backend, each, next(seeds)))
                yield f"{name}, {backend}, SYNC_FLUSH", found


def of_controls(folder: Path) -> Iterator[Row]:
    """Servers that lose messages."""
    with Disks(folder, CachingDisk, NO_FLUSHES) as disks:
        found = controls.cut_each_once(disks, "mmap", CONTROL_CUTS)
        yield row("Congreve on ext4 without flushes, mmap", "write cache", found)
    with Disks(folder) as disks:
        environment = controls.without_syncs(folder)
        for backend in ("mmap", "pool"):
            found = controls.cut_each_once(disks, backend, CONTROL_CUTS, environment)
            yield row(f"Congreve without its syncs, {backend}", "clone", found)
        namesrv = servers.namesrv("congreve", folder / "namesrv")
        namesrv.start()
        try:
            for policy in reversed(POLICIES):
                lost = controls.cut_rocketmq(disks.add(), namesrv.address, policy, CONTROL_CUTS)
                yield f"RocketMQ 4.9.4, {policy}", "clone", *lost, ""
        finally:
            namesrv.kill()
        lost = controls.cut_jetstream(disks.add(), nats_server(), CONTROL_CUTS)
        yield "NATS JetStream, defaults", "clone", *lost, ""


def main(cuts: int) -> int:
    """Run everything; the exit code."""
    began = time.monotonic()
    each = -(-cuts // CAMPAIGNS)
    with tempfile.TemporaryDirectory() as name:
        rows = [
            row(what, kind, found)
            for kind in DISKS
            for what, found in of_ours(_made(Path(name) / kind), kind, each)
        ]
        others = list(of_controls(_made(Path(name) / "controls")))
    minutes = (time.monotonic() - began) / 60
    page.write(
        "cuts",
        [
            f"Last run: {page.today()}: {sum(row[2] for row in rows):,} cuts, and"
            f" {sum(row[2] for row in others)} of controls, in {minutes:.0f} minutes.",
            "",
            f"| {' | '.join(HEAD)} |",
            "|" + "---|" * len(HEAD),
            *(_line(row) for row in rows),
            "",
            f"| control | {' | '.join(HEAD[1:])} |",
            "|" + "---|" * len(HEAD),
            *(_line(row) for row in others),
        ],
    )
    lost = sum(row[4] for row in rows if "ASYNC_FLUSH" not in row[0])
    lose = all(row[4] for row in others if row[0] != MAY_KEEP_ALL)
    return 1 if lost or any(row[5] for row in rows) or not lose else 0


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _line(row: Row) -> str:
    name, disk, *counts = row
    texts = (f"{each:,}" if each != "" else "" for each in counts)
    return f"| {name} | {disk} | {' | '.join(texts)} |"


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
