"""`congreve demo` with few records, and its end while Spark is reading."""

import asyncio
import os
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from congreve.base.errors import CongreveError
from congreve.console import demo
from tests.console.conftest import congreve


@pytest.mark.parametrize("count", ["0", "-5"])
def test_a_demo_sends_one_record_at_least(count: str) -> None:
    run = congreve("demo", "--flights", count)
    assert run.returncode == 2
    assert f"{count} is not in the range x>=1" in run.stderr


def test_an_interrupted_demo_ends_spark_which_gets_no_signal_of_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = tmp_path / "started"
    program = tmp_path / "python"
    lines = ["#!/bin/sh", f"echo $$ > {started}.new", f"mv {started}.new {started}", "sleep 60"]
    program.write_text("\n".join(lines))
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))

    async def interrupt() -> int:
        address = demo.Address("127.0.0.1:9", tmp_path)
        reading = asyncio.create_task(demo._analyse_with_spark(address, 1, tmp_path / "plot"))
        while not started.exists():
            await asyncio.sleep(0.01)
        process = int(started.read_text())
        assert os.getpgid(process) != os.getpgrp()
        reading.cancel()
        with suppress(asyncio.CancelledError):
            await reading
        return process

    process = asyncio.run(interrupt())
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


def demo_without_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *options: str) -> str:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "no-jdk"))
    command = ("demo", "--flights", "20", "--port", "0", "--namesrv-port", "0", "--once")
    run = congreve(*command, "--data", str(tmp_path / "data"), *options)
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_without_java_one_line_says_so_after_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marker = tmp_path / "installed"
    found = demo_without_java(tmp_path, monkeypatch, "--before-spark", f"touch {marker}")
    lines = found.splitlines()
    assert lines[0].startswith("ready: broker")
    assert lines[-1] == demo.JAVA_IS_MISSING
    assert not marker.exists()


def test_the_demo_without_spark_says_nothing_of_java(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = demo_without_java(tmp_path, monkeypatch, "--no-spark")
    assert demo.JAVA_IS_MISSING not in found


def test_what_installs_spark_runs_beside_the_demo_and_must_succeed(tmp_path: Path) -> None:
    async def run() -> tuple[bool, str]:
        async with demo._beside("sleep 0.2; exit 3") as prepared:
            assert prepared is not None
            running = not prepared.done()
            with pytest.raises(CongreveError) as failed:
                await prepared
        return running, str(failed.value)

    running, error = asyncio.run(run())
    assert running
    assert "'sleep 0.2; exit 3'" in error


def test_a_demo_that_ends_early_ends_the_installation(tmp_path: Path) -> None:
    marker = tmp_path / "pid"

    async def run() -> int:
        async with demo._beside(f"echo $$ > {marker}.new; mv {marker}.new {marker}; sleep 60"):
            while not marker.exists():
                await asyncio.sleep(0.01)
            return int(marker.read_text())

    with pytest.raises(ProcessLookupError):
        os.kill(asyncio.run(run()), 0)
