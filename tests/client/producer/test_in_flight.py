"""How many sends of a producer wait for their answers."""

import asyncio
from concurrent.futures import Future
from typing import Any

import pytest
from harness.fake_cluster import FakeBroker, FakeCluster, refused, stored

from congreve.client import Message, Producer, SendResult, SyncProducer
from congreve.client.errors import BrokerError, InvalidSettingError, SendTimeoutError
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.transport.connection import Connection

SEND = 310
MESSAGE = Message(topic="T", body=b"x")


class Gate:
    """Lets a broker answer sends one round at a time, and counts those that wait."""

    def __init__(self, broker: FakeBroker) -> None:
        self.waiting: list[asyncio.Future[None]] = []
        self.most = 0
        broker.handlers[SEND] = self._answer

    async def _answer(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        self.waiting.append(asyncio.get_running_loop().create_future())
        self.most = max(self.most, len(self.waiting))
        await self.waiting[-1]
        return stored(request)

    async def has(self, count: int) -> None:
        """Wait until so many sends have arrived, and all that can arrive."""
        while len(self.waiting) < count:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.02)
        assert len(self.waiting) == count

    def open(self) -> None:
        """Answer the sends that wait."""
        for future in self.waiting:
            future.set_result(None)
        self.waiting.clear()


def test_the_limit_is_checked() -> None:
    for limit in (0, -1, 1.5, "8", True):
        options: Any = {"max_in_flight": limit}
        with pytest.raises(InvalidSettingError, match="max_in_flight"):
            Producer("127.0.0.1:1", group="p", **options)


async def test_no_more_than_max_in_flight_sends_wait_for_answers() -> None:
    async with (
        FakeCluster("a") as cluster,
        Producer(cluster.address, group="p", max_in_flight=3, send_timeout_s=60) as producer,
    ):
        gate = Gate(cluster.brokers["a"])
        tasks = [producer.send_soon(MESSAGE) for _ in range(5)]
        tasks += [asyncio.create_task(producer.send(MESSAGE)) for _ in range(4)]
        for _ in range(3):
            await gate.has(3)
            gate.open()
        assert [result.queue_offset for result in await asyncio.gather(*tasks)] == [7] * 9
        assert gate.most == 3


async def test_a_send_that_gets_no_slot_in_time_was_not_sent() -> None:
    async with (
        FakeCluster("a") as cluster,
        Producer(cluster.address, group="p", max_in_flight=1, send_timeout_s=60) as producer,
    ):
        gate = Gate(cluster.brokers["a"])
        first = producer.send_soon(MESSAGE)
        await gate.has(1)
        with pytest.raises(SendTimeoutError, match=r"was not sent: 1 others .* max_in_flight"):
            await producer.send(MESSAGE, timeout_s=0.02)
        gate.open()
        await first
        assert len(cluster.brokers["a"].asked(SEND)) == 1


async def test_cancelled_and_failed_sends_free_their_slots() -> None:
    async with (
        FakeCluster("a") as cluster,
        Producer(cluster.address, group="p", max_in_flight=1, retries=0) as producer,
    ):
        gate = Gate(cluster.brokers["a"])
        sending, waiting = producer.send_soon(MESSAGE), producer.send_soon(MESSAGE)
        await gate.has(1)
        waiting.cancel()
        sending.cancel()
        await asyncio.gather(sending, waiting, return_exceptions=True)
        gate.waiting.clear()
        del cluster.brokers["a"].handlers[SEND]
        cluster.brokers["a"].answers[SEND] = refused(1)
        for _ in range(2):
            with pytest.raises(BrokerError):
                await producer.send(MESSAGE, timeout_s=60)
        cluster.brokers["a"].answers[SEND] = stored
        assert (await producer.send(MESSAGE, timeout_s=60)).queue_offset == 7


async def test_a_thread_that_sends_soon_waits_for_a_slot() -> None:
    async with FakeCluster("a") as cluster:
        gate = Gate(cluster.brokers["a"])
        begun: list[Future[SendResult]] = []

        def send() -> list[int]:
            with SyncProducer(cluster.address, group="p", max_in_flight=2) as producer:
                for _ in range(6):
                    begun.append(producer.send_soon(MESSAGE, timeout_s=60))
                return [future.result(60).queue_offset for future in begun]

        sending = asyncio.create_task(asyncio.to_thread(send))
        for number in range(3):
            await gate.has(2)
            assert len(begun) == 2 * number + 2
            gate.open()
        assert await sending == [7] * 6
        assert gate.most == 2


async def test_a_callback_may_send_although_no_slot_is_free() -> None:
    async with FakeCluster("a") as cluster:
        gate = Gate(cluster.brokers["a"])
        later: list[Future[SendResult]] = []

        def send() -> int:
            with SyncProducer(cluster.address, group="p", max_in_flight=1) as producer:

                def again(_: Future[SendResult]) -> None:
                    later.extend(producer.send_soon(MESSAGE, timeout_s=60) for _ in range(2))

                producer.send_soon(MESSAGE, again, timeout_s=60).result(60)
                while len(later) < 2:
                    pass
                return sum(future.result(60).queue_offset for future in later)

        sending = asyncio.create_task(asyncio.to_thread(send))
        for _ in range(3):
            await gate.has(1)
            gate.open()
        assert await sending == 14


async def test_a_thread_waits_no_longer_than_the_timeout_of_its_send() -> None:
    async with FakeCluster("a") as cluster:
        gate = Gate(cluster.brokers["a"])

        def send() -> str:
            with SyncProducer(cluster.address, group="p", max_in_flight=1) as producer:
                first = producer.send_soon(MESSAGE, timeout_s=60)
                error = producer.send_soon(MESSAGE, timeout_s=0.05).exception(60)
                cluster_loop.call_soon_threadsafe(gate.open)
                first.result(60)
                return str(error)

        cluster_loop = asyncio.get_running_loop()
        assert "was not sent" in await asyncio.to_thread(send)
        assert len(cluster.brokers["a"].asked(SEND)) == 1
