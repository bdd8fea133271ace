"""`lakeRetention`: segments are deleted once tables have their messages, which clients then read
from the tables."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest

import congreve
from congreve.client import Sql
from congreve.client.admin import AdminClient
from congreve.client.admin.lookup import MessageLookup
from congreve.client.consumer.consumer import SyncPullConsumer
from congreve.client.message import MessageQueue, PullStatus
from congreve.node import Node

from . import stores

MESSAGES = 600
SEGMENT = 64 << 10
EIGHTH = "eighth"
"""A key of some messages in the log, and of more than an answer has in log and table."""
SETTINGS = {
    "lakeTopics": stores.TOPIC,
    "lakeLagMillis": 1_000,
    "lakeRetention": "true",
    "lakeReservedTime": 0,
    "mappedFileSizeCommitLog": SEGMENT,
    "deleteCommitLogFilesInterval": 0,
    "defaultTopicQueueNums": 2,
    "enablePropertyFilter": "true",
    "flushDiskType": "ASYNC_FLUSH",
}


def send(node: Node, numbers: range) -> None:
    with node.producer("writers") as producer:
        for number in numbers:
            producer.send(
                congreve.Message(
                    topic=stores.TOPIC,
                    body=b"%d." % number * 99,
                    tags=f"Tag{number % 5}",
                    keys=f"key-{number} {EIGHTH if number % 8 == 0 else 'other'}",
                    properties={"n": str(number)},
                ),
                queue=MessageQueue(stores.TOPIC, node.broker.config.broker_name, number % 2),
            )


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A broker whose table has the first messages, and whose log has only the last ones."""
    root = tmp_path_factory.mktemp("beyond")
    with congreve.serve(root / "data", lakeWarehouse=str(root / "lake"), **SETTINGS) as node:
        send(node, range(MESSAGES))
        store, deadline = node.broker.store, time.monotonic() + 120
        while store.log.min_offset < 2 * SEGMENT:
            assert time.monotonic() < deadline, "no segment was removed"
            store.clean_expired()
            time.sleep(0.1)
        yield node


@pytest.fixture(scope="module")
def consumer(node: Node) -> Iterator[SyncPullConsumer]:
    with SyncPullConsumer(node.address, group="readers", timeout_s=60) as consumer:
        yield consumer


def read(consumer: SyncPullConsumer, queue: MessageQueue, expression: str | Sql = "*") -> list[int]:
    """The numbers of all messages of a queue."""
    offset, found = consumer.min_offset(queue), []
    while offset < consumer.max_offset(queue):
        pulled = consumer.pull(queue, offset, 32, expression=expression)
        assert pulled.status in (PullStatus.FOUND, PullStatus.NO_MATCHED_MSG), pulled
        assert pulled.next_offset > offset
        offset = pulled.next_offset
        found += [int(message.body.partition(b".")[0]) for message in pulled.messages]
    return found


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("*", lambda number: True),
        ("Tag1 || Tag3", lambda number: number % 5 in (1, 3)),
        (Sql("n < 300 AND n > 4"), lambda number: 4 < number < 300),
    ],
)
def test_a_topic_is_read_from_its_first_message_on(
    node: Node, consumer: SyncPullConsumer, expression: str | Sql, wanted: object
) -> None:
    assert callable(wanted)
    for queue in consumer.queues(stores.TOPIC):
        own = range(queue.queue_id, MESSAGES, 2)
        assert node.broker.store.min_offset(stores.TOPIC, queue.queue_id) > 0
        assert read(consumer, queue, expression) == [n for n in own if wanted(n)]


def test_messages_are_found_by_time(consumer: SyncPullConsumer) -> None:
    queue = consumer.queues(stores.TOPIC)[0]
    first, later = (consumer.pull(queue, offset, 1).messages[0] for offset in (0, 20))
    assert consumer.offset_at(queue, first.store_timestamp - 1) == 0
    at = consumer.offset_at(queue, later.store_timestamp)
    assert consumer.pull(queue, at, 1).messages[0].store_timestamp == later.store_timestamp


def test_messages_are_found_by_key_and_by_id(node: Node, consumer: SyncPullConsumer) -> None:
    first = consumer.pull(consumer.queues(stores.TOPIC)[0], 0, 1).messages[0]

    async def ask() -> None:
        async with AdminClient(node.address, timeout_s=60) as admin:
            lookup = MessageLookup(admin)
            for number in (0, 5, MESSAGES - 1):
                found = await lookup.by_key(stores.TOPIC, f"key-{number}")
                assert [one.record.body for one in found] == [b"%d." % number * 99]
            assert await lookup.by_key(stores.TOPIC, "key-none") == []
            eighth = [b"%d." % number * 99 for number in range(0, MESSAGES, 8)]
            in_log = sum(q.max - q.min for q in node.broker.store.queues.queues_of(stores.TOPIC))
            assert in_log < 8 * 64 < MESSAGES
            found = await lookup.by_key(stores.TOPIC, EIGHTH)
            assert [one.record.body for one in found] == eighth[-64:]
            named = await lookup.by_key(stores.TOPIC, first.message_id, unique=True)
            by_id = await lookup.by_offset_id(first.offset_message_id)
            assert by_id is not None
            assert [by_id.record.body] == [one.record.body for one in named] == [first.body]

    asyncio.run(ask())
