"""Members of RocketMQ 5's Java client that pop, also beside members that pull."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from harness.cluster import Cluster
from harness.drivers import Driver

from congreve.client import Message, Producer, ReceivedMessage, ShareConsumer

COUNT = 200
LIMIT_S = 90.0


@pytest.fixture
def group() -> str:
    return f"pop-{uuid.uuid4().hex[:12]}"


class Members:
    """Java members of one group."""

    def __init__(self, cluster: Cluster, java5: Driver, topic: str, group: str) -> None:
        self._cluster = cluster
        self._java5 = java5
        self._topic = topic
        self._group = group
        self.ids: list[str] = []

    def mode(self, mode: str, share: int = 0) -> None:
        """Let the members pop or pull."""
        out = self._java5.mqadmin(
            *("setConsumeMode", "-n", self._cluster.namesrv.address),
            *("-b", self._cluster.broker.address, "-t", self._topic, "-g", self._group),
            *("-m", mode, "-q", str(share)),
        )
        assert "set consume mode to" in out and "success" in out, out

    def start(self, *, pop: bool, **options: object) -> str:
        """Start a member whose queues the broker chooses with `pop`, else the member."""
        self.ids.append(f"{self._group}-{len(self.ids)}")
        self._java5.call(
            "memberStart",
            id=self.ids[-1],
            namesrv=self._cluster.namesrv.address,
            group=self._group,
            topic=self._topic,
            pop=pop,
            **{"tags": "*", **options},
        )
        return self.ids[-1]

    def seen(self, member: str | None = None) -> list[dict[str, Any]]:
        """What a member's listener got, or the listeners of all."""
        members = self.ids if member is None else [member]
        return [each for one in members for each in self._java5.call("memberSeen", id=one)["seen"]]

    def bodies(self, member: str | None = None) -> Counter[str]:
        return Counter(each["body"] for each in self.seen(member))

    def stop(self) -> None:
        for member in self.ids:
            self._java5.call("memberStop", id=member)


@pytest.fixture
def members(cluster: Cluster, java5: Driver, topic: str, group: str) -> Iterator[Members]:
    started = Members(cluster, java5, topic, group)
    yield started
    started.stop()


def send(cluster: Cluster, topic: str, first: int, count: int, **fields: Any) -> list[str]:
    async def run() -> None:
        async with Producer(cluster.namesrv.address, group="senders") as producer:
            for number in range(first, first + count):
                await producer.send(Message(topic=topic, body=b"%d" % number, **fields))

    asyncio.run(run())
    return [str(number) for number in range(first, first + count)]


def wait(done: Callable[[], object]) -> None:
    end = time.monotonic() + LIMIT_S
    while not done():
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.1)


def progress(java5: Driver, cluster: Cluster, group: str) -> str:
    return java5.mqadmin("consumerProgress", "-n", cluster.namesrv.address, "-g", group)


def test_members_that_pop_share_all_messages(
    cluster: Cluster, java5: Driver, members: Members, topic: str, group: str
) -> None:
    sent = send(cluster, topic, 0, COUNT)
    members.mode("POP")
    members.start(pop=True)
    members.start(pop=True)
    wait(lambda: len(members.bodies()) == COUNT)
    sent += send(cluster, topic, COUNT, COUNT)
    wait(lambda: len(members.bodies()) == 2 * COUNT)
    assert members.bodies() == Counter(sent)
    assert all(each["popped"] for each in members.seen())
    wait(lambda: "Consume Diff Total: 0" in progress(java5, cluster, group))


def test_a_share_number_gives_each_member_some_queues(
    cluster: Cluster, members: Members, topic: str
) -> None:
    members.mode("POP", 1)
    for _ in range(3):
        members.start(pop=True)
    sent = send(cluster, topic, 0, COUNT)
    wait(lambda: len(members.bodies()) == COUNT)
    assert members.bodies() == Counter(sent)


def test_what_a_popping_member_refuses_comes_again(
    cluster: Cluster, members: Members, topic: str
) -> None:
    members.mode("POP")
    members.start(pop=True, failures=1)
    sent = send(cluster, topic, 0, 5)
    wait(lambda: members.bodies() == Counter(2 * sent))
    assert Counter(each["times"] for each in members.seen()) == {0: 5, 1: 5}
    assert {each["topic"] for each in members.seen()} == {topic}


def test_the_broker_balances_members_that_pull(
    cluster: Cluster, members: Members, topic: str
) -> None:
    members.start(pop=True)
    members.start(pop=True)
    sent = send(cluster, topic, 0, COUNT)
    wait(lambda: len(members.bodies()) == COUNT)
    assert not any(each["popped"] for each in members.seen())
    assert set(members.bodies()) == set(sent)


