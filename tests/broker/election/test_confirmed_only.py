"""What members of an elected group show: messages that their group has confirmed, and no others."""

from __future__ import annotations

import asyncio
import re
import threading
import time
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
from harness.eventually import eventually
from harness.replication.elected import ElectedGroup
from harness.replication.etcd import Etcd

from congreve.broker.broker import Broker
from congreve.broker.election.master_link import EpochFollower
from congreve.broker.election.slave_link import AutoSwitchConnection
from congreve.client import ConsumeFrom, Message, Producer, PushConsumer
from congreve.client.admin import AdminClient
from congreve.client.admin.lookup import MessageLookup
from congreve.client.message import ReceivedMessage
from congreve.client.results import SendStatus
from congreve.client.subscription import subscribe
from congreve.engine.state.confirmed import ConfirmedFile
from congreve.records.message.message import Record
from congreve.records.message.topics import SCHEDULE_TOPIC, TIMER_TOPIC
from congreve.records.record import offset_message_id
from congreve.remoting.messages.bodies import TopicConfig
from congreve.store_reader import open_store

TOPIC = "orders"
SHOWN = 3
ONE_QUEUE = TopicConfig(topic_name=TOPIC, read_queue_nums=1, write_queue_nums=1)


class Link:
    """The links of a master to its slaves; while `held`, they carry nothing of the log."""

    def __init__(self) -> None:
        self.held = False

    def hold_back(self, monkeypatch: pytest.MonkeyPatch) -> None:
        send = AutoSwitchConnection.send

        def send_unless_held(connection: AutoSwitchConnection, end: int, now: float) -> bool:
            return send(connection, connection.next if self.held else end, now)

        monkeypatch.setattr(AutoSwitchConnection, "send", send_unless_held)


@pytest.fixture
def link(monkeypatch: pytest.MonkeyPatch) -> Link:
    link = Link()
    link.hold_back(monkeypatch)
    return link


@asynccontextmanager
async def pair(folder: Path, etcd: Etcd, **settings: str) -> AsyncIterator[ElectedGroup]:
    """Two members in the set, 1 the master; a slave stays in the set although it gets nothing."""
    usual = {"haMaxTimeSlaveNotCatchup": "120000", "slaveReadEnable": "true"}
    async with ElectedGroup(folder, etcd, **{**usual, **settings}) as group:
        await group.start(1)
        assert await group.master() == 1
        group.broker(1).managers.metadata.topics.update(ONE_QUEUE)
        await group.start(2)
        await eventually(lambda: group.in_sync() == {1, 2})
        yield group


def stored(broker: Broker) -> int:
    return broker.store.queues.get(TOPIC, 0).max


async def send(producer: Producer, *bodies: str) -> None:
    for body in bodies:
        result = await producer.send(Message(topic=TOPIC, body=body.encode(), keys=body))
        assert result.status == SendStatus.SEND_OK


@asynccontextmanager
async def unconfirmed(
    broker: Broker, link: Link, producer: Producer
) -> AsyncIterator[asyncio.Task[None]]:
    """A message that waits for the slave; the link is free again afterwards."""
    link.held = True
    waiting = asyncio.create_task(send(producer, "unconfirmed"))
    await eventually(lambda: stored(broker) == SHOWN + 1)
    try:
        yield waiting
        await waiting
    finally:
        link.held = False
        waiting.cancel()


