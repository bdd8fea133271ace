"""Faults of a master and its slave, as processes: what was acknowledged is at both, once, in order.

Either end may be RocketMQ.
"""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from harness import servers
from harness.link import Direction, Link
from harness.numbered_messages import NumberedMessages, number_of
from harness.replication.replicas import Replicas, await_equal_logs, log_bytes, queued_bodies
from harness.servers import BrokerServer

TOPIC = "Faults"
QUEUES = 4
OURS = "congreve"
SEGMENT = 1 << 20
SETTINGS = {
    "flushDiskType": "SYNC_FLUSH",
    "mappedFileSizeCommitLog": str(SEGMENT),
    "maxHashSlotNum": "1000",
    "maxIndexNum": "4000",
    "haSendHeartbeatInterval": "200",
    "haHousekeepingInterval": "1500",
    "eventLoopWatchdogMillis": "0",
}
FAULT_S = 2.0
"""Longer than a silence that either end accepts."""
WAYS = {
    "no reports": (Direction.THERE,),
    "no log": (Direction.BACK,),
    "half open": (Direction.THERE, Direction.BACK),
}
KINDS = (
    *("kill master", "kill slave", "pause master", "pause slave"),
    *("cut", "delay", *WAYS),
)
FAULTS = 60
FAULTS_WITH_ROCKETMQ = 10


class Pair(NamedTuple):
    """A SYNC_MASTER, its slave behind a link, and the messages that both must have."""

    master: BrokerServer
    slave: BrokerServer
    messages: NumberedMessages


@asynccontextmanager
async def running(folder: Path, kinds: tuple[str, str]) -> AsyncIterator[tuple[Pair, Link]]:
    namesrv = servers.namesrv(OURS, folder / "namesrv")
    replicas = Replicas(namesrv, folder)
    settings = {**SETTINGS, "brokerRole": "SYNC_MASTER", "slaveTimeout": "1000"}
    settings["defaultTopicQueueNums"] = str(QUEUES)
    try:
        await asyncio.to_thread(namesrv.start)
        master = await asyncio.to_thread(replicas.master, kinds[0], **settings)
        link = Link(master.port + 1)
        await link.start()
        slave = await asyncio.to_thread(
            replicas.slave, kinds[1], **SETTINGS, haMasterAddress=link.address
        )
        messages = NumberedMessages(namesrv.address, TOPIC, send_timeout_s=1.5)
        pair = Pair(master, slave, messages)
        writer = asyncio.create_task(messages.send())
        await messages.acknowledges()
        yield pair, link
        writer.cancel()
        await asyncio.gather(writer, return_exceptions=True)
        await asyncio.to_thread(await_equal_logs, master, slave)
        await link.stop()
    finally:
        for broker in replicas.made:
            if broker.process is not None:
                broker.process.send_signal(signal.SIGCONT)
        replicas.kill()
        namesrv.kill()


async def fault(pair: Pair, link: Link, kind: str) -> None:
    """Inject one fault, then wait until messages are acknowledged again."""
    broker = pair.master if kind.endswith("master") else pair.slave
    process = broker.process
    assert process is not None
    if kind.startswith("kill"):
        broker.kill()
        if broker is pair.master:
            pair.messages.check(numbers(log_bytes(pair.slave.store)))
        await asyncio.to_thread(broker.start)
    elif kind.startswith("pause"):
        process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(FAULT_S)
        process.send_signal(signal.SIGCONT)
    elif kind == "cut":
        link.cut()
    elif kind == "delay":
        link.delay_s = 0.05
        await asyncio.sleep(FAULT_S)
    else:
        link.hold(*WAYS[kind])
        await asyncio.sleep(FAULT_S)
    link.release()
    await pair.messages.acknowledges()


def numbers(log: bytes) -> dict[int, list[int]]:
    """The numbers in each queue of the topic, in the order of the log."""
    queues = queued_bodies(log, TOPIC, SEGMENT)
    return {queue_id: [number_of(body) for body in bodies] for queue_id, bodies in queues.items()}


async def run_faults(folder: Path, kinds: list[str], ends: tuple[str, str]) -> None:
    async with running(folder, ends) as (pair, link):
        for kind in kinds:
            await fault(pair, link, kind)
    pair.messages.check(numbers(log_bytes(pair.master.store)))


@pytest.mark.crash
async def test_faults_between_a_master_and_its_slave_lose_nothing(tmp_path: Path) -> None:
    await run_faults(tmp_path, ["kill master", "half open", "pause slave"], (OURS, OURS))


@pytest.mark.crash
async def test_many_faults_lose_nothing(
    tmp_path: Path, kill_rounds: int, campaign: Callable[[str, int], None]
) -> None:
    """60 faults with `make soak`, ten of them with RocketMQ at one end; none in a short run."""
    rounds = kill_rounds * FAULTS // 1000
    if rounds < FAULTS:
        pytest.skip("only with many rounds")
    choose = random.Random(1)
    half = FAULTS_WITH_ROCKETMQ // 2
    for number, (ends, count) in enumerate(
        (
            ((OURS, OURS), FAULTS - FAULTS_WITH_ROCKETMQ),
            (("java", OURS), half),
            ((OURS, "java"), half),
        )
    ):
        kinds = [choose.choice(KINDS) for _ in range(count)]
        await run_faults(tmp_path / str(number), kinds, ends)
        campaign(f"faults of a SYNC_MASTER ({ends[0]}) and its slave ({ends[1]})", count)
