"""Two machines, each with a master and the slave of the other's master; one dies and comes back."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.cluster import Machine, await_route, crossed_pair, stores
from harness.drivers import Driver, Json, body, message
from harness.replication.replicas import await_equal_stores

from congreve.client import Message, Producer
from congreve.client.results import SendStatus

SETTINGS = (
    "mappedFileSizeCommitLog=1048576",
    "maxHashSlotNum=1000",
    "maxIndexNum=4000",
    "registerNameServerPeriod=10000",
    "registerBrokerTimeoutMills=1000",
)
TOPIC = "crossed"
COUNT = 60


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[list[Machine]]:
    made = crossed_pair(tmp_path, SETTINGS)
    for machine in made:
        machine.start()
    yield made
    for machine in made:
        machine.kill()


def bodies_of(java: Driver, namesrv: str) -> list[bytes]:
    drained = java.call("drain", topics=[TOPIC], namesrv=namesrv)["messages"]
    return sorted(body(one) for one in drained)


async def send_by_python(producer: Producer, first: int) -> set[bytes]:
    """Send numbers one after the other; returns what was acknowledged."""
    sent = set()
    for number in range(COUNT):
        text = f"{first + number}|".encode()
        result = await producer.send(Message(topic=TOPIC, body=text))
        assert result.status is SendStatus.SEND_OK
        sent.add(text)
    return sent


def send_by_java(java: Driver, first: int, **producer: str) -> set[bytes]:
    texts = [f"{first + number}|".encode() for number in range(COUNT)]
    results = java.call("send", messages=[message(TOPIC, text) for text in texts], **producer)
    assert {one["status"] for one in results["results"]} == {"SEND_OK"}
    return set(texts)


def consumed_by_java(java: Driver, namesrv: str, expected: int) -> Json:
    java.call("consumerStart", id="pair", group="pair", topic=TOPIC, instances=1, namesrv=namesrv)
    seen = java.call("consumerWait", id="pair", expected=expected, timeoutMs=90_000, quietMs=200)
    java.call("consumerStop", id="pair")
    return seen


def send_by_go(go: Driver, namesrv: str) -> None:
    assert go.call("load", namesrv=namesrv, topic=TOPIC, mode="sync", count=COUNT, size=20)["ok"]


def test_a_crossed_pair_loses_no_message_when_one_machine_dies_and_returns(
    machines: list[Machine], java: Driver, go: Driver
) -> None:
    first, second = machines
    both = f"{first.namesrv};{second.namesrv}"
    for machine in machines:
        java.mqadmin(
            *("updateTopic", "-n", machine.namesrv, "-b", machine.master),
            *("-t", TOPIC, "-r", "4", "-w", "4"),
        )
    for machine in machines:
        await_route(machine, machines, TOPIC)
    java.call("producerStart", id="across", namesrv=both)
    sent = send_by_java(java, 1_000, producer="across")

    async def through_the_kill() -> set[bytes]:
        async with Producer(both, group="python") as producer:
            acknowledged = await send_by_python(producer, 4_000)
            await_equal_stores(*stores(first, second))
            first.kill()
            return acknowledged | await send_by_python(producer, 5_000)

    sent |= asyncio.run(through_the_kill())
    # A Java client that knows both masters retries what it sends to the dead one.
    sent |= send_by_java(java, 2_000, producer="across")
    java.call("producerStop", id="across")
    send_by_go(go, second.namesrv)
    # A group reads what the dead master had from its slave.
    seen = consumed_by_java(java, both, len(sent) + COUNT)
    assert seen["distinct"] == len(sent) + COUNT
    assert not seen["doubled"]

    first.start()
    for one, other in (machines, machines[::-1]):
        await_equal_stores(*stores(one, other))
    for machine in machines:
        await_route(machine, machines, TOPIC)  # a client may ask either name server
    sent |= send_by_java(java, 3_000, namesrv=both)
    got = bodies_of(java, both)
    assert set(got) >= sent
    assert len(got) == len(set(got)) == len(sent) + COUNT
    for one, other in (machines, machines[::-1]):
        await_equal_stores(*stores(one, other))
    assert [machine.stop() for machine in machines] == [0, 0]
