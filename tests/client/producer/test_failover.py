"""Sends to a group that has no master for a while."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from harness.fake_cluster import FakeCluster, stored

from congreve.client import Message, MessageQueue, Producer, SendResult, SyncProducer, by_key
from congreve.client.errors import RouteNotFoundError, SendTimeoutError
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.transport.connection import Connection
from tests.client.lookups import record_lookups

SEND, SEND_BATCH = 310, 320


@asynccontextmanager
async def masterless(topic: str = "T") -> AsyncIterator[FakeCluster]:
    """A group whose master has become a slave: it has the topic, but no writable queue."""
    async with FakeCluster("a", topics=(topic,)) as cluster:
        cluster.brokers["a"].answers |= {SEND: stored, SEND_BATCH: stored}
        cluster.register("a", topic, broker_id=1)
        yield cluster


async def elect(cluster: FakeCluster, producer: Producer, topic: str, master_of: str = "") -> None:
    """Register a master once the producer has a route to `topic` without one."""
    assert await producer.queues(topic) == []
    cluster.register("a", master_of or topic)


@pytest.mark.parametrize("way", ["send", "queue", "selector", "oneway", "batch", "many"])
async def test_a_send_waits_for_a_master(way: str) -> None:
    message = Message(topic="T", body=b"x")
    queue = MessageQueue(topic="T", broker_name="a", queue_id=0)
    async with (
        masterless() as cluster,
        Producer(cluster.address, group="pg", send_timeout_s=60) as producer,
    ):
        waiting = asyncio.create_task(
            {
                "send": lambda: producer.send(message),
                "queue": lambda: producer.send(message, queue=queue),
                "selector": lambda: producer.send(message, selector=by_key("k")),
                "oneway": lambda: producer.send_oneway(message),
                "batch": lambda: producer.send_batch([message]),
                "many": lambda: producer.send_many("T", [b"x"]),
            }[way]()
        )
        await elect(cluster, producer, "T")
        await waiting
        while not cluster.brokers["a"].asked(SEND, SEND_BATCH):
            await asyncio.sleep(0.001)
        assert len(cluster.brokers["a"].asked(SEND, SEND_BATCH)) == 1


async def test_waiting_sends_share_the_lookups() -> None:
    async with (
        masterless() as cluster,
        Producer(cluster.address, group="pg", send_timeout_s=60) as producer,
    ):
        asked = record_lookups(producer.routes)
        waiting = [producer.send_soon(Message(topic="T", body=b"x")) for _ in range(100)]
        await elect(cluster, producer, "T")
        await asyncio.gather(*waiting)
    assert len(asked) <= 10


async def test_a_send_waits_for_a_master_that_creates_its_topic() -> None:
    async with (
        masterless("TBW102") as cluster,
        Producer(cluster.address, group="pg", send_timeout_s=60) as producer,
    ):
        waiting = producer.send_soon(Message(topic="new", body=b"x"))
        await elect(cluster, producer, "new", "TBW102")
        assert (await waiting).queue.topic == "new"


async def test_a_sync_send_waits_for_a_master_in_its_own_thread() -> None:
    def work(cluster: FakeCluster) -> SendResult:
        with SyncProducer(cluster.address, group="pg", send_timeout_s=60) as producer:
            with pytest.raises(RouteNotFoundError, match="had no writable queue until"):
                producer.send(Message(topic="T", body=b"x"), timeout_s=0.05)
            with pytest.raises(RouteNotFoundError, match="had no writable queue until"):
                producer.send(Message(topic="T", body=b"x"), timeout_s=0.05)
            loop.call_soon_threadsafe(cluster.register, "a", "T")
            return producer.send(Message(topic="T", body=b"x"))

    loop = asyncio.get_running_loop()
    async with masterless() as cluster:
        assert (await asyncio.to_thread(work, cluster)).queue_offset == 7


async def test_a_retry_that_finds_no_master_may_have_stored_the_message() -> None:
    async with FakeCluster("a") as cluster, Producer(cluster.address, group="pg") as producer:

        async def lose(request: RemotingCommand, _: Connection) -> RemotingCommand:
            cluster.register("a", "T", broker_id=1)
            await producer.routes.refresh()
            return request.reply(14, "not the master any more")

        cluster.brokers["a"].handlers[SEND] = lose
        with pytest.raises(SendTimeoutError, match="may be stored"):
            await producer.send(Message(topic="T", body=b"x"), timeout_s=0.1)
