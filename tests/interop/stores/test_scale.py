"""Many groups, connections and held pulls."""

from __future__ import annotations

import json
import resource
import uuid
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from harness.cluster import Cluster
from harness.drivers import Driver
from harness.wire import (
    HEART_BEAT,
    PULL_MESSAGE,
    SEND_MESSAGE_V2,
    Wire,
    heartbeat,
    pull_fields,
    send_fields,
)
from sidebyside.process import memory
from sidebyside.waiting import HeldPulls, idle_connections

from congreve.remoting.messages.codes import RequestCode

GROUPS = 1_000
ACTIVE = 500
IDLE = 10_000
HELD = 10_000
QUEUES = 1_250
HELD_MIB = 50
FILES = IDLE + 2 * ACTIVE
# libuv takes the ends of ten thousand connections in one turn, some 5 us each.
WATCHDOG_MILLIS = 200


def test_a_thousand_groups_on_five_hundred_connections_keep_their_offsets(
    fragile: Cluster, java: Driver
) -> None:
    topic = f"many-{uuid.uuid4().hex[:8]}"
    fragile.create_topic(java, topic, queues=4)
    with Wire(fragile.broker.address) as wire:
        assert wire.call(SEND_MESSAGE_V2, send_fields(topic, 0, {}), b"0|").code == 0
    names = [f"{topic}-{number}" for number in range(GROUPS)]
    with ExitStack() as stack:
        wires = [stack.enter_context(Wire(fragile.broker.address)) for _ in range(ACTIVE)]
        for number, wire in enumerate(wires):
            mine = names[number::ACTIVE]
            assert wire.call(HEART_BEAT, {}, heartbeat(topic, *mine)).code == 0
        for number, name in enumerate(names):
            wire = wires[number % ACTIVE]
            # Ask for the group of the heartbeat, and commit an offset.
            own = {"consumerGroup": name, "commitOffset": str(number)}
            own |= {"sysFlag": "1", "subVersion": "1"}
            answer = wire.call(PULL_MESSAGE, pull_fields(topic, 0, 0, 32) | own)
            assert answer.code == 0, answer.remark
        listed = wires[0].call(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": topic}).body
        assert set(json.loads(listed)["groupList"]) == set(names)
    assert fragile.broker.stop() in (0, 143)
    fragile.broker.start()
    with Wire(fragile.broker.address) as wire:
        for number, name in enumerate(names):
            asked = {"consumerGroup": name, "topic": topic, "queueId": "0"}
            answer = wire.call(RequestCode.QUERY_CONSUMER_OFFSET, asked)
            assert answer.fields["offset"] == str(number)


@pytest.fixture
def many_files() -> Iterator[None]:
    """As many open files as this process may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < FILES:
        pytest.skip(f"this process may open {hard} files, not {FILES}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_files")
def test_a_message_wakes_only_its_own_pull_among_ten_thousand_waiting_ones(
    kind: str, fragile: Cluster, java: Driver
) -> None:
    topic = f"held-{uuid.uuid4().hex[:8]}"
    fragile.create_topic(java, topic, queues=QUEUES)
    address = fragile.broker.address
    assert fragile.broker.process is not None
    with idle_connections(address, IDLE), Wire(address) as sender:
        free = memory(fragile.broker.process.pid)
        with HeldPulls(address, topic, QUEUES, HELD) as held:
            for queue in (0, 1, QUEUES - 1):
                assert len(held.wake(sender, queue)) == HELD // QUEUES
            full = memory(fragile.broker.process.pid)
    if kind == "congreve":
        assert full.anonymous - free.anonymous < HELD_MIB
