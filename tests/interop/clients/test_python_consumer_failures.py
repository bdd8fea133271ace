"""The Python consumers while servers restart, hang or are killed, and members join and leave.

Delivery is at least once: each acknowledged message reaches the group, perhaps several times.
"""

from __future__ import annotations

import asyncio
import random
import signal
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import servers
from harness.eventually import eventually

from congreve.base.errors import CongreveError
from congreve.client import (
    AdminClient,
    ConsumeFrom,
    ConsumerSettings,
    Message,
    Producer,
    PushConsumer,
    ReceivedMessage,
)

KINDS = ("congreve", "java")
JOINS = {"congreve": 1000, "java": 100}
EVENTUALLY_S = 60
QUICK = ConsumerSettings(
    pause_after_error_s=0.2, rebalance_s=1.0, commit_s=0.3, stop_wait_s=2.0, pull_wait_s=2.0
)


class TwoBrokers:
    """A name server with two brokers of a kind; topics have four queues on each."""

    def __init__(self, kind: str, folder: Path, brokers: int = 2) -> None:
        self.namesrv = servers.namesrv(kind, folder / "namesrv")
        self.namesrv.start()
        self.brokers = [
            servers.broker(
                *(kind, folder / f"broker{i}", self.namesrv.address),
                broker_name=f"broker-{i}",
                # The reference's smallest: a restarted name server learns the brokers so late.
                settings={"registerNameServerPeriod": "10000"},
            )
            for i in range(brokers)
        ]
        for broker in self.brokers:
            broker.start()
        self.topic = ""

    def new_topic(self) -> None:
        """Use a new topic from now on."""
        self.topic = f"rig-{uuid.uuid4().hex[:8]}"
        asyncio.run(self._create_topic())

    async def _create_topic(self) -> None:
        """Create the topic once all brokers are registered, up to 10 s after a restart."""
        async with AdminClient(self.namesrv.address) as admin, asyncio.timeout(EVENTUALLY_S):
            while len((await admin.cluster_info()).broker_addr_table) < len(self.brokers):
                await asyncio.sleep(0.1)
            await admin.create_topic(self.topic, queues=4, cluster=servers.CLUSTER)

    def stop(self) -> None:
        for server in (*self.brokers, self.namesrv):
            server.kill()

    def consumer(self, listener: Any, group: str, **more: Any) -> PushConsumer:
        settings: dict[str, Any] = {"settings": QUICK, **more}
        return PushConsumer(
            self.namesrv.address,
            group=group,
            topics={self.topic: "*"},
            listener=listener,
            consume_from=ConsumeFrom.FIRST_OFFSET,
            timeout_s=1.0,
            **settings,
        )


@pytest.fixture(scope="module")
def started(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoBrokers]:
    made = TwoBrokers(kind, tmp_path_factory.mktemp(f"rig-{kind}"))
    yield made
    made.stop()


@pytest.fixture
def brokers(started: TwoBrokers) -> TwoBrokers:
    started.new_topic()
    return started


class Traffic:
    """Sends until it is stopped, and counts acknowledged and received messages."""

    def __init__(self, brokers: TwoBrokers, pause_s: float = 0.002) -> None:
        self._rig = brokers
        self._pause_s = pause_s
        self._ended = asyncio.Event()
        self.acknowledged: set[bytes] = set()
        self.came: Counter[bytes] = Counter()

    async def __call__(self, message: ReceivedMessage) -> None:
        self.came[message.body] += 1

    async def send(self) -> None:
        number = 0
        async with Producer(
            self._rig.namesrv.address, group="traffic", send_timeout_s=1.0
        ) as producer:
            while not self._ended.is_set():
                number += 1
                body = b"%d" % number
                try:
                    await producer.send(Message(topic=self._rig.topic, body=body))
                except CongreveError:
                    await asyncio.sleep(0.1)
                else:
                    self.acknowledged.add(body)
                await asyncio.sleep(self._pause_s)

    async def more(self, count: int = 100) -> None:
        """Wait until so many more were acknowledged."""
        before = len(self.acknowledged)
        await eventually(lambda: len(self.acknowledged) >= before + count)

    async def all_came(self) -> None:
        self._ended.set()
        await eventually(lambda: self.acknowledged <= set(self.came))


