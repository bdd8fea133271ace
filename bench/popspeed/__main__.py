"""``python -m popspeed``: pops and acknowledgements beside RocketMQ 5.5, both running, in turns.

    PYTHONPATH=bench:tests python -m popspeed
    PYTHONPATH=bench:tests python -m popspeed --messages 20000 --seconds 5 --rounds 1

Messages of 128 B, 32 a pop, each acknowledged by itself; then how late a burst comes again, and
what acknowledgements cost in order and at random. One process is all members: where its CPU is near
one second a second, the broker could do more.
"""

from __future__ import annotations

import time
from collections.abc import Callable
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

from .members import MOST, Group, shuffled

KINDS = ("congreve", "java5")
SIZE = 128
CONSUMERS = (4, 64)
INVISIBLE_MS = 600_000
WARM_UP = 5_000
"""Messages."""
BURST_MEMBERS = 8


class Turn(msgspec.Struct, frozen=True):
    """What one broker did for a group."""

    rate: float
    cpu_us: float
    members_cpu: float
    """CPU seconds a second of this process."""


def consume(broker: Running, group: str, members: int, messages: int, seconds: float) -> Turn:
    """A new group gets the messages of the topic."""
    found = Group(broker.port, "pops", group, members, INVISIBLE_MS)
    spent = own = 0.0

    def begins() -> None:
        nonlocal spent, own
        spent, own = process.cpu_seconds(broker.pid), time.process_time()

    try:
        done, took = found.consume(MOST * members, messages, seconds, begins)
    finally:
        found.close()
    spent, own = process.cpu_seconds(broker.pid) - spent, time.process_time() - own
    return Turn(rate=done / took, cpu_us=spent * 1e6 / done, members_cpu=own / took)


def settle(broker: Running, group: str, messages: int, order: Callable[..., list[bytes]]) -> float:
    """The broker's CPU in us for an acknowledgement, when all messages are out."""
    found = Group(broker.port, "pops", group, BURST_MEMBERS, INVISIBLE_MS)
    try:
        acks = order(found.take(messages))
        spent = process.cpu_seconds(broker.pid)
        found.settle(acks)
        return (process.cpu_seconds(broker.pid) - spent) * 1e6 / len(acks)
    finally:
        found.close()


def late(broker: Running, group: str, messages: int, invisible_ms: int) -> int:
    """How many ms after its time a message comes again, p99, of a burst."""
    found = Group(broker.port, "burst", group, BURST_MEMBERS, invisible_ms)
    try:
        times = found.lateness(messages, invisible_ms)
    finally:
        found.close()
    return times[len(times) * 99 // 100]


def fill(broker: Running, topic: str, messages: int) -> None:
    """Store the messages of a topic with four queues."""
    load = cases.fill(topic, messages, SIZE, 4)
    broker.create_topics(load)
    found = generator.run(broker.port, load)
    await_count(lambda: broker.stored(load), found.all_messages)


@click.command()
@click.option("--messages", default=200_000, show_default=True, help="Of a turn, at most.")
@click.option("--seconds", default=15.0, show_default=True, help="Of a turn, at most.")
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
    counted = messages - MOST * CONSUMERS[-1]
    numbers = count()
    burst -= burst % MOST
    with ExitStack() as stack:
        both = {
            kind: stack.enter_context(brokers.running(kind, data / kind, "ASYNC_FLUSH"))
            for kind in KINDS
        }
        for broker in both.values():
            fill(broker, "pops", messages)
            fill(broker, "burst", burst)
            consume(broker, "warm", CONSUMERS[-1], WARM_UP, seconds)
        table = Table("consumers", "broker", "messages/s", "CPU us a message", "members' CPU")
        for members in CONSUMERS:
            turns: dict[str, list[Turn]] = {kind: [] for kind in KINDS}
            for number in range(rounds):
                for kind in KINDS[:: -1 if number % 2 else 1]:
                    group = f"g{next(numbers)}"
                    turns[kind].append(consume(both[kind], group, members, counted, seconds))
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
            p99 = late(broker, "late", burst, invisible)
            console.print(f"{brokers.TITLES[kind]}: {burst:,} come again, late by {p99} ms (p99)")
        ours = both["congreve"]
        in_order = settle(ours, "in-order", messages, list)
        at_random = settle(ours, "at-random", messages, shuffled)
        console.print(
            f"an acknowledgement, {messages:,} out: {in_order:.2f} us in order,"
            f" {at_random:.2f} us at random, {at_random / in_order:.2f} x"
        )


def middle(turns: list[Turn]) -> tuple[float, ...]:
    """The medians of rate, CPU and members' CPU."""
    return tuple(
        median(getattr(turn, name) for turn in turns) for name in ("rate", "cpu_us", "members_cpu")
    )


if __name__ == "__main__":
    main()
