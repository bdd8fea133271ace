"""``python -m family``: the four brokers in turns; table, JSON, histograms and pictures."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from statistics import median

import click
import msgspec
from rich.console import Console
from sidebyside import cases, process
from sidebyside.options import DATA, ROOT
from sidebyside.report import Medians, write_json
from sidebyside.results import CaseResult
from sidebyside.session import Session, Tell, WrongCountError

from congreve.console.loadgen.generator import GeneratorError, Load

from . import brokers, java_client, kills, openloop, picture
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
TITLES = {
    "send-4x32": "sends, 4 x 32",
    "send-500x1": "500 x 1",
    "send-one-at-a-time": "one at a time",
    "batch-32x1KiB": "batches of 32 x 1 KiB, 4 x 8",
    "sync-4x32": "SYNC_FLUSH, 4 x 32",
    "sync-500x1": "500 x 1",
    "sync-one-at-a-time": "one at a time",
    "pull-32x1KiB": "pulls of 32 x 1 KiB, 8 x 1",
    "pull-32x128B": "pulls of 32 x 128 B",
}
HIGHEST = "send-4x32"
KILLS = 10
ROUNDS = 2
RESTART_BYTES = 5_000_000_000


class Turn:
    """A round of one broker. It reports a step that fails; the others follow."""

    def __init__(self, kind: str, size: cases.Size, number: int, data: Path, tell: Tell) -> None:
        self._kind = kind
        self._size = size
        self._number = number
        self._data = data / kind
        self._tell = tell
        self.results: list[CaseResult] = []

    def run(self) -> None:
        """Sends with both kinds of flush, pulls, memory. The first round also has the Java client's
        programs, kills under load, and a restart with a full store."""
        self._try(self._async_flush)
        self._try(self._sync_flush)

    def _async_flush(self) -> None:
        with self._session("ASYNC_FLUSH") as session:
            for name, load in ASYNC_SENDS.items():
                self._try(lambda name=name, load=load: session.send(name, load))
            for name, load in cases.PULLS.items():
                self._try(lambda name=name, load=load: session.pull(name, load))
            self._try(lambda: session.memory("memory"))
            if self._number == 1:
                self._try(lambda: self._java_client(session))
                self._try(lambda: self._restart(session))

    def _sync_flush(self) -> None:
        with self._session("SYNC_FLUSH") as session:
            for name, load in SYNC_SENDS.items():
                self._try(lambda name=name, load=load: session.send(name, load))
            if self._number == 1:
                self._try(lambda: self._kills(session))

    @contextmanager
    def _session(self, flush: str) -> Iterator[Session]:
        with brokers.running(self._kind, self._data, flush) as broker:
            session = Session(broker, self._size, self._number, self._tell)
            self._try(session.heat)
            yield session
            self.results += session.results

    def _try(self, step: Callable[[], object]) -> None:
        try:
            step()
        except (WrongCountError, GeneratorError, RuntimeError, OSError) as error:
            self._tell(f"round {self._number} {self._kind:8} has no figure: {error}"[:1000])

    def _java_client(self, session: Session) -> None:
        found = java_client.measured(session.broker, self._number)
        self.results += found
        for one in found:
            self._tell(f"round {self._number} {self._kind:8} {one.workload} {one.rate:,.0f} msg/s")

    def _restart(self, session: Session) -> None:
        session.fill("store", self._size.restart_bytes // 1250, 1024)
        session.restart("ready-after-kill")

    def _kills(self, session: Session) -> None:
        sent, lost = kills.lost_in_kills(session.broker, KILLS)
        self._tell(f"round {self._number} {self._kind:8} lost {lost} of {sent} in {KILLS} kills")
        of = {"workload": "kills", "driver": self._kind, "round": self._number}
        self.results.append(CaseResult(**of, messages=sent, errors=lost))


def table(results: list[CaseResult], kinds: list[str]) -> list[dict[str, object]]:
    """A row for each load: medians of the rounds, by broker."""
    medians = Medians(results)
    rows = []

    def add(title: str, workload: str, *parts: tuple[Callable[[CaseResult], float], str]) -> None:
        cells = {}
        for kind in kinds:
            found = [(form, medians.get(kind, workload, figure)) for figure, form in parts]
            shown = [form.format(value) for form, value in found if value is not None]
            if shown:
                cells[brokers.TITLES[kind]] = ", ".join(shown)
        if cells:
            rows.append({"work": title, **cells})

    rate = (lambda r: r.rate / 1000, "{:,.1f} k/s")
    cpu = (lambda r: r.broker_cpu_us, "{:.3g} us")
    times = [(lambda r, at=at: r.latency[at], "{:.3g}") for at in ("50", "99")]
    last = (lambda r: r.latency["999"], "{:.3g} ms")
    for name, title in TITLES.items():
        add(title, name, rate, *times, last, cpu)
    mean = (lambda r: r.latency["mean"], "mean {:.3g} ms")
    add("Java client's Producer", java_client.SEND, rate, mean, cpu)
    add("its Consumer beside it", java_client.CONSUME, rate)
    add("memory", "memory", (lambda r: r.memory.anonymous, "{:,.0f} MiB"))
    add("ready after kill -9", "ready-after-kill", (lambda r: r.seconds, "{:.3g} s"))
    counts = [(lambda r: r.errors, "{:,.0f} lost"), (lambda r: r.messages, "of {:,.0f}")]
    add(f"{KILLS} x kill -9 under load", "kills", *counts)
    return rows


def open_table(results: list[OpenResult]) -> list[dict[str, object]]:
    """A row for each rival and share: latencies of both in ms, medians of the rounds."""
    rows = []
    for rival in dict.fromkeys(result.rival for result in results):
        for share in openloop.SHARES:
            row: dict[str, object] = {"open loop": f"{share} % of {brokers.TITLES[rival]}"}
            for kind in ("congreve", rival):
                of = [r for r in results if (r.rival, r.share, r.broker) == (rival, share, kind)]
                row["sends/s"] = f"{of[0].rate:,.0f}"
                who = "Congreve" if kind == "congreve" else "other"
                for level in ("p50", "p99", "p999", "p9999", "longest"):
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
    if size != "small":
        chosen = msgspec.structs.replace(chosen, rounds=ROUNDS, restart_bytes=RESTART_BYTES)
    kinds = [kind for kind in only or brokers.KINDS if kind not in brokers.missing()]
    for kind, tool in brokers.missing().items():
        console.print(f"{brokers.TITLES[kind]} is left out: {tool} is not installed")
    turns = range(1, (rounds or chosen.rounds) + 1)
    found: list[CaseResult] = []
    opened: list[OpenResult] = []
    rivals = [] if without_open_loop or "congreve" not in kinds else kinds[1:]
    with process.full_page_cache(data) if chosen.fill_page_cache else nullcontext():
        for number in turns:
            for kind in kinds:
                turn = Turn(kind, chosen, number, data, console.print)
                turn.run()
                found += turn.results
        for number in turns:
            for rival in rivals:
                highest = Medians(found).get(rival, HIGHEST, lambda r: r.rate)
                if highest is not None:
                    opened += openloop.pair(
                        rival, highest, chosen, number, data, results / "histograms", console.print
                    )
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
    picture.write(found, results / "family.png")
    if opened:
        openloop.draw(opened, results / "family-open-loop.png")


if __name__ == "__main__":
    main()
