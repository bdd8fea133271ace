"""A power cut of one machine: its processes and its disks end at the same instant."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterable
from pathlib import Path

from cuts.disks import Disk
from harness.servers import Server

STOP_S = 60.0


def cut(servers: Iterable[Server], disks: Iterable[Disk]) -> None:
    """Kill the servers; their disks become what they were when none of them could answer any more.

    All processes are stopped before the first disk is cloned, so it is one instant for all.
    """
    running = [server for server in servers if server.process is not None]
    for server in running:
        assert server.process is not None
        server.process.send_signal(signal.SIGSTOP)
    for server in running:
        assert server.process is not None
        _await_stop(Path(f"/proc/{server.process.pid}/task"))
    clones = [(disk, disk.clone()) for disk in disks]
    for server in running:
        server.kill()
    for disk, image in clones:
        disk.become(image)


def _await_stop(tasks: Path) -> None:
    """Return when no thread runs code of the program: each has stopped, or is in a system call
    that waits, and stops before it returns from it."""
    deadline = time.monotonic() + STOP_S
    left = list(tasks.iterdir())
    while left := [task for task in left if _runs(task)]:
        assert time.monotonic() < deadline, f"{tasks} does not stop"


def _runs(task: Path) -> bool:
    try:
        stat = (task / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] == "R"