async def test_restarts_hangs_and_kills_lose_no_message(brokers: TwoBrokers) -> None:
    traffic, group = Traffic(brokers), f"g-{uuid.uuid4().hex[:8]}"
    first, second = brokers.brokers
    async with brokers.consumer(traffic, group), brokers.consumer(traffic, group):
        sending = asyncio.create_task(traffic.send())
        await traffic.more()
        await asyncio.to_thread(first.kill)
        await traffic.more()
        await asyncio.to_thread(first.start)
        await traffic.more()
        await asyncio.to_thread(brokers.namesrv.kill)
        await traffic.more()
        await asyncio.to_thread(brokers.namesrv.start)
        assert second.process is not None
        second.process.send_signal(signal.SIGSTOP)
        await traffic.more(5)
        second.process.send_signal(signal.SIGCONT)
        await traffic.more()
        await asyncio.to_thread(second.stop)
        await asyncio.to_thread(second.start)
        await traffic.more()
        await traffic.all_came()
        await sending


@pytest.mark.crash
async def test_members_that_come_and_go_lose_nothing(
    brokers: TwoBrokers, kind: str, kill_rounds: int, campaign: Callable[[str, int], None]
) -> None:
    """Eight queues and a thousand members; a hundred with the reference, except in `make soak`."""
    traffic, group = Traffic(brokers), f"g-{uuid.uuid4().hex[:8]}"
    members: list[PushConsumer] = []
    chance = random.Random(7)
    sending = asyncio.create_task(traffic.send())
    joins = max(JOINS[kind], kill_rounds)
    for _ in range(joins):
        member = brokers.consumer(traffic, group)
        await member.start()
        members.append(member)
        while len(members) > 12 or (members and chance.random() < 0.4):
            await members.pop(chance.randrange(len(members))).stop()
    last = brokers.consumer(traffic, group)
    await last.start()
    await asyncio.gather(*(member.stop() for member in members))
    try:
        await eventually(lambda: sum(queue.topic == brokers.topic for queue in last.assigned) == 8)
    except TimeoutError:
        pytest.fail(f"has {last.assigned} of {await last.queues(brokers.topic)}")
    await traffic.all_came()
    await sending
    await last.stop()
    doubled = sum(count > 1 for count in traffic.came.values())
    campaign("consumers that joined and left", joins)
    campaign("messages acknowledged while they did", len(traffic.acknowledged))
    campaign("of these lost", len(traffic.acknowledged - set(traffic.came)))
    campaign("of these read more than once", doubled)
    assert doubled <= len(traffic.came) // 2, "queues were shared by several members"


async def test_orderly_members_keep_the_order_while_members_come_and_go(
    brokers: TwoBrokers,
) -> None:
    group = f"g-{uuid.uuid4().hex[:8]}"
    last: dict[tuple[str, int], int] = {}
    at_work: set[tuple[str, int]] = set()
    came: set[int] = set()
    wrong: list[str] = []

    async def listener(message: ReceivedMessage) -> None:
        queue = (message.queue.broker_name, message.queue_id)
        if queue in at_work:
            wrong.append(f"two at work on {queue}")
        at_work.add(queue)
        await asyncio.sleep(0)
        if message.queue_offset > last.get(queue, -1) + 1:
            wrong.append(f"{queue}: {message.queue_offset} after {last.get(queue, -1)}")
        last[queue] = message.queue_offset
        came.add(int(message.body))
        at_work.discard(queue)

    count = 600
    async with Producer(brokers.namesrv.address, group="orderly") as producer:
        for i in range(count):
            await producer.send(Message(topic=brokers.topic, body=b"%d" % i))
    one = brokers.consumer(listener, group, orderly=True)
    await one.start()
    async with brokers.consumer(listener, group, orderly=True):
        async with brokers.consumer(listener, group, orderly=True):
            await asyncio.sleep(1)
        await one.stop()
        await eventually(lambda: len(came) == count)
    assert wrong == []
