"""The Python clients while one of two brokers refuses everything or hangs; the other is a real one.

The failing broker is registered at the name server like any other, so half of all messages and
queues belong to it.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from harness import servers
from harness.eventually import eventually

from congreve.client import (
    AdminClient,
    ConsumeFrom,
    ConsumerSettings,
    Message,
    Producer,
    PushConsumer,
    ReceivedMessage,
    SyncProducer,
)
from congreve.client.errors import SendTimeoutError
from congreve.namesrv.routes import BrokerIdentity
from congreve.namesrv.server import NameServer
from congreve.remoting.messages.bodies import DataVersion, TopicConfig, TopicConfigSerializeWrapper
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.transport.connection import Connection
from congreve.remoting.transport.server import RemotingServer, ServerLimits

KINDS = ("congreve", "java")
RETRYABLE = (1, 14, 16, 17, 204, 205)
PULL_REFUSALS = (1, 2, 14, 16, 24, 25, 26)
SEND, PULL, QUERY_OFFSET = 310, 11, 14
QUICK = ConsumerSettings(pause_after_error_s=0.05, rebalance_s=0.5, commit_s=0.3)


class FailingBroker:
    """Refuses sends and pulls with `code`, and offsets if chosen; None: it does not answer."""

    def __init__(self) -> None:
        self.code: int | None = 0
        self.gives_offsets = True
        self.asked: Counter[int] = Counter()
        self.server = RemotingServer(
            dict.fromkeys(range(400), self._serve), limits=ServerLimits(stop_s=0.1)
        )

    def _serve(self, request: RemotingCommand, connection: Connection) -> RemotingCommand | None:
        self.asked[request.code] += 1
        if self.code is None:
            return None
        if request.code == QUERY_OFFSET:
            return request.reply(22 if self.gives_offsets else 1, "failing")
        if request.code not in (SEND, PULL):
            return request.reply(0)
        return request.reply(self.code, "failing")


class Brokers:
    """A name server, a real broker and a failing one, with two queues of the topic on each."""

    def __init__(self, namesrv: NameServer, failing: FailingBroker, topic: str) -> None:
        self.namesrv = namesrv.address
        self.failing = failing
        self.topic = topic

    async def read(self, expected: int) -> Counter[bytes]:
        """Everything that a new group reads, once it has so many different bodies."""
        came: Counter[bytes] = Counter()

        async def listener(message: ReceivedMessage) -> None:
            came[message.body] += 1

        async with PushConsumer(
            self.namesrv,
            group=f"g-{uuid.uuid4().hex[:8]}",
            topics={self.topic: "*"},
            listener=listener,
            consume_from=ConsumeFrom.FIRST_OFFSET,
            settings=QUICK,
            timeout_s=0.4,
        ):
            await eventually(lambda: len(came) >= expected)
        return came


@asynccontextmanager
async def brokers(kind: str, folder: Path) -> AsyncIterator[Brokers]:
    topic, failing = f"failing-{uuid.uuid4().hex[:8]}", FailingBroker()
    async with NameServer(port=0) as namesrv:
        broker = servers.broker(kind, folder, namesrv.address)
        await asyncio.to_thread(broker.start)
        await failing.server.start()
        try:
            async with AdminClient(namesrv.address) as admin:
                await admin.create_topic(topic, queues=2, cluster=servers.CLUSTER)
            config = TopicConfig(topic_name=topic, read_queue_nums=2, write_queue_nums=2, perm=6)
            namesrv.routes.register(
                BrokerIdentity("FailingBroker", "failing", 0, f"127.0.0.1:{failing.server.port}"),
                TopicConfigSerializeWrapper(
                    topic_config_table={topic: config}, data_version=DataVersion(counter=1)
                ),
                [],
                "failing",
            )
            yield Brokers(namesrv, failing, topic)
        finally:
            await failing.server.stop()
            await asyncio.to_thread(broker.kill)


@pytest.mark.parametrize("broker_kind", KINDS)
async def test_a_message_that_one_broker_refuses_reaches_the_other_once(
    broker_kind: str, tmp_path: Path
) -> None:
    async with brokers(broker_kind, tmp_path) as here:
        bodies = [b"%d|%d" % (code, i) for code in RETRYABLE for i in range(8)]
        async with Producer(here.namesrv, group="pg") as producer:
            for code in RETRYABLE:
                here.failing.code = code
                for i in range(4):
                    sent = await producer.send(Message(topic=here.topic, body=b"%d|%d" % (code, i)))
                    assert sent.queue.broker_name == "broker-a"

        def send_from_a_thread() -> None:
            with SyncProducer(here.namesrv, group="pg") as producer:
                for code in RETRYABLE:
                    here.failing.code = code
                    for i in range(4, 8):
                        producer.send(Message(topic=here.topic, body=b"%d|%d" % (code, i)))

        await asyncio.to_thread(send_from_a_thread)
        assert here.failing.asked[SEND] >= 2 * len(RETRYABLE)
        here.failing.gives_offsets = False
        assert await here.read(len(bodies)) == Counter(bodies)


@pytest.mark.parametrize("broker_kind", KINDS)
async def test_a_hanging_broker_delays_neither_senders_nor_readers(
    broker_kind: str, tmp_path: Path
) -> None:
    async with brokers(broker_kind, tmp_path) as here:
        here.failing.code = None
        stored: Counter[bytes] = Counter()
        settings = {"group": "pg", "latency_faults": True, "send_timeout_s": 0.5}
        async with Producer(here.namesrv, **settings) as producer:
            late = 0
            for i in range(40):
                try:
                    await producer.send(Message(topic=here.topic, body=b"%d" % i))
                except SendTimeoutError:
                    late += 1
                else:
                    stored[b"%d" % i] += 1

        assert late == 1
        assert await here.read(len(stored)) == stored


@pytest.mark.parametrize("broker_kind", KINDS)
async def test_the_consumer_repeats_a_pull_after_each_kind_of_refusal(
    broker_kind: str, tmp_path: Path
) -> None:
    async with brokers(broker_kind, tmp_path) as here:
        here.failing.code = 14
        came: Counter[bytes] = Counter()

        async def listener(message: ReceivedMessage) -> None:
            came[message.body] += 1

        async with (
            Producer(here.namesrv, group="pg") as producer,
            PushConsumer(
                here.namesrv,
                group=f"g-{uuid.uuid4().hex[:8]}",
                topics={here.topic: "*"},
                listener=listener,
                consume_from=ConsumeFrom.FIRST_OFFSET,
                settings=QUICK,
                timeout_s=1.0,
            ) as consumer,
        ):
            await eventually(lambda: sum(q.topic == here.topic for q in consumer.assigned) == 4)
            for code in PULL_REFUSALS:
                here.failing.code = code
                before = here.failing.asked[PULL]
                await eventually(lambda before=before: here.failing.asked[PULL] >= before + 3)
                here.failing.code = 14
                await producer.send(Message(topic=here.topic, body=b"%d" % code))
            await eventually(lambda: len(came) == len(PULL_REFUSALS))
        assert came == Counter(b"%d" % code for code in PULL_REFUSALS)
