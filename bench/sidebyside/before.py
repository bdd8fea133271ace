"""``python -m sidebyside.before FOLDER``: this checkout beside an earlier one, in turns.

FOLDER is another checkout of Congreve, built there (`make build`) with its own environment. Both
brokers run during a case, and the load generator uses one, then the other. Other work on the
machine disturbs both turns of a pair alike; the table has the medians of the pairs' ratios.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from statistics import median
from typing import NamedTuple

import click
import msgspec
from harness.drivers import java_driver
from rich.console import Console
from rich.table import Table

from congreve.console.loadgen import generator
from congreve.console.loadgen.generator import Load

from . import cases, process
from .brokers import NEVER_DUE, Running, running
from .options import DATA, OWN, ROOT
from .report import write_json
from .session import await_count

NOW, BEFORE = "now", "before"
SETTLE_S = 1.0  # after a start, before its CPU seconds are read
PUSH_PAUSE_MS = 2
WARMUP_S = 0.2


class Turn(msgspec.Struct, frozen=True, rename="camel"):
    """What one broker did in one turn: messages a second, and its CPU for each, in microseconds.

    The rate of a push is 1 second by the median time from a send to the listener.
    """

    rate: float
    cpu_us: float


class Amounts(NamedTuple):
    """How much each turn does."""

    seconds: float
    messages: int  # delayed, or in the topic that is pulled
    fill_page_cache: bool = True


def send(broker: Running, load: Load, amounts: Amounts, number: int) -> Turn:
    """Sends to one topic for some time."""
    load = msgspec.structs.replace(load, topic="sends")
    if number == 0:
        broker.create_topics(load)
    return _run(broker, load, amounts)


def pull(broker: Running, load: Load, amounts: Amounts, number: int) -> Turn:
    """Pulls of messages in the page cache."""
    if number == 0:
        filled = cases.fill("pulls", amounts.messages, load.size, load.queues)
        broker.create_topics(filled)
        found = generator.run(broker.port, filled)
        await_count(lambda: broker.stored(filled), found.all_messages)
    return _run(broker, msgspec.structs.replace(load, topic="pulls"), amounts)


def _run(broker: Running, load: Load, amounts: Amounts) -> Turn:
    return measured(
        broker, msgspec.structs.replace(load, warmup=WARMUP_S, duration=amounts.seconds)
    )


def measured(broker: Running, load: Load) -> Turn:
    """One turn of a load. Raises GeneratorError if a request fails."""
    before = process.cpu_seconds(broker.pid)
    found = generator.run(broker.port, load)
    spent = process.cpu_seconds(broker.pid) - before
    if found.failures:
        raise generator.GeneratorError(f"{found.failures} requests failed: {found.errors}")
    return Turn(rate=found.rate, cpu_us=spent * 1e6 / found.all_messages)


def delay(broker: Running, load: Load, amounts: Amounts, number: int) -> Turn:
    """Delivery of messages that came due while the broker was down.

    Its CPU seconds are those of that start less those of a start without due messages.
    """
    load = msgspec.structs.replace(load, topic=f"delay-{number}", count=amounts.messages)
    broker.restart(**NEVER_DUE)
    broker.create_topics(load)
    parked = broker.parked(load.delay_level) if number else 0
    sent = generator.run(broker.port, load).all_messages
    await_count(lambda: broker.parked(load.delay_level), parked + sent)
    broker.restart(**NEVER_DUE)
    time.sleep(SETTLE_S)
    idle = process.cpu_seconds(broker.pid)
    broker.restart(messageDelayLevel="1s")
    time.sleep(SETTLE_S)
    await_count(lambda: broker.stored(load), sent)
    spent = process.cpu_seconds(broker.pid) - idle
    begin, end = broker.stored_between(load)
    return Turn(rate=sent * 1000 / max(1, end - begin), cpu_us=spent * 1e6 / sent)


def push(broker: Running, load: Load, amounts: Amounts, number: int) -> Turn:
    """From send() to a push listener, the Java client on both sides, one message at a time."""
    count = max(20, int(amounts.seconds * 1000 / PUSH_PAUSE_MS))
    load = msgspec.structs.replace(load, topic=f"push-{number}")
    broker.create_topics(load)
    driver = java_driver(broker.server.folder / "client", "JSON")
    try:
        before = process.cpu_seconds(broker.pid)
        found = driver.call(
            "endToEnd",
            **{"namesrv": broker.server.namesrv, "topic": load.topic, "group": load.topic},
            **{"count": count, "pauseMs": PUSH_PAUSE_MS, "skip": count},
        )
        spent = process.cpu_seconds(broker.pid) - before
    finally:
        driver.close()
    return Turn(rate=1000 / median(found["latenciesMs"]), cpu_us=spent * 1e6 / (2 * count))


Case = Callable[[Running, Load, Amounts, int], Turn]
ASYNC, SYNC = "ASYNC_FLUSH", "SYNC_FLUSH"
CASES: dict[str, tuple[Case, Load, str]] = {
    **{name: (send, load, ASYNC) for name, load in cases.ASYNC_SENDS.items()},
    **{name: (pull, load, ASYNC) for name, load in cases.PULLS.items()},
    "pull-32x128B-sql": (pull, cases.FILTERED_PULL, ASYNC),
    "transactions": (send, cases.TRANSACTIONS, ASYNC),
    "delay-level-1": (delay, Load(inflight=64, delay_level=1), ASYNC),
    cases.PUSHED: (push, Load(), ASYNC),
    **{name: (send, load, SYNC) for name, load in cases.SYNC_SENDS.items()},
}


def play(
    name: str, python: Path, rounds: int, amounts: Amounts, folder: Path, own: dict[str, str]
) -> Iterator[tuple[Turn, Turn]]:
    """Run a case; yields the turns of each round: this checkout's, the earlier one's."""
    case, load, flush = CASES[name]
    with (
        process.full_page_cache(folder) if amounts.fill_page_cache else nullcontext(),
        running("congreve", folder / NOW, flush=flush, own=own) as now,
        running("congreve", folder / BEFORE, flush=flush, python=python) as before,
    ):
        for number in range(rounds):
            turns = {}
            for broker in (now, before) if number % 2 else (before, now):
                turns[broker.pid] = case(broker, load, amounts, number)
            yield turns[now.pid], turns[before.pid]


def ratio(turns: list[tuple[Turn, Turn]], figure: str) -> tuple[float, float, float]:
    """The medians of this checkout and of the earlier one, and that of the ratios."""
    pairs = [(getattr(now, figure), getattr(before, figure)) for now, before in turns]
    return (
        median(now for now, _ in pairs),
        median(before for _, before in pairs),
        median(now / before for now, before in pairs if before),
    )


@click.command()
@click.argument("checkout", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--case", "names", type=click.Choice(list(CASES)), multiple=True)
@click.option("--rounds", type=click.IntRange(1), default=7, show_default=True)
@click.option("--seconds", type=float, default=1.0, show_default=True, help="Of load in a turn.")
@click.option("--messages", type=int, default=320_000, show_default=True, help="Pulled or delayed.")
@OWN
@DATA
@click.option(
    "--results",
    type=click.Path(path_type=Path),
    default=ROOT / "bench" / "results" / "before",
    help="Where before.json goes.",
)
def main(
    checkout: Path,
    names: tuple[str, ...],
    rounds: int,
    seconds: float,
    messages: int,
    own: tuple[str, ...],
    data: Path,
    results: Path,
) -> None:
    """This checkout and an earlier one, built in CHECKOUT, under the same load, in turns."""
    console = Console(soft_wrap=True, width=None if sys.stdout.isatty() else 120)
    python = checkout.absolute() / ".venv" / "bin" / "python"
    settings = dict(pair.split("=", 1) for pair in own)
    table = Table(title="this checkout beside the earlier one, medians of the rounds")
    for column in ("work", "now", "before", "rate", "CPU now", "CPU before", "CPU"):
        table.add_column(column, justify="left" if column == "work" else "right")
    found: dict[str, object] = {}
    for name in names or CASES:
        turns = []
        for now, before in play(name, python, rounds, Amounts(seconds, messages), data, settings):
            turns.append((now, before))
            console.print(
                f"{name} {now.rate:12,.0f} {before.rate:12,.0f} /s"
                f" {now.cpu_us:8.3f} {before.cpu_us:8.3f} us"
            )
        rates, spent = ratio(turns, "rate"), ratio(turns, "cpu_us")
        table.add_row(
            *(name, f"{rates[0]:,.0f} /s", f"{rates[1]:,.0f} /s", f"{rates[2]:.2f}"),
            *(f"{spent[0]:.3f} us", f"{spent[1]:.3f} us", f"{spent[2]:.2f}"),
        )
        found[name] = {"rateRatio": rates[2], "cpuRatio": spent[2], "turns": turns}
    console.print(table)
    document = {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "commit": process.commit(),
        "before": process.commit(checkout),
        "machine": process.machine(),
        "cases": msgspec.to_builtins(found),
    }
    write_json(results / "before.json", document)


if __name__ == "__main__":
    main()
