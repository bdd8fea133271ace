"""The Java client reads a topic whose first messages are in a table only (`lakeRetention`)."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Iterator

import pytest
from harness.drivers import Driver, Json

pytest.importorskip("pyiceberg")

import congreve
from congreve.client.admin import AdminClient
from congreve.node import Node

MESSAGES = 2_000
QUEUES = 4
SEGMENT = 128 << 10
TOPIC = "beyond"
SETTINGS = {
    "lakeTopics": TOPIC,
    "lakeLagMillis": 1_000,
    "lakeRetention": "true",
    "lakeReservedTime": 0,
    "mappedFileSizeCommitLog": SEGMENT,
    "deleteCommitLogFilesInterval": 0,
    "flushDiskType": "ASYNC_FLUSH",
}
TIMEOUT_MS = 120_000


@pytest.fixture(scope="module")
def node(java: Driver, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A broker whose log has only the last messages of each queue; the table has the others."""
    root = tmp_path_factory.mktemp("beyond")
    with congreve.serve(root / "data", lakeWarehouse=str(root / "lake"), **SETTINGS) as node:

        async def create_topic() -> None:
            async with AdminClient(node.address) as admin:
                await admin.create_topic(TOPIC, queues=QUEUES)

        asyncio.run(create_topic())
        load = {"topic": TOPIC, "mode": "ordered", "lanes": QUEUES, "size": 128}
        sent = java.call("load", namesrv=node.address, count=MESSAGES, **load)
        assert sent["ok"] == MESSAGES, sent
        store, deadline = node.broker.store, time.monotonic() + 120
        while store.log.min_offset < 2 * SEGMENT:
            assert time.monotonic() < deadline, "no segment was removed"
            store.clean_expired()
            time.sleep(0.1)
        for queue_id in range(QUEUES):
            low, high = store.min_offset(TOPIC, queue_id), store.max_offset(TOPIC, queue_id)
            assert 0 < low < high == MESSAGES // QUEUES
        yield node


def test_a_push_consumer_gets_every_message_once_in_the_order_of_its_queue(
    java: Driver, node: Node
) -> None:
    group = f"group-{uuid.uuid4().hex[:8]}"
    where: Json = {"namesrv": node.address, "topic": TOPIC, "group": group}
    java.call("consumerStart", id=group, instances=1, orderly=True, **where)
    seen = java.call("consumerWait", id=group, expected=MESSAGES, timeoutMs=TIMEOUT_MS, quietMs=300)
    java.call("consumerStop", id=group)
    assert (seen["distinct"], seen["total"], seen["outOfOrder"]) == (MESSAGES, MESSAGES, 0), seen


def test_a_lite_pull_consumer_seeks_the_first_message_and_reads_all(
    java: Driver, node: Node
) -> None:
    group = f"group-{uuid.uuid4().hex[:8]}"
    where: Json = {"namesrv": node.address, "topic": TOPIC, "group": group}
    java.call("litePullStart", id=group, assign=True, **where)
    seen = java.call("litePullPoll", id=group, expected=MESSAGES, timeoutMs=TIMEOUT_MS)["seen"]
    java.call("litePullStop", id=group)
    assert seen == [*range(MESSAGES)]
