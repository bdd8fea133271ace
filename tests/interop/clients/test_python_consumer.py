"""The Python consumers with those of Java and Go, with mqadmin, and with brokers that restart."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from harness.cluster import Cluster
from harness.drivers import Driver
from harness.eventually import eventually
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from congreve.base.errors import CongreveError
from congreve.client import (
    ConsumeFrom,
    ConsumerSettings,
    LitePullConsumer,
    Message,
    MessageModel,
    MessageQueue,
    Producer,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
)
from congreve.client.consumer.offset_store import LocalOffsetStore
from congreve.client.consumer.rebalance import (
    Strategy,
    averagely,
    by_circle,
    by_machine_room,
    consistent_hash,
    machine_room_nearby,
    share_of,
)

KINDS = ("congreve", "java")
EVENTUALLY_S = 90
QUICK = ConsumerSettings(pause_after_error_s=0.2, rebalance_s=2.0, commit_s=0.5, stop_wait_s=2.0)

STRATEGIES: dict[str, Strategy] = {
    "AVG": averagely,
    "AVG_BY_CIRCLE": by_circle,
    "CONSISTENT_HASH": consistent_hash(3),
    "MACHINE_ROOM": by_machine_room({"r1", "r3"}),
    "MACHINE_ROOM_NEARBY": machine_room_nearby(
        averagely,
        lambda queue: queue.broker_name.split("@")[0],
        lambda client_id: client_id.split("-")[0],
    ),
}


def new_group() -> str:
    return f"python-{uuid.uuid4().hex[:8]}"


class Counted:
    """A listener that counts bodies."""

    def __init__(self) -> None:
        self.bodies: Counter[bytes] = Counter()

    async def __call__(self, message: ReceivedMessage) -> None:
        self.bodies[message.body.partition(b"|")[0]] += 1


async def send(
    namesrv: str, topic: str, numbers: range, *, retry: bool = False, pause_s: float = 0.0
) -> None:
    """Send bodies ``number|``; with `retry` each is repeated until it is acknowledged."""
    async with Producer(namesrv, group=new_group()) as producer:
        for number in numbers:
            while True:
                try:
                    await producer.send(Message(topic=topic, body=b"%d|" % number))
                    break
                except CongreveError:
                    if not retry:
                        raise
                    await asyncio.sleep(0.1)
            if pause_s:
                await asyncio.sleep(pause_s)


@given(data=st.data())
@hypothesis_settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.parametrize("name", STRATEGIES)
def test_the_allocation_of_queues_equals_that_of_the_java_client(
    java: Driver, name: str, data: st.DataObject
) -> None:
    brokers = data.draw(st.lists(st.sampled_from(["r1@a", "r2@a", "r3@b", "r1@c"]), unique=True))
    queues = [
        MessageQueue(topic="T", broker_name=broker, queue_id=i)
        for broker in sorted(brokers)
        for i in range(data.draw(st.integers(1, 9)))
    ]
    client = st.tuples(st.sampled_from(["r1", "r2"]), st.text("ab1@#.", max_size=6))
    clients = sorted({"-".join(pair) for pair in data.draw(st.lists(client, min_size=1))})
    if not queues:
        return
    answer = java.call(
        "allocate",
        strategy=name,
        nodes=3,
        rooms=["r1", "r3"],
        clients=clients,
        queues=[[queue.topic, queue.broker_name, queue.queue_id] for queue in queues],
    )
    for each, share in zip(clients, answer["shares"], strict=True):
        ours = share_of(STRATEGIES[name], each, queues, clients)
        assert [[queue.topic, queue.broker_name, queue.queue_id] for queue in ours] == share


async def test_java_and_go_and_python_share_one_group(
    cluster: Cluster, java: Driver, go: Driver, topic: str
) -> None:
    namesrv, group, counted = cluster.namesrv.address, new_group(), Counted()
    for driver in (java, go):
        common = {"id": group, "namesrv": namesrv, "group": group, "topic": topic}
        await asyncio.to_thread(driver.call, "consumerStart", instances=1, **common)
    common = {"group": group, "topics": {topic: "*"}, "settings": QUICK}
    from_first: dict[str, Any] = {**common, "consume_from": ConsumeFrom.FIRST_OFFSET}
    async with PushConsumer(namesrv, listener=counted, **from_first) as python:

        async def shared() -> bool:
            answer = await asyncio.to_thread(java.call, "consumerAssignment", id=group, topic=topic)
            (held,) = answer["instances"]
            ours = {queue.queue_id for queue in python.assigned if queue.topic == topic}
            return bool(held and ours) and not ours & set(held) and len(ours) + len(held) < 4

        # The Go client does not report its queues: it has the rest once the others are stable.
        rested = 0
        async with asyncio.timeout(EVENTUALLY_S):
            while rested < 20:
                rested = rested + 1 if await shared() else 0
                await asyncio.sleep(0.1)
        await send(namesrv, topic, range(300))

        async def all_are_there() -> bool:
            return await asyncio.to_thread(taken_elsewhere) + len(counted.bodies) >= 300

        def taken_elsewhere() -> int:
            asked = [
                driver.call("consumerWait", id=group, expected=0, quietMs=0, timeoutMs=50)
                for driver in (java, go)
            ]
            return sum(int(each["distinct"]) for each in asked)

        await eventually(all_are_there)
        await asyncio.sleep(0.5)
        # Before a member leaves: a queue that changes its member may deliver a message twice.
        totals = [await asyncio.to_thread(taken_elsewhere), counted.bodies.total()]
    reports = [driver.call("consumerStop", id=group) for driver in (java, go)]
    assert all(int(each["total"]) for each in reports), reports
    assert sum(totals) == 300, totals


async def test_members_of_three_languages_come_and_go_and_lose_nothing(
    cluster: Cluster, java: Driver, go: Driver, topic: str
) -> None:
    namesrv, group, counted, count = cluster.namesrv.address, new_group(), Counted(), 1500
    seen: set[bytes] = set()
    total = 0

    async def join(driver: Driver, name: str) -> None:
        common = {"namesrv": namesrv, "group": group, "topic": topic}
        await asyncio.to_thread(driver.call, "consumerStart", id=name, instances=1, **common)

    async def leave(driver: Driver, name: str) -> None:
        nonlocal total
        report = await asyncio.to_thread(driver.call, "consumerStop", id=name)
        seen.update(number.encode() for number in report["seen"])
        total += int(report["total"])

    def python() -> PushConsumer:
        return PushConsumer(
            namesrv,
            group=group,
            topics={topic: "*"},
            listener=counted,
            consume_from=ConsumeFrom.FIRST_OFFSET,
            settings=QUICK,
        )

    first, second, name = python(), python(), new_group()
    await first.start()
    sending = asyncio.create_task(send(namesrv, topic, range(count), pause_s=0.002))
    await join(java, name)
    await join(go, name)
    await second.start()
    await asyncio.sleep(1)
    await leave(java, name)
    await first.stop()
    await join(java, name + "-2")
    await asyncio.sleep(0.5)
    await leave(go, name)
    await sending
    await leave(java, name + "-2")
    numbers = {b"%d" % number for number in range(count)}
    await eventually(lambda: numbers <= seen | set(counted.bodies))
    await second.stop()
    total += counted.bodies.total()
    assert numbers == seen | set(counted.bodies)
    assert total < 2 * count, "queues were read by several members for long"


async def test_consistent_hash_agrees_with_java_members(
    cluster: Cluster, java: Driver, topic: str
) -> None:
    namesrv, group = cluster.namesrv.address, new_group()
    common = {"id": group, "namesrv": namesrv, "group": group, "topic": topic}
    await asyncio.to_thread(java.call, "consumerStart", instances=2, hash=True, **common)
    try:
        async with PushConsumer(
            namesrv, group=group, topics={topic: "*"}, strategy=consistent_hash(), settings=QUICK
        ) as python:

            async def shared() -> bool:
                answer = await asyncio.to_thread(java.call, "consumerAssignment", **common)
                held = [queue.queue_id for queue in python.assigned if queue.topic == topic]
                for queues in answer["instances"]:
                    held += queues
                return sorted(held) == [0, 1, 2, 3]

            await eventually(shared)
            await asyncio.sleep(1)
            assert await shared()
    finally:
        java.call("consumerStop", id=group)


async def test_offsets_of_a_broadcasting_client_are_read_by_the_other_client(
    cluster: Cluster, java: Driver, topic: str
) -> None:
    group, queues = new_group(), [["T", "b", 0], ["T", "b", 1]]
    common = {"namesrv": cluster.namesrv.address, "group": group, "instance": group}
    first = java.call("localOffsets", queues=queues, offsets=[7, 1 << 40], **common)
    ours = [MessageQueue(topic=t, broker_name=b, queue_id=q) for t, b, q in queues]
    store = LocalOffsetStore(Path(first["folder"]), first["clientId"], group)
    assert [await store.read(queue) for queue in ours] == [7, 1 << 40]
    await store.write({ours[0]: 8})
    again = java.call("localOffsets", queues=queues, **common)
    assert again["read"] == [8, 1 << 40]


async def test_broadcasting_members_get_all_messages_and_continue_after_a_restart(
    cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    namesrv, group = cluster.namesrv.address, new_group()
    common: dict[str, Any] = {
        "group": group,
        "topics": {topic: "*"},
        "model": MessageModel.BROADCASTING,
        "consume_from": ConsumeFrom.FIRST_OFFSET,
        "local_offsets": tmp_path,
    }
    seen = [Counted() for _ in range(3)]
    async with (
        PushConsumer(namesrv, listener=seen[0], instance_name="one", **common),
        PushConsumer(namesrv, listener=seen[1], instance_name="two", **common),
    ):
        await send(namesrv, topic, range(40))
        await eventually(lambda: all(len(each.bodies) == 40 for each in seen[:2]))
    await send(namesrv, topic, range(40, 50))
    async with PushConsumer(namesrv, listener=seen[2], instance_name="one", **common):
        await eventually(lambda: len(seen[2].bodies) == 10)
    assert sorted(map(int, seen[2].bodies)) == list(range(40, 50))


async def test_a_failing_message_is_redelivered_and_becomes_a_dead_letter(
    cluster: Cluster, topic: str
) -> None:
    namesrv, group = cluster.namesrv.address, new_group()
    times: list[tuple[str, int]] = []

    async def listener(message: ReceivedMessage) -> None:
        times.append((message.topic, message.reconsume_times))
        raise RuntimeError("work failed")

    settings = ConsumerSettings(max_reconsume_times=1, rebalance_s=0.5)
    async with PushConsumer(
        namesrv,
        group=group,
        topics={topic: "*"},
        listener=listener,
        settings=settings,
        consume_from=ConsumeFrom.FIRST_OFFSET,
    ):
        await send(namesrv, topic, range(1))
        await eventually(lambda: len(times) == 2)
        assert times == [(topic, 0), (topic, 1)]
        dead = f"%DLQ%{group}"
        async with PullConsumer(namesrv, group=new_group()) as puller:

            async def is_dead() -> bool:
                try:
                    (queue,) = await puller.queues(dead)
                except CongreveError:
                    return False
                return await puller.max_offset(queue) == 1

            await eventually(is_dead)
    assert len(times) == 2


async def test_mqadmin_shows_resets_and_tests_a_python_consumer(
    cluster: Cluster, java: Driver, topic: str
) -> None:
    namesrv, group, counted = cluster.namesrv.address, new_group(), Counted()
    async with PushConsumer(
        namesrv,
        group=group,
        topics={topic: "*"},
        listener=counted,
        consume_from=ConsumeFrom.FIRST_OFFSET,
        settings=QUICK,
    ) as consumer:
        await send(namesrv, topic, range(20))
        await eventually(lambda: len(counted.bodies) == 20)

        async def all_is_committed() -> bool:
            await consumer.commit_all()
            queues = [queue for queue in consumer.assigned if queue.topic == topic]
            return sum([await consumer.committed(queue) or 0 for queue in queues]) == 20

        # The reference resets only groups that have an offset in every queue.
        await eventually(all_is_committed)

        async def mqadmin(*args: str) -> str:
            return await asyncio.to_thread(java.mqadmin, *args, "-n", namesrv, "-g", group)

        status = await mqadmin("consumerStatus", "-i", consumer.client_id)
        assert f"{topic}" in status
        assert "#Consumer RT&TPS#" in status
        assert consumer.client_id in await mqadmin("consumerConnection")
        before = counted.bodies.total()
        out = await mqadmin("resetOffsetByTime", "-t", topic, "-s", "0")
        assert topic not in out or "error" not in out.lower(), out
        await eventually(lambda: counted.bodies.total() == before + 20)
        assert set(counted.bodies.values()) == {2}


async def test_lite_pull_consumers_of_one_group_lose_no_message(
    cluster: Cluster, topic: str
) -> None:
    namesrv, group, got = cluster.namesrv.address, new_group(), Counter[bytes]()
    common: dict[str, Any] = {
        "group": group,
        "topics": {topic: "*"},
        "consume_from": ConsumeFrom.FIRST_OFFSET,
    }
    async with LitePullConsumer(namesrv, **common) as one:
        await send(namesrv, topic, range(100))
        async with LitePullConsumer(namesrv, **common) as two:
            deadline = time.monotonic() + EVENTUALLY_S
            while len(got) < 100 and time.monotonic() < deadline:
                for each in (one, two):
                    got.update(message.body for message in await each.poll(timeout_s=0.1))
    assert len(got) == 100
