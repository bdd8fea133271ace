"""Delayed messages: listed, counted, taken back, also across a kill of the broker."""

import asyncio
import time
from pathlib import Path

import pytest
from harness import servers
from harness.eventually import eventually

import congreve
from congreve.base.errors import CongreveError
from congreve.client import AdminClient, Message, Producer, SendResult
from congreve.client.admin.one_send import send
from congreve.client.admin.queue_reader import readers
from congreve.client.errors import BrokerError, InvalidSettingError
from congreve.client.outgoing import prepare
from congreve.records.message.properties import TIMER_DEL_UNIQUE_KEY

HOUR_MS = 3_600_000


async def test_pending_messages_are_listed_and_recalled(node: congreve.Node) -> None:
    async with AdminClient(node.address) as admin, Producer(node.address, group="p") as producer:
        await admin.create_topic("T", queues=1)
        due = int(time.time() * 1000) + 10 * HOUR_MS
        timed = await producer.send(_timed(1, due))
        await producer.send(Message(topic="T", body=b"2", delay_level=18))
        body = await admin.timers.upcoming()
        assert [(one.level, one.msg_id == timed.message_id) for one in body.messages] == [
            (18, False),
            (0, True),
        ]
        counts = (await admin.timers.count_by_hour(begin_ms=due - HOUR_MS)).counts
        assert [(row.hour_ms, row.level, row.count) for row in counts] == [
            (due // HOUR_MS * HOUR_MS, 0, 1)
        ]
        await admin.timers.recall(body.messages[0].recall_handle)
        await admin.timers.recall_sent(timed)
        assert not (await admin.timers.upcoming()).messages
        with pytest.raises(BrokerError, match="no delayed message"):
            await admin.timers.recall_sent(timed)
        with pytest.raises(InvalidSettingError, match="handle"):
            await admin.timers.recall("nonsense")


async def test_a_message_with_the_recall_property_recalls_another_one(node: congreve.Node) -> None:
    async with AdminClient(node.address) as admin, Producer(node.address, group="p") as producer:
        await admin.create_topic("T", queues=1)
        due = int(time.time() * 1000) + HOUR_MS
        sent = await producer.send(_timed(1, due))
        message = Message(
            topic="T", body=b"0", properties={TIMER_DEL_UNIQUE_KEY: f"T+{sent.message_id}"}
        )
        request = prepare(message, "0" * 32, compress_from=1 << 20)
        (address,) = (await admin.masters("DefaultCluster")).values()
        await send(admin, address, 0, request)
        assert not (await admin.timers.upcoming()).messages
        with pytest.raises(BrokerError, match="no delayed message"):
            await send(admin, address, 0, request)


@pytest.mark.crash
async def test_a_kill_loses_no_recall(tmp_path: Path) -> None:
    namesrv = servers.namesrv("congreve", tmp_path / "namesrv")
    broker = servers.broker(
        *("congreve", tmp_path / "broker", namesrv.address),
        settings={"flushDiskType": "SYNC_FLUSH", "messageDelayLevel": "8s 2h"},
        watchdog_millis=0,
    )
    try:
        namesrv.start()
        broker.start()
        async with AdminClient(namesrv.address, timeout_s=10.0) as admin:
            await admin.create_topic("T", queues=1, cluster=servers.CLUSTER)
            recalled: set[int] = set()
            first = 0
            while not recalled:  # on a slow machine all of them may have been delivered before
                recalled, others = await _recall_until_killed(namesrv.address, admin, broker, first)
                broker.start()
                first += 200
            delivered: set[int] = set()

            async def all_came() -> bool:
                for reader in await readers(admin, admin.brokers, "T"):
                    for message in await reader.read(*await reader.bounds()):
                        delivered.add(int(message.body))
                return others <= delivered

            await eventually(all_came)
            assert not recalled & delivered
    finally:
        broker.kill()
        namesrv.kill()


async def _recall_until_killed(
    namesrv: str, admin: AdminClient, broker: servers.BrokerServer, first: int
) -> tuple[set[int], set[int]]:
    """The numbers of recalled messages, and of those that nothing tried to recall."""
    async with Producer(namesrv, group="p", send_timeout_s=10.0) as producer:
        due = int(time.time() * 1000) + 8_000
        sent: list[SendResult] = await asyncio.gather(
            *(
                producer.send(
                    _timed(number, due)
                    if number % 2
                    else Message(topic="T", body=b"%d" % number, delay_level=1)
                )
                for number in range(first, first + 200)
            )
        )
        recalled: set[int] = set()

        async def recall(number: int) -> None:
            await admin.timers.recall_sent(sent[number - first])
            recalled.add(number)
            if len(recalled) == 40:
                broker.kill()

        results = await asyncio.gather(
            *map(recall, range(first, first + 100)), return_exceptions=True
        )
        assert all(result is None or isinstance(result, CongreveError) for result in results)
        broker.kill()
        return recalled, set(range(first + 100, first + 200))


def _timed(number: int, due_ms: int) -> Message:
    return Message(topic="T", body=b"%d" % number, deliver_ms=due_ms)
