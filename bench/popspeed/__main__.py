"""``python -m popspeed``: pops and acknowledgements beside RocketMQ 5.5, both running, in turns.

    PYTHONPATH=bench:tests python -m popspeed
    PYTHONPATH=bench:tests python -m popspeed --messages 20000 --seconds 1 --rounds 1

Messages of 128 B, 32 a pop, each acknowledged by itself; then how late a burst comes again, and
what acknowledgements cost in order and at random. One process in C is all members.
"""

from __future__ import annotations

from contextlib import ExitStack
from itertools import count
from pathlib import Path
from statistics import median

import click
import msgspec
from family import brokers
from rich.console import Console
from rich.table import Table
from sidebyside import cases, process
from sidebyside.brokers import Running
from sidebyside.options import DATA
from sidebyside.session import await_count

from congreve.console.loadgen import generator

from .members import MOST, Program

KINDS = ("congreve", "java5")
SIZE = 128
CONSUMERS = (4, 64)
INVISIBLE_MS = 600_000
WARM_UP = 20_000
"""Messages of each turn that are not measured."""
BURST_MEMBERS = 8
IN_ORDER, AT_RANDOM = 0, 1
"""Seeds."""


class Turn(msgspec.Struct, frozen=True):
    """What one broker did for a group."""

    rate: float
    cpu_us: float
    members_cpu: float
    """CPU seconds a second of the members."""


def measured(
    program: Program, broker: Running, group: str, members: int, *work: str | float
) -> Turn:
    """Do what members.c knows under that name, with messages of the topic."""
    spent = 0.0

    def begins() -> None:
        nonlocal spent
        spent = process.cpu_seconds(broker.pid)

    done = program.run(broker.port, "pops", group, members, INVISIBLE_MS, *work, begins=begins)
    spent = process.cpu_seconds(broker.pid) - spent
    return Turn(
        rate=done.messages / done.seconds,
        cpu_us=spent * 1e6 / done.messages,
        members_cpu=done.cpu / done.seconds,
    )


def fill(broker: Running, topic: str, messages: int) -> None:
    """Store the messages of a topic with four queues."""
    load = cases.fill(topic, messages, SIZE, 4)
    broker.create_topics(load)
    found = generator.run(broker.port, load)
    await_count(lambda: broker.stored(load), found.all_messages)


@click.command()
@click.option("--messages", default=2_000_000, show_default=True, help="Of a turn, at most.")
@click.option("--seconds", default=4.0, show_default=True, help="Of a turn, at most.")
@click.option("--rounds", default=5, show_default=True)
@click.option("--burst", default=20_000, show_default=True, help="Messages that come again.")
@click.option("--invisible", default=5_000, show_default=True, help="Of the burst, in ms.")
@DATA
def main(
    messages: int, seconds: float, rounds: int, burst: int, invisible: int, data: Path
) -> None:
    """Rounds in turns, and the medians."""
    console = Console()
    messages -= messages % MOST
    warm_up = min(WARM_UP, messages // 4)
    counted = messages - warm_up - MOST * CONSUMERS[-1]
    numbers = count()
    burst -= burst % MOST
    program = Program(data)
    with ExitStack() as stack:
        both = {
            kind: stack.enter_context(brokers.running(kind, data / kind, "ASYNC_FLUSH"))
            for kind in KINDS
        }
        for broker in both.values():
            fill(broker, "pops", messages)
            fill(broker, "burst", burst)
            work = ("consume", warm_up, counted, 2 * seconds)
            measured(program, broker, "warm", CONSUMERS[-1], *work)
        table = Table("consumers", "broker", "messages/s", "CPU us a message", "members' CPU")
        for members in CONSUMERS:
            turns: dict[str, list[Turn]] = {kind: [] for kind in KINDS}
            for number in range(rounds):
                for kind in KINDS[:: -1 if number % 2 else 1]:
                    group = f"g{next(numbers)}"
                    work = ("consume", warm_up, counted, seconds)
                    turns[kind].append(measured(program, both[kind], group, members, *work))
            for kind, found in turns.items():
                table.add_row(
                    str(members), brokers.TITLES[kind], *map("{:,.1f}".format, middle(found))
                )
            pairs = list(zip(*turns.values(), strict=True))
            rate = median(ours.rate / theirs.rate for ours, theirs in pairs)
            cpu = median(ours.cpu_us / theirs.cpu_us for ours, theirs in pairs)
            table.add_row(str(members), "ratio", f"{rate:.1f}", f"{cpu:.3f}")
        console.print(table)
        for kind, broker in both.items():
            where = (broker.port, "burst", "late", BURST_MEMBERS, invisible)
            _, p99, *_ = program.run(*where, "late", burst).late
            console.print(f"{brokers.TITLES[kind]}: {burst:,} come again, late by {p99} ms (p99)")
        costs = [
            measured(
                program, both["congreve"], f"seed{seed}", BURST_MEMBERS, "settle", messages, seed
            ).cpu_us
            for seed in (IN_ORDER, AT_RANDOM)
        ]
        console.print(
            f"an acknowledgement, {messages:,} out: {costs[0]:.2f} us in order,"
            f" {costs[1]:.2f} us at random, {costs[1] / costs[0]:.2f} x"
        )


def middle(turns: list[Turn]) -> tuple[float, ...]:
    """The medians of rate, CPU and members' CPU."""
    return tuple(
        median(getattr(turn, name) for turn in turns) for name in ("rate", "cpu_us", "members_cpu")
    )


if __name__ == "__main__":
    main()
