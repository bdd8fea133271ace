"""Cuts the power of brokers many times, and writes what it found into docs/proof.md.

`python -m cuts CUTS`, with tests/, tests/crash/ and bench/ on the path. It ends with an error if an
acknowledged message is lost, a byte is wrong, or a control loses nothing.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from cuts import controls
from cuts.disks import Disks
from cuts.one_broker import Cuts, cut_broker
from cuts.replicas import cut_group, cut_pair
from durable.servers import nats_server
from harness import servers
from proof import page

from congreve.io_backends.backends import BACKENDS

POLICIES = ("SYNC_FLUSH", "ASYNC_FLUSH")
CONTROL_CUTS = 5
HEAD = ("what lost its power", "cuts", "acknowledged messages", "lost", "wrong")

Row = tuple[str, int, int, int, int | str]


def of_brokers(disks: Disks, folder: Path, cuts: int) -> Iterator[tuple[str, Cuts]]:
    """One broker with each backend and policy; pairs and groups with each backend."""
    each = -(-cuts // (len(BACKENDS) * 4))
    for backend in BACKENDS:
        for policy in POLICIES:
            yield (
                f"one broker, {backend}, {policy}",
                cut_broker(disks, backend, policy, each, cuts),
            )
        for name, cut in (("pair", cut_pair), ("group of three", cut_group)):
            place = folder / f"{name}-{backend}"
            found = asyncio.run(cut(disks, place, backend, each, cuts))
            yield f"{name}, {backend}, SYNC_FLUSH, one member or all", found


def of_controls(disks: Disks, folder: Path) -> Iterator[Row]:
    """Servers that lose messages."""
    environment = controls.without_syncs(folder)
    for backend in ("mmap", "pool"):
        found = cut_broker(disks, backend, "SYNC_FLUSH", CONTROL_CUTS, 0, environment)
        name = f"Congreve without its syncs, {backend}"
        yield (name, found.cuts, found.acknowledged, found.lost, len(found.wrong))
    namesrv = servers.namesrv("congreve", folder / "namesrv")
    namesrv.start()
    try:
        for policy in reversed(POLICIES):
            disk = disks.add()
            lost = controls.cut_rocketmq(disk, namesrv.address, policy, CONTROL_CUTS)
            yield (f"RocketMQ 4.9.4, {policy}", *lost, "")
    finally:
        namesrv.kill()
    lost = controls.cut_jetstream(disks.add(), nats_server(), CONTROL_CUTS)
    yield ("NATS JetStream, defaults", *lost, "")


def main(cuts: int) -> int:
    """Run everything; the exit code."""
    began = time.monotonic()
    rows: list[Row] = []
    wrong: list[str] = []
    with tempfile.TemporaryDirectory() as name, Disks(Path(name)) as disks:
        for what, found in of_brokers(disks, Path(name), cuts):
            print(what, *found.wrong, sep="\n  ", flush=True)
            rows.append((what, *found[:-1], len(found.wrong)))
            wrong += found.wrong
        others = []
        for row in of_controls(disks, Path(name)):
            print(*row, sep="\n  ", flush=True)
            others.append(row)
    minutes = (time.monotonic() - began) / 60
    page.write(
        "cuts",
        [
            f"Last run: {page.today()}: {sum(row[1] for row in rows):,} cuts, and"
            f" {sum(row[1] for row in others)} of controls, in {minutes:.0f} minutes.",
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
    lost = sum(row[3] for row in rows if "ASYNC_FLUSH" not in row[0])
    lose = all(row[3] for row in others if row[0] != "RocketMQ 4.9.4, SYNC_FLUSH")
    return 1 if lost or wrong or not lose else 0


def _line(row: Row) -> str:
    name, *counts = row
    return f"| {name} | {' | '.join(f'{each:,}' if each != '' else '' for each in counts)} |"


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
