"""Measures our consumers: ``python -m clientspeed.consuming``.

The broker is configured to return as many messages per pull as requested. A consumer that starts on
a full topic is timed from its first message to its last, so that joining the group is not measured.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median

import click
import uvloop
from harness import servers

from clientspeed import report
from clientspeed.report import Figure
from congreve.client import (
    AdminClient,
    ConsumeFrom,
    ConsumerSettings,
    FlowLimits,
    Producer,
    PushConsumer,
    ReceivedMessage,
)

SIZE = 128
TOPIC = "consumers"
COLUMNS = ("body", "queueOffset", "storeTimestamp", "tags", "keys")


class Clock:
    """Counts messages from the first on; `ended` is set when all have arrived."""

    def __init__(self, expected: int) -> None:
        self._expected = expected
        self._began = self._cpu = 0.0
        self._first = self._count = 0
        self.ended = asyncio.Event()
        self.rate = self.cpu_us = 0.0

    def count(self, messages: int) -> None:
        """Count messages."""
        if not self._count:
            self._began, self._cpu = time.perf_counter(), time.process_time()
            self._first = messages
        self._count += messages
        if self._count >= self._expected:
            timed = self._count - self._first
            self.rate = timed / (time.perf_counter() - self._began)
            self.cpu_us = (time.process_time() - self._cpu) / timed * 1e6
            self.ended.set()


async def listen(consumer: PushConsumer, clock: Clock) -> None:
    """Wait until the listener has counted all messages."""
    await clock.ended.wait()


async def iterate(consumer: PushConsumer, clock: Clock) -> None:
    """Iterate over the messages until all have arrived."""
    async for _ in consumer:
        clock.count(1)
        if clock.ended.is_set():
            return


async def arrow(consumer: PushConsumer, clock: Clock) -> None:
    """Iterate over Arrow batches until all messages have arrived."""
    async for batch in consumer.arrow_batches(COLUMNS):
        clock.count(batch.num_rows)
        if clock.ended.is_set():
            return


async def consume(
    namesrv: str,
    messages: int,
    pull_count: int,
    work: Callable[[PushConsumer, Clock], Awaitable[None]],
    group: str,
) -> Clock:
    """Consume the topic; returns the clock."""
    clock = Clock(messages)

    async def listener(message: ReceivedMessage) -> None:
        clock.count(1)

    settings = ConsumerSettings(
        pull_count=pull_count, limits=FlowLimits(count=max(1000, 4 * pull_count), span=None)
    )
    async with PushConsumer(
        namesrv,
        group=group,
        topics={TOPIC: "*"},
        listener=listener if work is listen else None,
        consume_from=ConsumeFrom.FIRST_OFFSET,
        settings=settings,
    ) as consumer:
        await work(consumer, clock)
    return clock


async def fill(namesrv: str, messages: int) -> None:
    """Fill the topic."""
    async with AdminClient(namesrv) as admin:
        await admin.create_topic(TOPIC, queues=4, cluster=servers.CLUSTER)
    async with Producer(namesrv, group="fill") as producer:
        await producer.send_many(TOPIC, [bytes(SIZE)] * messages)


BOUNDS = {("listener", 32): 300_000, ("Arrow batches", 1024): 3_000_000}
CASES = {"listener": listen, "iteration": iterate, "Arrow batches": arrow}


def measure(namesrv: str, messages: int, pull: int, rounds: int, name: str) -> Figure:
    """Measure one case; the figure is the median of the rounds."""
    clocks = [
        uvloop.run(consume(namesrv, messages, pull, CASES[name], f"g-{uuid.uuid4().hex[:8]}"))
        for _ in range(rounds)
    ]
    return Figure(
        f"{name}, {pull:,} a pull",
        median(clock.rate for clock in clocks),
        "msg/s",
        least=BOUNDS.get((name, pull)),
        cpu_us=median(clock.cpu_us for clock in clocks),
    )


@click.command()
@click.option("--messages", type=int, default=1_000_000, show_default=True)
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True)
@click.option("--pull", "pulls", type=int, multiple=True, default=(32, 1024, 4096))
@click.option("--results", type=click.Path(path_type=Path), default=report.RESULTS)
def main(messages: int, rounds: int, pulls: tuple[int, ...], results: Path) -> None:
    """Consume messages of 128 bytes in one process; prints medians of the rounds."""
    with tempfile.TemporaryDirectory(prefix="consuming-") as name:
        folder = Path(name)
        namesrv = servers.namesrv("congreve", folder / "namesrv")
        settings = {
            "maxTransferCountOnMessageInMemory": str(max(pulls)),
            "maxTransferBytesOnMessageInMemory": str(4 << 20),
            "mappedFileSizeCommitLog": str(1 << 30),
        }
        broker = servers.broker(
            "congreve", folder / "b", namesrv.address, settings=settings, watchdog_millis=0
        )
        try:
            namesrv.start()
            broker.start()
            asyncio.run(fill(namesrv.address, messages))
            found = [
                measure(namesrv.address, messages, pull, rounds, case)
                for pull in pulls
                for case in CASES
            ]
        finally:
            broker.kill()
            namesrv.kill()
    report.show("Consuming 128 B, one process, broker: congreve", found)
    report.write(results / "client-consuming.json", {"congreve": found})


if __name__ == "__main__":
    main()
