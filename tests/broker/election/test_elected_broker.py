"""Members of a group with a real etcd: they elect, copy, switch, and lose nothing."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path

import pytest
from click.testing import CliRunner
from harness.certificates import Authority, ha_tls_settings
from harness.eventually import eventually
from harness.replication.elected import ElectedGroup, has_topic
from harness.replication.etcd import Etcd

from congreve.broker.broker import Broker
from congreve.broker.election.coordinator import Master
from congreve.broker.election.etcd import EtcdCoordinator
from congreve.broker.election.operator import Operator, OperatorError
from congreve.broker.errors import ConfigError
from congreve.client import Message, Producer
from congreve.client.admin import AdminClient
from congreve.client.errors import ClientError
from congreve.client.results import SendStatus
from congreve.console.replication.election import election
from congreve.records.message.message import Record
from congreve.remoting.errors import RemotingError
from congreve.remoting.messages.bodies import TopicConfig

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
        group.broker(1).managers.metadata.offsets.commit("c", TOPIC, 0, 7)
        await group.start(2)
        await eventually(lambda: group.in_sync() == {1, 2})
        # A member enters the set with the consumer offsets.
        assert group.broker(2).managers.metadata.offsets.table[f"{TOPIC}@c"] == {0: 7}
        async with Producer(group.name_server.address, group="p") as producer:
            acknowledged = await send(producer, 0, 50)
            await group.stop(1)
            assert await group.master() == 2
            acknowledged |= await send(producer, 50, 20)
            await eventually(lambda: acknowledged <= set(bodies(group.broker(2))))
            await group.start(1)
            await eventually(lambda: group.in_sync() == {1, 2})
            acknowledged |= await send(producer, 70, 20)
            await group.stop(2)
            assert await group.master() == 1
            await eventually(lambda: acknowledged <= set(bodies(group.broker(1))))
            acknowledged |= await send(producer, 90, 5)


async def test_a_new_topic_is_on_the_disk_of_every_member_of_the_set(
    tmp_path: Path, etcd: Etcd
) -> None:
    async with ElectedGroup(tmp_path, etcd, haMaxTimeSlaveNotCatchup="1000") as group:
        await group.start(1)
        await group.start(2)
        await eventually(lambda: group.in_sync() == {1, 2})
        async with AdminClient(group.name_server.address) as admin:
            await admin.create_topic("made", queues=5)
            assert has_topic(tmp_path / "2", "made", 5)
            await admin.create_topic("made", queues=6)
            assert has_topic(tmp_path / "2", "made", 6)
            await group.stop(2)
            # No message waits for the member that is away, but this change does.
            await eventually(lambda: created(admin, "later"))
            assert group.in_sync() == {1}


async def created(admin: AdminClient, topic: str) -> bool:
    """Whether the topic is created now; a change waits at most 3 s for members."""
    try:
        await admin.create_topic(topic)
    except ClientError:
        return False
    return True


async def test_an_empty_member_begins_where_an_old_log_begins(tmp_path: Path, etcd: Etcd) -> None:
    async with ElectedGroup(tmp_path, etcd) as group:
        await group.start(1)
        assert await group.master() == 1
        group.broker(1).managers.metadata.topics.update(TopicConfig(topic_name=TOPIC))
        store = group.broker(1).store
        for _ in range(400):
            store.put(Record(topic=TOPIC, body=bytes(4000)))
        store.log.delete_oldest()
        begin, end = store.log.min_offset, store.log.max_offset
        assert begin > 0
        await group.start(2)
        await eventually(lambda: group.in_sync() == {1, 2})
        # It is elected, and the member whose log begins earlier follows it.
        await group.stop(1)
        assert await group.master() == 2
        store = group.broker(2).store
        assert (store.log.min_offset, store.log.max_offset) == (begin, end)
        assert store.max_offset(TOPIC, 0) == 400
        await group.start(1)
        await eventually(lambda: group.in_sync() == {1, 2})


async def test_members_copy_the_log_over_tls(tmp_path: Path, etcd: Etcd) -> None:
    authority = Authority(tmp_path / "tls")
    tls = ha_tls_settings(authority, *authority.issue("member"))
    async with ElectedGroup(tmp_path, etcd, **tls) as group:
        await group.start(1)
        await group.start(2)
        assert await group.master() == 1
        await group.start(3, haTlsEnable="false")
        await eventually(lambda: group.in_sync() == {1, 2})
        async with Producer(group.name_server.address, group="p") as producer:
            acknowledged = await send(producer, 0, 20)
            assert group.in_sync() == {1, 2}
            await group.stop(3)
            await group.stop(1)
            assert await group.master() == 2
            await eventually(lambda: acknowledged <= set(bodies(group.broker(2))))


async def test_an_operator_chooses_the_master(
    tmp_path: Path, etcd: Etcd, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "congreve.broker.accounts.audit")
    async with ElectedGroup(tmp_path, etcd, haLeaseSeconds="15") as group:
        command = [
            *("-n", group.name_server.address, "-o", "haMode=etcd", "-o", "haLeaseSeconds=1"),
            *("-o", f"etcdEndpoints={etcd.url}", "-o", f"brokerName=g-{tmp_path.name}"),
        ]

        async def congreve(*arguments: str) -> str:
            done = await asyncio.to_thread(
                CliRunner().invoke, election, [*arguments, *command], catch_exceptions=False
            )
            assert done.exit_code == 0, done.output
            return done.stdout

        await group.start(1)
        await group.start(2)
        await eventually(lambda: group.in_sync() == {1, 2})
        async with Producer(group.name_server.address, group="p") as producer:
            acknowledged = await send(producer, 0, 20)
            assert "member 2 is the master" in await congreve("transfer", "--broker-id", "2")
            assert await group.master() == 2
            await eventually(lambda: acknowledged <= set(bodies(group.broker(2))))
            await eventually(lambda: group.in_sync() == {1, 2})
            await group.stop(1)
            acknowledged |= await send(producer, 20, 5)
            await eventually(lambda: group.in_sync() == {2})

            async def is_known() -> bool:
                rows = json.loads(await congreve("status", "--output", "json"))
                assert [row["in_sync"] for row in rows if row["member"] == 2] == [True]
                return [row["role"] for row in rows] == ["slave", "master"]

            await group.start(1)
            await eventually(is_known)
            await eventually(lambda: group.in_sync() == {1, 2})
            await group.stop(1)
            await send(producer, 25, 5)
            await eventually(lambda: group.in_sync() == {2})
            await group.stop(2)
            await group.start(1)
            said = await congreve("elect", "--broker-id", "1", "--unclean", "--yes")
            assert "member 1 is the master" in said
            assert await group.master() == 1
            await eventually(lambda: acknowledged <= set(bodies(group.broker(1))))
            await group.start(2)
            await eventually(lambda: group.in_sync() == {1, 2})
            await send(producer, 30, 5)
            await eventually(lambda: bodies(group.broker(1)) == bodies(group.broker(2)))
            assert b"27" not in bodies(group.broker(2))
    lines = [json.loads(record.message) for record in caplog.records if "ELECT" in record.message]
    assert [(line["member"], line["unclean"]) for line in lines] == [
        (1, False),
        (2, False),
        (1, True),
    ]


async def test_a_request_that_cannot_be_carried_out_is_refused_or_withdrawn(etcd: Etcd) -> None:
    member = EtcdCoordinator([etcd.url], "test", "requests", timeout_s=30)
    operator = Operator(
        EtcdCoordinator([etcd.url], "test", "requests", timeout_s=30),
        "root@host",
        ttl_s=0.1,
        timeout_s=0.2,
    )
    with pytest.raises(OperatorError, match="no master"):
        await operator.transfer()
    with pytest.raises(OperatorError, match="withdrawn"):
        await operator.elect_unclean(7)
    assert (await member.read()).request is None
    await member.elect(await member.read(), Master(1, 1, "a", "h"), 600)
    with pytest.raises(OperatorError, match="no other member"):
        await operator.transfer()
    with pytest.raises(OperatorError, match="no member 2"):
        await operator.transfer(2)
    with pytest.raises(OperatorError, match="already"):
        await operator.transfer(1)
    with pytest.raises(OperatorError, match="use `transfer`"):
        await operator.elect_unclean(2)
    await member.resign()


async def test_settings_of_an_election_are_checked(tmp_path: Path, etcd: Etcd) -> None:
    async with ElectedGroup(tmp_path, etcd) as group:
        for wrong in ({"brokerId": "0"}, {"etcdEndpoints": " "}, {"haMode": "paxos"}):
            with pytest.raises(ConfigError, match=next(iter(wrong))):
                await group.start(1, **wrong)