@pytest.mark.parametrize("threads", ["1", "2"])
async def test_readers_of_a_master_see_what_is_confirmed(
    tmp_path: Path, etcd: Etcd, link: Link, threads: str
) -> None:
    settings = {"networkThreads": threads, "metricsPort": "0", "slaveTimeout": "60000"}
    async with pair(tmp_path, etcd, **settings) as group:
        broker, namesrv = group.broker(1), group.name_server.address
        lookup_of = subscribe(TOPIC, "*")
        async with (
            AdminClient(namesrv, timeout_s=30) as admin,
            Producer(namesrv, group="p", send_timeout_s=60) as producer,
        ):
            lookup = MessageLookup(admin)
            await send(producer, *(f"m{number}" for number in range(SHOWN)))
            async with (
                PushConsumer(
                    namesrv,
                    group="g",
                    topics={TOPIC: "*"},
                    consume_from=ConsumeFrom.FIRST_OFFSET,
                    timeout_s=30,
                ) as consumer,
                unconfirmed(broker, link, producer) as waiting,
            ):
                messages = aiter(consumer)
                assert await take(messages, SHOWN) == [b"m0", b"m1", b"m2"]
                following = asyncio.create_task(take(messages, 1))
                (queue,) = await lookup.queues(TOPIC)
                assert await lookup.ends(queue) == (0, SHOWN)
                assert await consumer.offset_at(queue, 1 << 50) == SHOWN - 1  # the nearest one
                assert await lookup.offset_at(queue, 1 << 50) == SHOWN
                assert await lookup.pull(lookup_of, queue, SHOWN) == ([], SHOWN, SHOWN)
                records, next_offset, _ = await lookup.pull(lookup_of, queue, 0)
                assert (len(records), next_offset) == (SHOWN, SHOWN)
                await eventually(partial(is_indexed, broker))
                assert len(await lookup.by_key(TOPIC, "m0")) == 1
                assert not await lookup.by_key(TOPIC, "unconfirmed")
                place = broker.store.queues.get(TOPIC, 0)[SHOWN][0]
                host, port = broker.address.split(":")
                hidden = offset_message_id((host, int(port)), place)
                assert await lookup.by_offset_id(hidden) is None
                (row,) = await admin.topic_stats(TOPIC)
                assert row.max_offset == SHOWN
                await eventually(lambda: committed(broker) == SHOWN)
                broker.managers.metadata.offsets.commit("g", TOPIC, 0, SHOWN + 1)
                assert committed(broker) == SHOWN, "the offset may get another message"
                assert await asyncio.to_thread(lag, broker) == 0
                waits = asyncio.create_task(lookup.pull(lookup_of, queue, SHOWN, wait_s=20))
                with open_store(tmp_path / "1") as reader:
                    (found,) = reader.queues(TOPIC)
                    assert found.max <= SHOWN
                    await eventually(lambda: reader.queues(TOPIC)[0].max == SHOWN)
                await asyncio.sleep(0.3)
                assert not (waits.done() or following.done() or waiting.done())
                link.held = False
                records, next_offset, end = await waits
                assert [record.body for record in records] == [b"unconfirmed"]
                assert (next_offset, end) == (SHOWN + 1, SHOWN + 1)
                assert await following == [b"unconfirmed"]
            assert await lookup.ends(queue) == (0, SHOWN + 1)
            assert len(await lookup.by_key(TOPIC, "unconfirmed")) == 1
            assert await lookup.by_offset_id(hidden) is not None


def is_indexed(broker: Broker) -> bool:
    store = broker.store
    return store.index is not None and store.index.indexed_offset == store.log.max_offset


def committed(broker: Broker) -> int:
    return broker.managers.metadata.offsets.query("g", TOPIC, 0)


def lag(broker: Broker) -> int:
    """What the metrics say about the group's lag."""
    address = f"http://127.0.0.1:{broker.config.metrics_port}/metrics"
    with urllib.request.urlopen(address) as answer:
        text = answer.read().decode()
    (found,) = re.findall(rf'rocketmq_consumer_lag_messages{{[^}}]*"{TOPIC}"[^}}]*}} (\d+)', text)
    return int(found)


async def take(messages: AsyncIterator[ReceivedMessage], count: int) -> list[bytes]:
    """The bodies of a consumer's next messages."""
    return [(await asyncio.wait_for(anext(messages), 30)).body for _ in range(count)]


async def test_delayed_messages_are_delivered_once_they_are_confirmed(
    tmp_path: Path, etcd: Etcd, link: Link
) -> None:
    async with pair(tmp_path, etcd, slaveTimeout="60000") as group:
        broker, namesrv = group.broker(1), group.name_server.address
        async with Producer(namesrv, group="p", send_timeout_s=60) as producer:
            await send(producer, "m0")
            link.held = True
            soon = int(time.time() * 1000) + 300
            waiting = [
                asyncio.create_task(producer.send(message))
                for message in (
                    Message(topic=TOPIC, body=b"level", delay_level=1),
                    Message(topic=TOPIC, body=b"timed", deliver_ms=soon),
                )
            ]
            queues = broker.store.queues
            await eventually(
                lambda: queues.get(SCHEDULE_TOPIC, 0).max and queues.get(TIMER_TOPIC, 0).max
            )
            await asyncio.sleep(1.5)
            assert stored(broker) == 1
            link.held = False
            await asyncio.gather(*waiting)
            await eventually(lambda: broker.store.max_offset(TOPIC, 0) == 3)


