"""``python -m popspeed.pauses``: members that stay, while others come and go.

    PYTHONPATH=bench:tests python -m popspeed.pauses

Messages are sent at a fixed rate to members that wait for them, in turns alone and while 1,000
others connect, pop once or twice, and go: with messages that they have not acknowledged, before the
answers to their acknowledgements, or while they wait for messages. What these leave comes again.
Each message to a member that stays counts from its store time; a message that comes after its
acknowledgement was answered is an error.
"""

from __future__ import annotations

import threading
from itertools import count
from pathlib import Path
from statistics import median

import click
from family import brokers
from rich.console import Console
from rich.table import Table
from sidebyside.options import DATA

from congreve.console.loadgen import generator
from congreve.console.loadgen.generator import Load

from .members import Done, Program

QUEUES = 4
SIZE = 128
LEFT_MS = 3_000
"""After which what a member has left comes again."""
AHEAD_S = 1.0
"""So much longer than the members take, messages are sent."""


@click.command()
@click.option("--rate", default=5_000, show_default=True, help="Messages a second.")
@click.option("--members", default=16, show_default=True, help="That stay.")
@click.option("--brief", default=1_000, show_default=True, help="That come and go in a turn.")
@click.option("--seconds", default=10.0, show_default=True, help="Of a turn.")
@click.option("--rounds", default=5, show_default=True)
@DATA
def main(rate: int, members: int, brief: int, seconds: float, rounds: int, data: Path) -> None:
    """Medians of the rounds, and the longest delay of each."""
    numbers = count()
    program = Program(data)
    turns: dict[int, list[Done]] = {0: [], brief: []}
    with brokers.running("congreve", data / "congreve", "ASYNC_FLUSH") as broker:

        def turn(coming: int, length: float) -> Done:
            number = next(numbers)
            load = Load(
                topic=f"pauses{number}",
                queues=QUEUES,
                size=SIZE,
                rate=rate,
                warmup=0,
                duration=length + AHEAD_S,
            )
            broker.create_topics(load)
            sender = threading.Thread(target=generator.run, args=(broker.port, load))
            sender.start()
            try:
                return program.run(
                    *(broker.port, load.topic, "group", members, LEFT_MS),
                    *("pauses", length, coming, number + 1),
                )
            finally:
                sender.join()

        turn(brief // 10, 1.0)
        for number in range(rounds):
            for coming in sorted(turns, reverse=bool(number % 2)):
                turns[coming].append(turn(coming, seconds))
    table = Table("others", "messages", "p50 ms", "p99", "p99.9", "longest", "again after ack")
    for coming, found in turns.items():
        late = [median(each) for each in zip(*(done.late for done in found), strict=True)]
        if any(done.gone < coming * 0.99 for done in found):
            raise click.ClickException(f"of {coming} only {min(done.gone for done in found)} went")
        table.add_row(
            f"{coming:,}",
            f"{median(done.messages for done in found):,.0f}",
            *(f"{each:.0f}" for each in late[:3]),
            ", ".join(str(done.late[3]) for done in found),
            str(sum(done.again for done in found)),
        )
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
