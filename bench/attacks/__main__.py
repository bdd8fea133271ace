"""``python -m attacks``: a neighbour's sends while one client without an account attacks.

A neighbour sends at a fixed rate (an open loop). The same attack from one process goes to our
broker and to a server that only answers, which shows what the attack takes of the machine.
"""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import click
import msgspec
from harness.servers import free_port
from harness.wire import Wire
from rich.console import Console
from sidebyside import process
from sidebyside.brokers import create_topic, running
from sidebyside.options import DATA, ROOT
from sidebyside.report import write_json

from congreve.console.loadgen import generator
from congreve.console.loadgen.generator import Load

from .attackers import ATTACKS, TOPIC, Ports

TOPICS = 2000
BEGIN_S = 1.0  # of the attack, before the neighbour is measured
END_S = 1.0
SAMPLE_S = 0.05
NEIGHBOUR = Load(topic=TOPIC, connections=8, inflight=64, warmup=0)


class Turn(msgspec.Struct, frozen=True, rename="camel"):
    """The neighbour's latencies in ms from when a send was due, and the server's further memory."""

    p50: float
    p99: float
    longest: float
    failures: int
    memory_mib: float


@contextmanager
def attacked(name: str, ports: Ports) -> Iterator[None]:
    """One attacker while the block runs."""
    attacker = multiprocessing.get_context("spawn").Process(
        target=ATTACKS[name], args=(ports,), daemon=True
    )
    attacker.start()
    try:
        time.sleep(BEGIN_S)
        yield
    finally:
        attacker.kill()
        attacker.join()


def turn(name: str, ports: Ports, pid: int, load: Load) -> Turn:
    """The neighbour beside one attack of a server."""
    before = peak = process.memory(pid).anonymous
    done = threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(SAMPLE_S):
            peak = max(peak, process.memory(pid).anonymous)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        with attacked(name, ports):
            found = generator.run(ports.broker, load)
    finally:
        done.set()
        watcher.join()
    time.sleep(END_S)
    p50, p99, longest = found.percentiles_ms(50, 99, 100)
    return Turn(p50, p99, longest, found.failures, peak - before)


def row(name: str, ours: list[Turn], answers: list[Turn]) -> dict[str, object]:
    """Medians of the rounds, and the largest longest send and memory."""
    return {
        "attack": name,
        "p99Ms": median(each.p99 for each in ours),
        "onlyAnswersP99Ms": median(each.p99 for each in answers),
        "p99Ratio": median(a.p99 / b.p99 for a, b in zip(ours, answers, strict=True)),
        "longestMs": max(each.longest for each in ours),
        "onlyAnswersLongestMs": max(each.longest for each in answers),
        "failures": sum(each.failures for each in ours),
        "memoryMiB": max(each.memory_mib for each in ours),
    }


@click.command()
@click.option("--attack", "names", type=click.Choice(list(ATTACKS)), multiple=True)
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True)
@click.option("--seconds", type=click.FloatRange(1), default=5.0, show_default=True)
@click.option("--rate", type=click.FloatRange(1), default=1000.0, show_default=True)
@DATA
@click.option("--results", type=click.Path(path_type=Path), default=ROOT / "bench" / "results")
def main(
    names: tuple[str, ...], rounds: int, seconds: float, rate: float, data: Path, results: Path
) -> None:
    """Each attack on our broker and on a server that only answers, in turns."""
    console = Console(soft_wrap=True)
    load = msgspec.structs.replace(NEIGHBOUR, duration=seconds, rate=rate)
    names = names or tuple(ATTACKS)
    ours: dict[str, list[Turn]] = {name: [] for name in names}
    answers: dict[str, list[Turn]] = {name: [] for name in names}
    replication, metrics = free_port(), free_port()
    own = {"haListenPort": str(replication), "metricsPort": str(metrics)}
    with running("congreve", data, flush="ASYNC_FLUSH", own=own) as broker:
        with Wire(broker.server.address) as wire:
            create_topic(wire, TOPIC, load.queues)
            for number in range(TOPICS):
                create_topic(wire, f"topic-{number:05d}-{'n' * 40}", 1)
        ports = Ports(broker.port, replication, metrics)
        for number in range(rounds):
            for name in names:
                ours[name].append(turn(name, ports, broker.pid, load))
                with generator.sink() as (port, pid):
                    answers[name].append(turn(name, Ports(port, port, port), pid, load))
                console.print(f"round {number + 1} {name}: {ours[name][-1]} {answers[name][-1]}")
    table = [row(name, ours[name], answers[name]) for name in names]
    console.print_json(msgspec.json.encode(table).decode())
    document: dict[str, object] = {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "commit": process.commit(),
        "machine": process.machine(),
        "rate": rate,
        "table": table,
    }
    write_json(results / "attacks.json", document)


if __name__ == "__main__":
    main()
