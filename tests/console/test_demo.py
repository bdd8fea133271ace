"""`congreve demo` with few records, and its end while Spark is reading."""

import asyncio
import os
import sys
from contextlib import suppress
from pathlib import Path

import pytest

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