async def test_a_slave_shows_and_keeps_what_its_master_has_confirmed(
    tmp_path: Path, etcd: Etcd, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with pair(tmp_path, etcd, slaveTimeout="60000") as group:
        reports = hold_reports(monkeypatch)
        async with Producer(group.name_server.address, group="p", send_timeout_s=60) as producer:
            await send(producer, *(f"m{number}" for number in range(SHOWN)))
            await eventually(lambda: group.broker(2).store.max_offset(TOPIC, 0) == SHOWN)
            shown = group.broker(2).store.log.shown_end
            reports.set()
            waiting = asyncio.create_task(send(producer, "unconfirmed"))
            await eventually(lambda: stored(group.broker(2)) == SHOWN + 1)
            # Offsets that consumers committed beyond it, at a master of an earlier version.
            group.broker(1).managers.metadata.offsets.note("g", TOPIC, 0, SHOWN + 1)
            file = ConfirmedFile(str(tmp_path / "2" / "congreve"), read_only=True)
            await eventually(lambda: file.find() == shown)
            await eventually(lambda: committed(group.broker(2)) == SHOWN)
            assert group.broker(2).store.max_offset(TOPIC, 0) == SHOWN
            assert group.broker(1).store.max_offset(TOPIC, 0) == SHOWN
            await group.stop(2)
            await waiting  # 1 is alone in the set now, and 2 cannot be elected
            assert group.in_sync() == {1}
            await group.stop(1)
        await group.start(2)  # without a master
        assert group.broker(2).store.log.shown_end == shown
        assert stored(group.broker(2)) == SHOWN + 1
        assert group.broker(2).store.max_offset(TOPIC, 0) == SHOWN
        with open_store(tmp_path / "2") as reader:
            assert [queue.max for queue in reader.queues(TOPIC)] == [SHOWN]
        reports.clear()
        await group.start(1)
        await group.master()
        await eventually(lambda: group.in_sync() == {1, 2})
        for number in (1, 2):
            await eventually(
                lambda number=number: (
                    group.broker(number).store.max_offset(TOPIC, 0) == SHOWN + 1
                    and committed(group.broker(number)) == SHOWN + 1
                )
            )


async def test_a_consumer_skips_nothing_and_no_offset_gets_two_messages(
    tmp_path: Path, etcd: Etcd, link: Link
) -> None:
    async with pair(tmp_path, etcd, slaveTimeout="60000") as group:
        namesrv = group.name_server.address
        async with (
            Producer(namesrv, group="p", send_timeout_s=60) as producer,
            PushConsumer(
                namesrv,
                group="g",
                topics={TOPIC: "*"},
                consume_from=ConsumeFrom.FIRST_OFFSET,
                timeout_s=30,
            ) as consumer,
        ):
            messages = aiter(consumer)
            await send(producer, *(f"m{number}" for number in range(SHOWN)))
            assert await take(messages, SHOWN) == [b"m0", b"m1", b"m2"]
            following = asyncio.create_task(take(messages, 2))
            link.held = True
            waiting = asyncio.create_task(producer.send(Message(topic=TOPIC, body=b"lost")))
            await eventually(lambda: stored(group.broker(1)) == SHOWN + 1)
            await asyncio.sleep(0.5)
            await group.stop(1)
            waiting.cancel()
            link.held = False
            assert await group.master() == 2
            assert stored(group.broker(2)) == SHOWN
            async with Producer(namesrv, group="q", send_timeout_s=60) as other:
                await send(other, "a0", "a1")
            assert await following == [b"a0", b"a1"]
            await group.start(1)
            await eventually(lambda: group.in_sync() == {1, 2})
            await eventually(lambda: group.broker(1).store.max_offset(TOPIC, 0) == SHOWN + 2)


async def test_a_master_alone_with_sync_flush_shows_what_is_on_its_disk(
    tmp_path: Path, etcd: Etcd
) -> None:
    async with ElectedGroup(tmp_path, etcd, flushDiskType="SYNC_FLUSH") as group:
        await group.start(1)
        assert await group.master() == 1
        broker = group.broker(1)
        broker.managers.metadata.topics.update(ONE_QUEUE)
        store = broker.store
        for _ in range(100):
            store.put(Record(topic=TOPIC, body=bytes(10)))
            assert store.log.shown_end <= store.backend.durable_offset
        await eventually(lambda: store.max_offset(TOPIC, 0) == 100)
        await group.stop(1)
        await group.start(1)
        assert await group.master() == 1
        await eventually(lambda: group.broker(1).store.max_offset(TOPIC, 0) == 100)


async def test_nothing_new_is_shown_while_too_few_members_are_in_sync(
    tmp_path: Path, etcd: Etcd
) -> None:
    settings = {"minInSyncReplicas": "2", "haMaxTimeSlaveNotCatchup": "1000"}
    async with pair(tmp_path, etcd, **settings) as group:
        broker, namesrv = group.broker(1), group.name_server.address
        async with Producer(namesrv, group="p", send_timeout_s=60) as producer:
            await send(producer, *(f"m{number}" for number in range(SHOWN)))
            await group.stop(2)
            result = await producer.send(Message(topic=TOPIC, body=b"alone"))
            assert result.status != SendStatus.SEND_OK
            term = group.members[1].term
            assert term is not None
            await eventually(lambda: not term.is_large_enough)
            assert group.in_sync() == {1, 2}, "member 2 has all that is acknowledged"
            assert stored(broker) == SHOWN + 1
            assert broker.store.max_offset(TOPIC, 0) == SHOWN
            await group.start(2)
            await eventually(lambda: broker.store.max_offset(TOPIC, 0) == SHOWN + 1)
            assert group.in_sync() == {1, 2}


def hold_reports(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """While the event is set, slaves report nothing new: what they have is not confirmed."""
    held = threading.Event()
    have = EpochFollower.have

    def have_unless_held(follower: EpochFollower) -> int:
        there = have(follower)
        return min(there, follower.reported) if held.is_set() else there

    monkeypatch.setattr(EpochFollower, "have", have_unless_held)
    return held
