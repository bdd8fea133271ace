"""Orderly consumers of the Java client that join, leave and crash: nothing lost, all in order."""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from harness import servers
from harness.cluster import Cluster
from harness.drivers import Driver, java_driver
from harness.wire import SEND_MESSAGE_V2, Wire, send_fields

QUEUES = 4
ROUNDS_SHARE = 15  # of --kill-rounds: a round takes seconds
SEND_PAUSE_S = 0.01
END_LIMIT_S = 120.0
# Shorter times than the reference's: a member relies on a lock for half of its lifetime.
LEASE_MS = 4_000
MEMBER_TIMES = (
    "-Drocketmq.client.rebalance.lockInterval=500",
    "-Drocketmq.client.rebalance.lockMaxLiveTime=2000",
    "-Drocketmq.client.rebalance.waitInterval=500",
    "-Drocketmq.client.unlockDelayTimeMills=500",
)
BROKER_TIME = f"-Drocketmq.broker.rebalance.lockMaxLiveTime={LEASE_MS}"


class Sender(threading.Thread):
    """Sends the numbers 0, 1, 2... to each queue until it is stopped."""

    def __init__(self, address: str, topic: str) -> None:
        super().__init__()
        self._wire = Wire(address)
        self._topic = topic
        self._ended = threading.Event()
        self.sent = 0

    def run(self) -> None:
        with self._wire as wire:
            while not self._ended.wait(SEND_PAUSE_S):
                for queue_id in range(QUEUES):
                    fields = send_fields(self._topic, queue_id, {})
                    answer = wire.call(SEND_MESSAGE_V2, fields, f"{self.sent}|".encode())
                    assert answer.code == 0, answer.remark
                self.sent += 1

    def end(self) -> int:
        """How many each queue got."""
        self._ended.set()
        self.join()
        return self.sent


class Members:
    """JVMs with one member each, and the journals that they write."""

    def __init__(self, cluster: Cluster, topic: str, folder: Path) -> None:
        self._request = {
            "namesrv": cluster.namesrv.address,
            "topic": topic,
            "group": f"group-{topic}",
        }
        self._folder = folder
        self._stack = ExitStack()

    def __enter__(self) -> Members:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def spawn(self) -> Driver:
        driver = java_driver(self._folder / uuid.uuid4().hex, "JSON", *MEMBER_TIMES)
        self._stack.callback(driver.close)
        return driver

    def join(self, driver: Driver) -> None:
        journal = self._folder / f"{uuid.uuid4().hex}.journal"
        driver.call("orderlyStart", journal=str(journal), **self._request)

    def consumed(self) -> dict[int, list[int]]:
        """Each queue's numbers in the order in which any member took them."""
        lines = [
            tuple(map(int, line.split()))
            for journal in self._folder.glob("*.journal")
            for line in journal.read_text().split("\n")[:-1]  # another may be half written
        ]
        return {
            queue_id: [number for _, queue, number in sorted(lines) if queue == queue_id]
            for queue_id in range(QUEUES)
        }


@pytest.fixture
def ordered(
    kind: str, namesrv: servers.Server, java: Driver, tmp_path: Path
) -> Iterator[tuple[Cluster, str]]:
    """A broker whose locks end soon, and a topic there."""
    broker = servers.broker(
        *(kind, tmp_path, namesrv.address),
        broker_name=f"broker-{uuid.uuid4().hex[:6]}",
        settings={"rebalanceLockMaxLiveTime": str(LEASE_MS)},
        jvm=(*servers.SMALL_JVM, BROKER_TIME),
    )
    broker.start()
    cluster = Cluster(namesrv, broker)
    topic = f"ordered-{uuid.uuid4().hex[:8]}"
    cluster.create_topic(java, topic, queues=QUEUES)
    yield cluster, topic
    broker.kill()


@pytest.mark.crash
def test_nothing_is_lost_or_out_of_order_when_orderly_members_come_go_and_crash(
    ordered: tuple[Cluster, str], tmp_path: Path, kill_rounds: int
) -> None:
    cluster, topic = ordered
    chance = random.Random(7)
    sender = Sender(cluster.broker.address, topic)
    with Members(cluster, topic, tmp_path) as members:
        lasting, passing, victim = members.spawn(), members.spawn(), members.spawn()
        members.join(lasting)
        sender.start()
        rounds = max(1, kill_rounds // ROUNDS_SHARE)
        for _ in range(rounds):
            members.join(victim)
            members.join(passing)
            time.sleep(chance.uniform(0.5, 2.0))
            victim.kill()
            victim = members.spawn()
            time.sleep(chance.uniform(0.1, 1.0))
            passing.call("orderlyStop")
        sent = sender.end()
        deadline = time.monotonic() + END_LIMIT_S
        while any(len(set(numbers)) < sent for numbers in members.consumed().values()):
            assert time.monotonic() < deadline, "messages are lost"
            time.sleep(0.2)
    assert sent > rounds
    for queue_id, numbers in members.consumed().items():
        first_times = list(dict.fromkeys(numbers))
        assert first_times == list(range(sent)), f"queue {queue_id} out of order"
