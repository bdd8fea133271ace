"""``python -m family``: the four brokers in turns; table, JSON and pictures."""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median

import click
import msgspec
from rich.console import Console
from sidebyside import cases, process
from sidebyside.options import DATA, ROOT
from sidebyside.report import write_json
from sidebyside.results import CaseResult
from sidebyside.session import Session

from congreve.console.loadgen.generator import Load

from . import brokers, kills, openloop
from .openloop import OpenResult

ASYNC_SENDS = {
    "send-4x32": Load(),
    "send-500x1": Load(connections=500, inflight=1),
    "send-one-at-a-time": Load(connections=1, inflight=1),
    "batch-32x1KiB": Load(size=1024, batch=32, inflight=8),
}
SYNC_SENDS = {
    "sync-4x32": Load(),
    "sync-500x1": Load(connections=500, inflight=1),
    "sync-one-at-a-time": Load(connections=1, inflight=1),
}
HIGHEST = "send-4x32"
KILLS = 5


def measured(kind: str, size: cases.Size, number: int, data: Path, tell) -> list[CaseResult]:
    """One round of a broker: ASYNC_FLUSH, SYNC_FLUSH, a restart, and kills under load."""
    found = []
    with brokers.running(kind, data / kind, "ASYNC_FLUSH") as broker:
        session = Session(broker, size, number, tell)
        session.heat()
        for name, load in ASYNC_SENDS.items():
            session.send(name, load)
        for name, load in cases.PULLS.items():
            session.pull(name, load)
        session.memory("memory")
        found += session.results
    with brokers.running(kind, data / kind, "SYNC_FLUSH") as broker:
        session = Session(broker, size, number, tell)
        session.heat()
        for name, load in SYNC_SENDS.items():
            session.send(name, load)
        sent, lost = kills.lost_in_kills(broker, KILLS)
        tell(f"round {number} {kind:8} lost {lost} of {sent} acknowledged in {KILLS} kills")
        found += session.results
        found.append(
            CaseResult(workload="kills", driver=kind, round=number, messages=sent, errors=lost)
        )
    with brokers.running(kind, data / kind, "ASYNC_FLUSH") as broker:
        session = Session(broker, size, number, tell)
        session.fill("store", size.restart_bytes // 1250, 1024)
        session.restart("ready-after-kill")
        found += session.results
    return found


def table(results: list[CaseResult], kinds: list[str]) -> list[dict[str, object]]:
    """A row for each figure: medians of the rounds, by broker."""
    of: dict[tuple[str, str], list[CaseResult]] = {}
    for result in results:
        of.setdefault((result.workload, result.driver), []).append(result)
    rows = []

    def add(title: str, workload: str, figure, form: str) -> None:
        cells = {
            brokers.TITLES[kind]: format(median(map(figure, of[workload, kind])), form)
            for kind in kinds
            if (workload, kind) in of
        }
        if cells:
            rows.append({"work": title, **cells})

    for name in (*ASYNC_SENDS, *SYNC_SENDS, *cases.PULLS):
        add(f"{name}, messages/s", name, lambda r: r.rate, ",.0f")
        for level, title in (("50", "p50"), ("99", "p99"), ("999", "p99.9")):
            add(f"  {title} ms", name, lambda r, level=level: r.latency[level], ".3f")
        add("  CPU us a message", name, lambda r: r.broker_cpu_us, ".2f")
    add("resident MiB", "memory", lambda r: r.memory.anonymous, ",.0f")
    add("ready after kill -9, s", "ready-after-kill", lambda r: r.seconds, ".2f")
    add("acknowledged messages in kills", "kills", lambda r: r.messages, ",.0f")
    add("  of them lost", "kills", lambda r: r.errors, ",.0f")
    return rows


def open_table(results: list[OpenResult]) -> list[dict[str, object]]:
    """A row for each rival and share: p99 and p99.9 of both, medians of the rounds."""
    rows = []
    for rival in dict.fromkeys(result.rival for result in results):
        for share in openloop.SHARES:
            row: dict[str, object] = {"open loop": f"{share} % of {brokers.TITLES[rival]}"}
            for kind in ("congreve", rival):
                of = [r for r in results if (r.rival, r.share, r.broker) == (rival, share, kind)]
                row["sends/s"] = f"{of[0].rate:,.0f}"
                who = "Congreve" if kind == "congreve" else "other"
                for level in ("p50", "p99", "p999", "longest"):
                    row[f"{who} {level}"] = f"{median(getattr(r, level) for r in of):.3f}"
            rows.append(row)
    return rows


def markdown(rows: list[dict[str, object]]) -> str:
    """The rows as a table for a page."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    lines = [f"| {' | '.join(names)} |", "|" + "---|" * len(names)]
    lines += [f"| {' | '.join(str(row.get(name, '')) for name in names)} |" for row in rows]
    return "\n".join(lines)


@click.command()
@click.option("--size", type=click.Choice(list(cases.SIZES)), default="full", show_default=True)
@click.option("--rounds", type=click.IntRange(1), help="Turns of each broker; the size's default.")
@click.option("--only", type=click.Choice(brokers.KINDS), multiple=True, help="These brokers.")
@click.option("--without-open-loop", is_flag=True)
@DATA
@click.option("--results", type=click.Path(path_type=Path), default=ROOT / "bench" / "results")
def main(
    size: str,
    rounds: int | None,
    only: tuple[str, ...],
    without_open_loop: bool,
    data: Path,
    results: Path,
) -> None:
    """Congreve, rocketmq-rust, RocketMQ 5.5 and 4.9.4 under the same loads, in turns."""
    console = Console(soft_wrap=True)
    chosen = cases.SIZES[size]
    kinds = [kind for kind in only or brokers.KINDS if kind not in brokers.missing()]
    for kind, tool in brokers.missing().items():
        console.print(f"{brokers.TITLES[kind]} is left out: {tool} is not installed")
    turns = range(1, (rounds or chosen.rounds) + 1)
    found: list[CaseResult] = []
    for number in turns:
        for kind in kinds:
            found += measured(kind, chosen, number, data, console.print)
    opened: list[OpenResult] = []
    rivals = [] if without_open_loop or "congreve" not in kinds else kinds[1:]
    for number in turns:
        for rival in rivals:
            rates = [r.rate for r in found if (r.driver, r.workload) == (rival, HIGHEST)]
            opened += openloop.pair(rival, median(rates), chosen, number, data, console.print)
    rows, open_rows = table(found, kinds), open_table(opened)
    console.print(markdown(rows), markdown(open_rows), sep="\n\n")
    document: dict[str, object] = {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "commit": process.commit(),
        "machine": process.machine(),
        "settings": {"name": size, **msgspec.to_builtins(chosen)},
        "table": rows,
        "openLoopTable": open_rows,
        "results": msgspec.to_builtins(found),
        "openLoop": msgspec.to_builtins(opened),
    }
    write_json(results / "family.json", document)
    if opened:
        openloop.draw(opened, results / "family-open-loop.png")


if __name__ == "__main__":
    main()