def test_a_member_pops_beside_one_that_pulls(
    cluster: Cluster, java5: Driver, members: Members, topic: str, group: str
) -> None:
    members.mode("POP")
    popping = members.start(pop=True)
    pulling = members.start(pop=False)
    sent = []
    for first in range(0, 5 * COUNT, COUNT):
        sent += send(cluster, topic, first, COUNT)
        time.sleep(0.5)
    wait(lambda: len(members.bodies()) == len(sent))
    assert any(each["popped"] for each in members.seen(popping))
    assert not any(each["popped"] for each in members.seen(pulling))
    wait(lambda: "Consume Diff Total: 0" in progress(java5, cluster, group))


def test_a_group_switches_between_pop_and_pull(
    cluster: Cluster, members: Members, topic: str
) -> None:
    sent: list[str] = []
    members.start(pop=True)
    members.start(pop=True)
    for mode in ("POP", "PULL", "POP", "PULL"):
        members.mode(mode)
        for _ in range(6):
            sent += send(cluster, topic, len(sent), 50)
            time.sleep(0.5)
    wait(lambda: len(members.bodies()) == len(sent))
    popped = Counter(each["popped"] for each in members.seen())
    assert popped[True] and popped[False], popped


def test_what_is_out_comes_to_members_that_pull(
    cluster: Cluster, java5: Driver, members: Members, topic: str, group: str
) -> None:
    members.mode("POP")
    members.start(pop=True, failures=1)
    sent = send(cluster, topic, 0, COUNT)
    wait(lambda: len(members.bodies()) == COUNT)
    members.stop()  # what it refused is out for ten seconds
    members.ids.clear()
    members.start(pop=False)
    later = send(cluster, topic, COUNT, COUNT)
    wait(lambda: members.bodies() == Counter(sent + later))
    for each in members.seen():
        assert not each["popped"] and each["topic"] == topic
        assert each["times"] == (each["body"] in sent)
    wait(lambda: "Consume Diff Total: 0" in progress(java5, cluster, group))


def test_1137_9170_9145_members_pop_again_after_a_restart(
    fragile: Cluster, java5: Driver, group: str
) -> None:
    fragile.create_topic(java5, "steady", queues=4)
    members = Members(fragile, java5, "steady", group)
    members.mode("POP")
    members.start(pop=True)
    members.start(pop=True)
    sent = send(fragile, "steady", 0, COUNT)
    wait(lambda: len(members.bodies()) == COUNT)
    fragile.broker.kill()
    fragile.broker.start()
    sent += send(fragile, "steady", COUNT, COUNT)
    wait(lambda: set(members.bodies()) == set(sent))
    assert all(each["popped"] for each in members.seen())
    members.stop()


def test_what_a_pulling_member_sent_back_comes_to_pops(
    cluster: Cluster, members: Members, topic: str, group: str
) -> None:
    members.start(pop=False, failures=1)
    sent = send(cluster, topic, 0, 5)
    wait(lambda: members.bodies() == Counter(sent))
    members.stop()  # its messages come again after ten seconds
    members.ids.clear()

    async def receive() -> list[ReceivedMessage]:
        found: list[ReceivedMessage] = []
        async with (
            asyncio.timeout(LIMIT_S),
            ShareConsumer(cluster.namesrv.address, group=group, topics={topic: "*"}) as consumer,
        ):
            while len(found) < 5:
                found += await consumer.receive()
            await consumer.ack(found)
            assert await consumer.receive(wait_s=1) == []
        return found

    found = asyncio.run(receive())
    assert Counter(message.body.decode() for message in found) == Counter(sent)
    assert {message.reconsume_times for message in found} == {1}
    assert {message.topic for message in found} == {topic}


def test_filters(cluster: Cluster, members: Members, topic: str) -> None:
    members.mode("POP")
    members.start(pop=True, tags="a || b")
    send(cluster, topic, 0, 50, tags="c")
    sent = send(cluster, topic, 50, 50, tags="a")
    wait(lambda: len(members.bodies()) == 50)
    assert members.bodies() == Counter(sent)


def test_lite_pull_of_rocketmq_5(cluster: Cluster, java5: Driver, topic: str, group: str) -> None:
    sent = send(cluster, topic, 0, 50)
    read = java5.call(
        "litePull",
        namesrv=cluster.namesrv.address,
        group=group,
        topic=topic,
        expected=50,
        timeoutMs=int(LIMIT_S * 1000),
    )
    assert sorted(read["bodies"]) == sorted(sent)
    assert "Consume Diff Total: 0" in progress(java5, cluster, group)
