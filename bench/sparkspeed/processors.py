"""CPU time of all processes of a case: the JVM, Python's workers, the broker."""

from __future__ import annotations

import os
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


def seconds_of_children() -> float:
    """User and system time of this process's descendants, including those that have ended."""
    times: dict[int, tuple[int, float]] = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal():
            continue
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # the process has ended meanwhile
        times[int(folder.name)] = int(fields[1]), sum(map(int, fields[11:15])) / TICKS
    ours = {os.getpid()}
    while found := {pid for pid, (parent, _) in times.items() if parent in ours} - ours:
        ours |= found
    return sum(times[pid][1] for pid in ours - {os.getpid()} if pid in times)
