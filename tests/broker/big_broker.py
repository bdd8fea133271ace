"""A big broker: 10,000 topics of 8 queues, 1,000 groups with offsets, one of 1,000 members."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from congreve.broker.broker import Broker
from congreve.broker.group.clients import ClientChannel
from congreve.engine.config import StoreConfig
from congreve.remoting.messages.admin_bodies import SubscriptionData
from congreve.remoting.messages.bodies import ConsumerData, SubscriptionGroupConfig, TopicConfig
from congreve.remoting.messages.command import RemotingCommand

from .tool import local_config

TOPICS, QUEUES, GROUPS, MEMBERS = 10_000, 8, 1_000, 1_000
TOPICS_OF_GROUP = 10

T = TypeVar("T")


class Member:
    """The connection of a client that answers at once."""

    closed = False
    reading_paused = False
    is_writable = True
    speaks_http2 = False

    def __init__(self, port: int) -> None:
        self.peer = ("127.0.0.1", port)

    def send(self, command: RemotingCommand) -> None:
        command.encode()

    def oneway(self, command: RemotingCommand) -> None:
        command.encode()

    def write(self, data: bytes) -> None:
        pass

    def tell_lane(self, kind: int, data: bytes) -> None:
        pass

    async def until_read(self) -> None:
        pass

    async def invoke(self, command: RemotingCommand, timeout_s: float) -> RemotingCommand:
        return command.reply(0, body=b"{}")

    def close(self) -> None:
        self.closed = True


def fill(broker: Broker) -> None:
    """The state of a broker in a big cluster, written into the tables without requests."""
    managers = broker.managers
    for number in range(TOPICS):
        managers.metadata.topics._set(
            TopicConfig(topic_name=f"T-{number}", read_queue_nums=QUEUES, write_queue_nums=QUEUES)
        )
        for queue_id in range(QUEUES):
            broker.store.queues.get(f"T-{number}", queue_id)
    managers.metadata.topics._set(
        TopicConfig(topic_name="Wide", read_queue_nums=4_096, write_queue_nums=4_096)
    )
    for number in range(GROUPS):
        group = f"G-{number}"
        managers.metadata.groups._set(SubscriptionGroupConfig(group_name=group))
        topics = range(1_000) if number == 0 else range(number, number + TOPICS_OF_GROUP)
        for topic in topics:
            for queue_id in range(QUEUES):
                managers.metadata.offsets.commit(group, f"T-{topic}", queue_id, 0)
        managers.metadata.offsets.commit(group, "T-50", 0, 0)
    managers.metadata.topics.version_changed()
    data = ConsumerData(
        group_name="G-0",
        consume_type="CONSUME_PASSIVELY",
        message_model="CLUSTERING",
        consume_from_where="CONSUME_FROM_LAST_OFFSET",
        subscription_data_set=[SubscriptionData(topic="T-50", sub_string="*")],
    )
    for number in range(MEMBERS):
        client = ClientChannel(Member(number), f"c-{number}", "JAVA", 401)
        managers.members.ids.hear(client)
        managers.members.consumers.register(data, client, notify=False)
        managers.members.producers.register("P-0", client)


@asynccontextmanager
async def started(root: Path) -> AsyncIterator[Broker]:
    config = local_config(
        broker_name="b",
        enable_property_filter=True,
        store=StoreConfig(
            root_dir=str(root),
            flush_disk_type="ASYNC_FLUSH",
            mapped_file_size_commit_log=16 << 20,
            max_hash_slot_num=1000,
            max_index_num=4000,
        ),
    )
    async with Broker(config) as broker:
        fill(broker)
        await broker.managers.metadata.topics.file.finish()
        yield broker


class BigBroker:
    """A broker that runs only while run() runs."""

    def __init__(self, runner: asyncio.Runner, broker: Broker) -> None:
        self._runner = runner
        self.broker = broker

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the broker's event loop; returns its result."""
        return self._runner.run(work)


@contextmanager
def big_broker(root: Path) -> Iterator[BigBroker]:
    """No garbage is collected meanwhile: a pause of the collector must not count for a request."""
    with asyncio.Runner() as runner:
        broker = started(root)
        big = BigBroker(runner, runner.run(broker.__aenter__()))
        gc.collect()
        gc.disable()
        try:
            yield big
        finally:
            gc.enable()
            runner.run(broker.__aexit__(None, None, None))
    del big, broker
    gc.collect()  # so that the next test does not collect this one's objects
