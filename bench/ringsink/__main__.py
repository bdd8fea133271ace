"""``python -m ringsink``: what io_uring would save a lane: servers that only answer, in turns.

PYTHONPATH=bench python -m ringsink
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import click

from congreve.console.loadgen import generator
from congreve.console.loadgen.generator import Load

SOURCE = Path(__file__).resolve().parent / "ringsink.c"
PROGRAM = Path(__file__).resolve().parents[2] / "build" / "bench" / "ringsink"
CONNECTIONS = (8, 64, 500, 2_000)
TICKS_S = 100  # of /proc/PID/stat


@contextmanager
def serving(command: list[str]) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A server, and the port that it prints."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield server, int(server.stdout.readline())
        finally:
            server.kill()


def cpu_s(server: subprocess.Popen[str]) -> float:
    """Seconds of CPU that the server has used."""
    fields = Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_S


@click.command()
@click.option("--rounds", default=7, show_default=True, type=click.IntRange(min=1))
def main(rounds: int) -> None:
    """Compare io_uring with epoll at one request in flight a connection."""
    PROGRAM.parent.mkdir(parents=True, exist_ok=True)
    command = ["cc", "-O2", "-std=gnu11", "-Wall", "-Wextra", "-o", str(PROGRAM)]
    subprocess.run([*command, str(SOURCE), "-luring"], check=True)
    ways = {
        "epoll": [*generator.COMMAND, "--mode=sink", "--port=0"],
        "io_uring": [str(PROGRAM)],
    }
    for connections in CONNECTIONS:
        load = Load(connections=connections, inflight=1, warmup=0.3, duration=2.0)
        rates: dict[str, list[float]] = {way: [] for way in ways}
        costs: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(rounds):
            for way, server_command in ways.items():
                with serving(server_command) as (server, port):
                    result = generator.run(port, load)
                    rates[way].append(result.rate)
                    costs[way].append(cpu_s(server) / result.all_messages * 1e6)
        click.echo(
            f"{connections:5} x 1  "
            + "  ".join(f"{w} {median(rates[w]):8,.0f}/s {median(costs[w]):.2f} us" for w in ways)
            + f"  io_uring to epoll: rate {median(rates['io_uring']) / median(rates['epoll']):.2f},"
            f" CPU {median(costs['io_uring']) / median(costs['epoll']):.2f}"
        )


if __name__ == "__main__":
    main()
