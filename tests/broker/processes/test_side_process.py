"""A process beside a broker: kept running, ended with the broker."""

from __future__ import annotations

import os
import signal
import sys

from harness.eventually import eventually

from congreve.broker.processes.side_process import SideProcess

NICENESS = 5
WAIT = (sys.executable, "-c", "import sys; sys.stdin.read()")


def process_of(*command: str) -> SideProcess:
    return SideProcess("a test", command, niceness=NICENESS, stop_s=30, first_pause_s=0.01)


async def test_a_killed_process_is_started_again() -> None:
    process = process_of(*WAIT)
    process.start()
    await eventually(lambda: process.pid is not None)
    first = process.pid
    assert first is not None
    assert os.getpriority(os.PRIO_PROCESS, first) == max(NICENESS, os.nice(0))
    os.kill(first, signal.SIGKILL)
    await eventually(lambda: process.pid not in (None, first))
    process.stop()
    assert process.pid is None and process.starts == 2


async def test_a_process_that_always_fails_is_tried_again() -> None:
    process = process_of(sys.executable, "-c", "raise SystemExit(1)")
    process.start()
    await eventually(lambda: process.starts >= 3)
    process.stop()
    assert process.pid is None


async def test_a_program_that_is_missing_does_not_end_the_thread() -> None:
    process = process_of("/no/such/program")
    process.start()
    process.stop()
    assert process.pid is None and process.starts == 0


def test_a_stop_before_the_start_and_a_second_stop_have_no_effect() -> None:
    process = process_of(*WAIT)
    process.stop()
    process.start()
    process.stop()
    assert process.starts == 0
