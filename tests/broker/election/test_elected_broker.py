"""Members of a group with a real etcd: they elect, copy, switch, and lose nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness.elected import ElectedGroup
from harness.etcd import Etcd
from harness.eventually import eventually

from congreve.broker.broker import Broker
from congreve.broker.errors import ConfigError
from congreve.client import Message, Producer
from congreve.client.errors import ClientError
from congreve.client.message import SendStatus
from congreve.remoting.errors import RemotingError

TOPIC = "orders"


def bodies(broker: Broker) -> list[bytes]:
    """The messages of all queues of the topic, queue by queue."""
    found = []
    for queue_id in range(8):
        for offset in range(broker.store.max_offset(TOPIC, queue_id)):
            place = broker.store.place_of(broker.store.queues.get(TOPIC, queue_id), offset)
            assert place is not None
            record = broker.store.read(place)
            assert record is not None
            found.append(bytes(record).partition(b"body-")[2].partition(b";")[0])
    return found


async def send(producer: Producer, first: int, count: int) -> set[bytes]:
    """Send until each message is acknowledged; returns the acknowledged bodies."""
    acknowledged = set()
    for number in range(first, first + count):
        message = Message(topic=TOPIC, body=f"body-{number};".encode())

        async def is_acknowledged(message: Message = message) -> bool:
            try:
                return (await producer.send(message)).status == SendStatus.SEND_OK
            except (ClientError, RemotingError):
                return False

        await eventually(is_acknowledged)
        acknowledged.add(str(number).encode())
    return acknowledged


async def test_a_member_takes_over_with_every_acknowledged_message(
    tmp_path: Path, etcd: Etcd
) -> None:
    async with ElectedGroup(tmp_path, etcd) as group:
        await group.start(1)
        assert await group.master() == 1
        await group.start(2)
        await eventually(lambda: group.in_sync() == {1, 2})
        async with Producer(group.name_server.address, group="p") as producer:
            acknowledged = await send(producer, 0, 50)
            await group.stop(1)
            assert await group.master() == 2
            acknowledged |= await send(producer, 50, 20)
            assert acknowledged <= set(bodies(group.broker(2)))
            await group.start(1)
            await eventually(lambda: group.in_sync() == {1, 2})
            acknowledged |= await send(producer, 70, 20)
            await group.stop(2)
            assert await group.master() == 1
            assert acknowledged <= set(bodies(group.broker(1)))
            acknowledged |= await send(producer, 90, 5)


async def test_settings_of_an_election_are_checked(tmp_path: Path, etcd: Etcd) -> None:
    async with ElectedGroup(tmp_path, etcd) as group:
        for wrong in ({"brokerId": "0"}, {"etcdEndpoints": " "}, {"haMode": "paxos"}):
            with pytest.raises(ConfigError, match=next(iter(wrong))):
                await group.start(1, **wrong)
