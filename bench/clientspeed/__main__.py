"""``python -m clientspeed``: send rates and latencies of our client and the Java client."""

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

from clientspeed import report
from clientspeed.imports import imports
from clientspeed.report import Figure
from congreve.client import AdminClient, Message, Producer, SyncProducer

SIZE = 128
IN_FLIGHT = 256
THREADS = 64
MANY = 500_000
WARMUP_S = 3.0
TOPIC = "clients"
JAVA_MANY, ASYNCIO = f"Java client, {THREADS} threads", f"asyncio, {IN_FLIGHT} in flight"
JAVA_ONE, SYNC = "Java client, one at a time", "sync, one at a time"
SEND_MANY = "send_many"
Measured = dict[str, float]


async def asynchronous(namesrv: str, seconds: float) -> Measured:
    """Tasks of one producer, each waiting for every answer."""
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
    """send_many(), repeatedly."""
    bodies = [bytes(SIZE)] * MANY
    async with Producer(namesrv, group="speed") as producer:
        sent, begin, cpu = 0, time.perf_counter(), time.process_time()
        while time.perf_counter() < begin + seconds:
            sent += sum(one.count for one in await producer.send_many(TOPIC, bodies))
        took = time.perf_counter() - begin
        return {"rate": sent / took, "cpu": (time.process_time() - cpu) / sent * 1e6}


def one_at_a_time(namesrv: str, seconds: float) -> Measured:
    """One thread that waits for every answer."""
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
    """Create the topic of the load."""
    async with AdminClient(namesrv) as admin:
        await admin.create_topic(TOPIC, queues=4, cluster=servers.CLUSTER)


def play(kind: str, folder: Path, seconds: float, rounds: int) -> dict[str, list[Measured]]:
    """Run all cases in turns, at a new broker of that kind."""
    namesrv = servers.namesrv(kind, folder / "namesrv")
    broker = servers.broker(
        kind,
        folder / "broker",
        namesrv.address,
        settings={"mappedFileSizeCommitLog": str(1 << 30)},
        jvm=("-Xms1g", "-Xmx1g", "-XX:+UseG1GC"),
        watchdog_millis=0,
    )
    command = servers.java_command(folder / "home", 768, jvm=("-Xms768m", "-XX:+UseG1GC"))
    driver = Driver([*command, "congreve.interop.Driver"], folder, "java-client")
    try:
        namesrv.start()
        broker.start()
        address = namesrv.address
        asyncio.run(create_topic(address))
        cases: dict[str, Callable[[], Measured]] = {
            JAVA_MANY: lambda: java(driver, address, THREADS, seconds),
            ASYNCIO: lambda: uvloop.run(asynchronous(address, seconds)),
            SEND_MANY: lambda: uvloop.run(many(address, seconds)),
            JAVA_ONE: lambda: java(driver, address, 1, seconds),
            SYNC: lambda: one_at_a_time(address, seconds),
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


def figures(found: dict[str, list[Measured]], bounded: bool) -> list[Figure]:
    """Medians of the rounds, and ratios of the clients within a round.

    Target rates apply when `bounded`: Apache RocketMQ's broker may be slower than they are.
    """

    def middle(name: str, key: str) -> float:
        return median(one[key] for one in found[name])

    def beside(name: str, other: str, key: str) -> float:
        pairs = zip(found[name], found[other], strict=True)
        return median(one[key] / another[key] for one, another in pairs)

    def rate(name: str, least: float | None = None) -> Figure:
        cpu = middle(name, "cpu") if "cpu" in found[name][0] else None
        wanted = least if bounded else None
        return Figure(name, middle(name, "rate"), "msg/s", least=wanted, cpu_us=cpu)

    return [
        rate(JAVA_MANY),
        rate(ASYNCIO, 60_000),
        Figure("  beside the Java client's rate", beside(ASYNCIO, JAVA_MANY, "rate"), "x", least=1),
        rate(SEND_MANY, 1_000_000),
        Figure(f"{JAVA_ONE}, p50", middle(JAVA_ONE, "p50"), "us"),
        Figure(f"{SYNC}, p50", middle(SYNC, "p50"), "us"),
        Figure("  beside the Java client's p50", beside(SYNC, JAVA_ONE, "p50"), "x", most=1.3),
    ]


@click.command()
@click.option("--seconds", type=float, default=4.0, show_default=True, help="Of each case.")
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True)
@click.option("--broker", "kinds", type=click.Choice(["congreve", "java"]), multiple=True)
@click.option("--results", type=click.Path(path_type=Path), default=report.RESULTS)
def main(seconds: float, rounds: int, kinds: tuple[str, ...], results: Path) -> None:
    """Send messages of 128 bytes by our client and the Java client, and measure imports."""
    found = {"none": imports()}
    report.show("Imports", found["none"])
    for kind in kinds or ("congreve", "java"):
        with tempfile.TemporaryDirectory(prefix="clientspeed-") as folder:
            measured = play(kind, Path(folder), seconds, rounds)
        found[kind] = figures(measured, bounded=kind == "congreve")
        report.show(f"Sends of {SIZE} B, broker: {kind}", found[kind])
    report.write(results / "client-sending.json", found)


if __name__ == "__main__":
    main()
