"""``python -m resends``: how fast dead letters are sent again, and the CPU that a letter takes.

    PYTHONPATH=bench:tests python -m resends

The broker and its name server are processes of their own. Each round stores new letters, sends
them to their topic, and others to their group; only the resends are measured.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from statistics import median

import click
import uvloop
from harness import servers
from harness.dead_letters import GROUP, make_letters

from congreve.client import AdminClient

TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """The CPU time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


async def measured(
    broker: servers.BrokerServer, letters: int, size: int, to_group: bool
) -> tuple[float, float, float]:
    """Letters a second, and CPU in us a letter of this process and of the broker."""
    assert broker.process is not None
    async with AdminClient(broker.namesrv, timeout_s=30.0) as admin:
        await make_letters(admin, letters, size=size, cluster=servers.CLUSTER)
        begin, own, its = time.perf_counter(), time.process_time(), cpu_seconds(broker.process.pid)
        report = await admin.dead_letters.resend(GROUP, to_group=to_group)
        took, own = time.perf_counter() - begin, time.process_time() - own
        its = cpu_seconds(broker.process.pid) - its
        if report.sent != letters:
            raise click.ClickException(f"{letters} letters, and {report}")
    return letters / took, own / letters * 1e6, its / letters * 1e6


@click.command()
@click.option("--kind", type=click.Choice(["congreve", "java"]), default="congreve")
@click.option("--letters", default=100_000, show_default=True)
@click.option("--size", default=100, show_default=True, help="Bytes of a body.")
@click.option("--rounds", default=3, show_default=True)
def main(kind: str, letters: int, size: int, rounds: int) -> None:
    """Rounds in turns, and the medians."""
    found: dict[bool, list[tuple[float, float, float]]] = {False: [], True: []}
    with tempfile.TemporaryDirectory() as folder:
        namesrv = servers.namesrv(kind, Path(folder) / "namesrv")
        namesrv.start()
        broker = servers.broker(kind, Path(folder), namesrv.address, watchdog_millis=0)
        try:
            broker.start()
            for _ in range(rounds):
                for to_group, results in found.items():
                    work = measured(broker, letters, size, to_group)
                    results.append(uvloop.run(work))
        finally:
            broker.kill()
            namesrv.kill()
    for to_group, results in found.items():
        rates, own, its = zip(*results, strict=True)
        click.echo(
            f"to the {'group' if to_group else 'topic'}: {median(rates):9,.0f} letters/s "
            f"({min(rates):,.0f} to {max(rates):,.0f}), CPU {median(own):5.2f} us a letter, "
            f"of the broker {median(its):5.2f} us"
        )


if __name__ == "__main__":
    main()
