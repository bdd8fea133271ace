"""``python -m lockhold``: how long the append lock is held a message, in a broker under load.

    PYTHONPATH=bench:tests python -m lockhold

A library that it preloads (mutex_times.c) takes the times. Of the mutexes that a thread tries to
take, the append lock is held most often.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from unittest.mock import patch

import click
import msgspec
from sidebyside.brokers import running

from congreve.console.loadgen import generator
from congreve.console.loadgen.generator import Load, LoadResult

SOURCE = Path(__file__).with_name("mutex_times.c")
LIBRARY = SOURCE.parent.parent.parent / "build" / "bench" / "mutex_times.so"
LOADS = (
    Load(connections=4, inflight=32),
    Load(connections=64, inflight=1),
    Load(connections=500, inflight=1),
    Load(connections=4, inflight=32, size=1024),
)


def built() -> Path:
    """The compiled library."""
    LIBRARY.parent.mkdir(parents=True, exist_ok=True)
    command = ["gcc", "-O2", "-shared", "-fPIC", "-o", str(LIBRARY), str(SOURCE), "-ldl"]
    subprocess.run(command, check=True)
    return LIBRARY


def measured(load: Load, folder: Path, own: dict[str, str]) -> tuple[LoadResult, str]:
    """The load's result, and the library's report, which it writes when the broker ends."""
    times = folder / "times"
    preload = {"LD_PRELOAD": str(built()), "MUTEX_TIMES": str(times)}
    with (
        patch.dict(os.environ, preload),
        running("congreve", folder / "broker", flush="ASYNC_FLUSH", own=own) as broker,
    ):
        broker.create_topics(load)
        result = generator.run(broker.port, load)
        broker.server.stop()
    return result, times.read_text()


@click.command()
@click.option("--set", "settings", multiple=True, help="A setting of the broker, as KEY=VALUE.")
@click.option("--seconds", default=4.0, show_default=True)
def main(settings: tuple[str, ...], seconds: float) -> None:
    """How long the append lock is held a message."""
    own = dict(setting.split("=", 1) for setting in settings)
    for load in LOADS:
        with tempfile.TemporaryDirectory() as folder:
            run = msgspec.structs.replace(load, duration=seconds)
            result, report = measured(run, Path(folder), own)
        lines = (map(float, line.split()) for line in report.splitlines())
        holds, held, longest = max(tuple(line) for line in lines)
        messages = result.all_messages
        click.echo(
            f"{load.connections:4} x {load.inflight:2}, {load.size:5} B  {result.rate:9,.0f} msg/s"
            f"  held {held / messages:6.0f} ns a message, {held / holds:6.0f} ns a hold,"
            f" {messages / holds:5.1f} messages a hold, longest {longest / 1000:,.0f} us"
        )


if __name__ == "__main__":
    main()
