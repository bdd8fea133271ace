"""``python -m clientspeed``: rates and times of a send, ours and the Java client's."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import click
import uvloop
from harness import servers
from harness.drivers import Driver
from rich.console import Console
from rich.table import Table

from congreve.client import AdminClient, Message, Producer, SyncProducer

SIZE = 128
IN_FLIGHT = 256
THREADS = 64
MANY = 500_000
WARMUP_S = 3.0
TOPIC = "clients"
Measured = dict[str, float]


async def asynchronous(namesrv: str, seconds: float) -> Measured:
    """Tasks that each wait for every answer, of one producer."""
    sent = 0

    async def work(producer: Producer, until: float) -> None:
        nonlocal sent
        while time.perf_counter() < until:
            await producer.send(Message(topic=TOPIC, body=bytes(SIZE)))
            sent += 1

    async with Producer(namesrv, group="speed") as producer:
        for span in (WARMUP_S / 3, seconds):
            sent, begin, cpu = 0, time.perf_counter(), time.process_time()
            await asyncio.gather(*(work(producer, begin + span) for _ in range(IN_FLIGHT)))
        took = time.perf_counter() - begin
        return {"rate": sent / took, "cpu": (time.process_time() - cpu) / sent * 1e6}


async def many(namesrv: str, seconds: float) -> Measured:
    """send_many(), over and over."""
    bodies = [bytes(SIZE)] * MANY
    async with Producer(namesrv, group="speed") as producer:
        sent, begin, cpu = 0, time.perf_counter(), time.process_time()
        while time.perf_counter() < begin + seconds:
            sent += sum(one.count for one in await producer.send_many(TOPIC, bodies))
        took = time.perf_counter() - begin
        return {"rate": sent / took, "cpu": (time.process_time() - cpu) / sent * 1e6}


def one_at_a_time(namesrv: str, seconds: float) -> Measured:
    """A thread that waits for every answer."""
    took = []
    with SyncProducer(namesrv, group="speed") as producer:
        begin = now = time.perf_counter()
        while now < begin + seconds:
            producer.send(Message(topic=TOPIC, body=bytes(SIZE)))
            after = time.perf_counter()
            took.append(after - now)
            now = after
    return {"rate": len(took) / seconds, "p50": median(took) * 1e6}


def java(driver: Driver, namesrv: str, threads: int, seconds: float) -> Measured:
    """The Java client's benchmark."""
    found = driver.call(
        "speed",
        namesrv=namesrv,
        topic=TOPIC,
        threads=threads,
        size=SIZE,
        warmup=WARMUP_S,
        seconds=seconds,
    )
    return {"rate": found["messages"] / seconds, "p50": found["p50"]}


async def create_topic(namesrv: str) -> None:
    async with AdminClient(namesrv) as admin:
        await admin.create_topic(TOPIC, queues=4, cluster=servers.CLUSTER)


def play(kind: str, folder: Path, seconds: float, rounds: int) -> dict[str, list[Measured]]:
    """All cases in turns, at a new broker of that kind."""
    namesrv = servers.namesrv(kind, folder / "namesrv")
    broker = servers.broker(
        kind,
        folder / "broker",
        namesrv.address,
        settings={"mappedFileSizeCommitLog": str(1 << 30)},
        jvm=("-Xms1g", "-Xmx1g", "-XX:+UseG1GC"),
    )
    command = servers.java_command(folder / "home", 768, jvm=("-Xms768m", "-XX:+UseG1GC"))
    driver = Driver([*command, "congreve.interop.Driver"], folder, "java-client")
    try:
        namesrv.start()
        broker.start()
        address = namesrv.address
        asyncio.run(create_topic(address))
        cases: dict[str, Callable[[], Measured]] = {
            f"Java client, {THREADS} threads": lambda: java(driver, address, THREADS, seconds),
            f"asyncio, {IN_FLIGHT} in flight": lambda: uvloop.run(asynchronous(address, seconds)),
            "send_many": lambda: uvloop.run(many(address, seconds)),
            "Java client, one at a time": lambda: java(driver, address, 1, seconds),
            "sync, one at a time": lambda: one_at_a_time(address, seconds),
        }
        found: dict[str, list[Measured]] = {name: [] for name in cases}
        for _ in range(rounds):
            for name, measure in cases.items():
                found[name].append(measure())
        return found
    finally:
        driver.close()
        broker.kill()
        namesrv.kill()


@click.command()
@click.option("--seconds", type=float, default=4.0, show_default=True, help="Of each case.")
@click.option("--rounds", type=click.IntRange(1), default=2, show_default=True)
@click.option("--broker", "kinds", type=click.Choice(["congreve", "java"]), multiple=True)
def main(seconds: float, rounds: int, kinds: tuple[str, ...]) -> None:
    """Sends of 128 bytes by our client and by the Java client; medians of the rounds."""
    table = Table("broker", "client", "msg/s", "p50 us", "our CPU us/msg")
    for kind in kinds or ("congreve", "java"):
        with tempfile.TemporaryDirectory(prefix="clientspeed-") as folder:
            found = play(kind, Path(folder), seconds, rounds)
        for name, results in found.items():
            row = {key: median(one[key] for one in results) for key in results[0]}
            table.add_row(
                *(kind, name, f"{row['rate']:,.0f}"),
                f"{row['p50']:,.0f}" if "p50" in row else "",
                f"{row['cpu']:.2f}" if "cpu" in row else "",
            )
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
