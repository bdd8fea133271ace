"""``python -m sidebyside``: runs the cases, prints the table, writes JSON and a plot."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click
import msgspec
from harness import build
from rich.console import Console

from congreve.console.loadgen import generator

from . import cases, process, report
from .brokers import KINDS
from .options import DATA, OWN, ROOT
from .results import CaseResult
from .sessions import SESSIONS, play

CEILING = cases.ASYNC_SENDS["send-128B"]


def ceiling(size: cases.Size) -> dict[str, float]:
    """Measure the generator against a server that only answers: it must not be the limit."""
    load = msgspec.structs.replace(CEILING, warmup=size.warmup, duration=size.duration)
    with generator.sink() as (port, pid):
        before = process.cpu_seconds(pid)
        found = generator.run(port, load)
        spent = process.cpu_seconds(pid) - before
    return {
        "publishRate": found.rate,
        "generatorCpuUs": found.cpu_seconds * 1e6 / found.messages,
        "sinkCpuUs": spent * 1e6 / found.all_messages,
    }


@click.command()
@click.option("--size", type=click.Choice(list(cases.SIZES)), default="full", show_default=True)
@click.option("--rounds", type=click.IntRange(1), help="Turns of each broker; the size's default.")
@click.option("--only", type=click.Choice(KINDS), help="One broker, without a comparison.")
@click.option("--session", "sessions", type=click.Choice(list(SESSIONS)), multiple=True)
@OWN
@DATA
@click.option(
    "--results",
    type=click.Path(path_type=Path),
    default=ROOT / "bench" / "results",
    help="Where sidebyside.json and sidebyside.png go.",
)
def main(
    size: str,
    rounds: int | None,
    only: str | None,
    sessions: tuple[str, ...],
    own: tuple[str, ...],
    data: Path,
    results: Path,
) -> None:
    """Congreve and Apache RocketMQ 4.9.4 under the same load, in turns."""
    console = Console(soft_wrap=True, width=None if sys.stdout.isatty() else 120)
    chosen = cases.SIZES[size]
    settings = dict(pair.split("=", 1) for pair in own)
    kinds = [only] if only else list(KINDS)
    if "java" in kinds and (missing := build.missing_tools("java", "mvn")):
        console.print(f"No comparison: not installed: {', '.join(missing)}")
        kinds.remove("java")
    limit = ceiling(chosen)
    console.print(f"generator alone: {limit['publishRate']:,.0f} msg/s")
    found: list[CaseResult] = []
    for session in sessions or SESSIONS:
        for number in range(1, (rounds or chosen.rounds) + 1):
            for kind in kinds:
                found += play(session, kind, chosen, number, data, console.print, settings)
    medians = report.Medians(found)
    console.print(report.table(medians))
    document: dict[str, object] = {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "commit": process.commit(),
        "machine": process.machine(),
        "settings": {"name": size, **msgspec.to_builtins(chosen)},
        "congreveSettings": settings,
        "generatorAlone": limit,
        "summary": report.summary(medians),
        "results": msgspec.to_builtins(found),
    }
    report.write_json(results / "sidebyside.json", document)
    report.write_plot(results / "sidebyside.png", medians)
    if sum(result.errors for result in found):
        console.print("[red]some requests failed")
        sys.exit(1)


if __name__ == "__main__":
    main()
