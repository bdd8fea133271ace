"""A share consumer with fake brokers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from harness.eventually import eventually
from harness.fake_cluster import FakeCluster, refused
from harness.fake_pops import ACK, ASSIGN, BATCH_ACK, CHANGE, POP, Pops

from congreve.client import (
    ConsumeContext,
    ConsumeFrom,
    ConsumeHook,
    ReceiveContext,
    ReceivedMessage,
    ShareConsumer,
    ShareSettings,
)
from congreve.client.errors import (
    BrokerError,
    ClientStateError,
    InvalidSettingError,
    InvalidSubscriptionError,
)
from congreve.client.share.receiving import Receiving
from congreve.client.share.settling import Settling
from congreve.remoting.messages.bodies import HeartbeatData

HEART_BEAT, SEND_BACK = 34, 36
QUICK = ShareSettings(invisible_s=60, pause_after_error_s=0.01, retry_delays_s=(0.25, 0.5))


@asynccontextmanager
async def member(
    *brokers: Pops, tags: str = "*", settings: ShareSettings = QUICK, **options: Any
) -> AsyncIterator[ShareConsumer]:
    cluster = FakeCluster(topics=("T", "TBW102"))
    cluster.brokers |= {broker.name: broker for broker in brokers}
    async with (
        cluster,
        ShareConsumer(
            cluster.address, group="cg", topics={"T": tags}, settings=settings, **options
        ) as consumer,
    ):
        yield consumer


async def test_messages_are_settled_one_by_one() -> None:
    pops = Pops()
    pops.fill(3)
    async with member(pops) as consumer:
        messages = await consumer.receive()
        assert [each.body for each in messages] == [b"0", b"1", b"2"]
        assert consumer.in_flight == 3
        await consumer.ack(messages[1])
        await consumer.ack(messages[1])
        assert pops.acked == [1]
        await consumer.nack(messages[0], delay_s=2)
        await consumer.ack(messages[0])
        assert pops.changed == [(0, 2000)]
        await consumer.extend(messages[2])
        assert pops.changed == [(0, 2000), (2, 60_000)]
        assert consumer.in_flight == 1


async def test_a_heartbeat_comes_before_the_first_pop() -> None:
    pops = Pops()
    pops.fill(1)
    async with member(pops, tags="A || B", consume_from=ConsumeFrom.FIRST_OFFSET) as consumer:
        await consumer.receive(5, wait_s=3, invisible_s=7)
        codes = [request.code for request in pops.requests]
        assert codes.index(HEART_BEAT) < codes.index(POP)
        (data,) = HeartbeatData.decode(pops.asked(HEART_BEAT)[0].body).consumer_data_set
        assert (data.group_name, data.consume_type) == ("cg", "CONSUME_PASSIVELY")
        (pop,) = pops.asked(POP)
        shown = {name: pop.ext_fields[name] for name in ("queueId", "maxMsgNums", "initMode")}
        assert shown == {"queueId": "-1", "maxMsgNums": "5", "initMode": "0"}
        assert (pop.ext_fields["expType"], pop.ext_fields["exp"]) == ("TAG", "A || B")
        assert pop.ext_fields["invisibleTime"] == "7000"


async def test_an_extended_message_is_acknowledged_with_its_new_handle() -> None:
    pops = Pops()
    pops.fill(2)
    async with member(pops) as consumer:
        _, message = await consumer.receive()
        first = pops.pop_ms
        await consumer.extend(message)
        await consumer.ack(message)
        assert pops.handles == [f"1 {first + 1} 60000 4 0 a 0 1"]


async def test_a_message_is_not_extended_while_it_is_acknowledged() -> None:
    pops = Pops()
    pops.fill(1)
    async with member(pops) as consumer:
        (message,) = await consumer.receive()
        await asyncio.gather(consumer.ack(message), consumer.extend(message), consumer.ack(message))
        assert pops.acked == [0]
        assert pops.changed == []


async def test_11174_a_failed_acknowledgement_may_be_tried_again() -> None:
    pops = Pops()
    pops.fill(1)
    async with member(pops) as consumer:
        (message,) = await consumer.receive()
        await consumer.extend(message)
        works = pops.answers[ACK]
        pops.answers[ACK] = refused(1)
        with pytest.raises(BrokerError, match="as configured"):
            await consumer.ack(message)
        assert consumer.in_flight == 1
        pops.answers[ACK] = works
        await consumer.ack(message)
        assert pops.handles[-1].split(" ")[1] == str(pops.pop_ms)


async def test_acknowledgements_of_concurrent_tasks_share_requests() -> None:
    pops = Pops()
    pops.fill(32)
    async with member(pops) as consumer:
        messages = await consumer.receive()
        await asyncio.gather(*map(consumer.ack, messages))
        assert sorted(pops.acked) == list(range(32))
        assert len(pops.asked(ACK, BATCH_ACK)) <= 2


async def test_a_broker_without_batches_of_acknowledgements() -> None:
    pops = Pops()
    pops.fill(4)
    pops.answers[BATCH_ACK] = refused(3)
    async with member(pops) as consumer:
        await consumer.ack(await consumer.receive())
        assert sorted(pops.acked) == [0, 1, 2, 3]


async def test_a_message_whose_tag_only_shares_the_hash_is_acknowledged() -> None:
    pops = Pops()
    pops.fill(3)
    async with member(pops, tags="B") as consumer:
        assert await consumer.receive(wait_s=0.1) == []
        assert sorted(pops.acked) == [0, 1, 2]
        assert consumer.in_flight == 0


async def test_no_more_messages_than_allowed_are_in_flight() -> None:
    pops = Pops()
    pops.fill(10)
    settings = ShareSettings(max_in_flight=4)
    async with member(pops, settings=settings) as consumer:
        messages = await consumer.receive()
        assert len(messages) == 4
        assert await consumer.receive(wait_s=0.05) == []
        waiting = asyncio.create_task(consumer.receive(wait_s=30))
        await asyncio.sleep(0.01)
        await consumer.ack(messages[:2])
        assert [each.body for each in await waiting] == [b"4", b"5"]


async def test_a_message_whose_time_is_over_is_not_in_flight() -> None:
    pops = Pops()
    pops.fill(2)
    settings = ShareSettings(max_in_flight=1, invisible_s=0.05)
    async with member(pops, settings=settings) as consumer:
        await consumer.receive()
        assert [each.body for each in await consumer.receive()] == [b"1"]


async def test_what_a_cancelled_call_received_comes_with_the_next() -> None:
    pops = Pops()
    async with member(pops) as consumer:
        receiving = asyncio.create_task(consumer.receive())
        await eventually(lambda: pops.asked(POP))
        receiving.cancel()
        pops.fill(1)
        await eventually(lambda: pops.next == 1)
        (message,) = await consumer.receive()
        assert message.body == b"0"


async def test_another_broker_serves_while_one_refuses() -> None:
    dead, alive = Pops("a"), Pops("b")
    alive.fill(1)
    dead.handlers[POP] = lambda request, _: request.reply(1)
    async with member(dead, alive) as consumer:
        (message,) = await consumer.receive()
        assert message.queue.broker_name == "b"
        await consumer.ack(message)
        assert alive.acked == [0]


async def test_with_several_brokers_nothing_is_taken_before_it_is_asked_for() -> None:
    one, other = Pops("a"), Pops("b")
    async with member(one, other) as consumer:
        assert await consumer.receive(wait_s=0.05) == []
        one.fill(1)
        other.fill(1)
        await asyncio.sleep(0.05)
        assert one.next == other.next == 0
        assert len(await consumer.receive(1)) == 1
        assert one.next + other.next == 1


async def test_a_broker_may_assign_queues() -> None:
    pops = Pops()
    pops.fill(1)
    entry = '{"messageQueue":{"topic":"T","brokerName":"a","queueId":%d},"mode":"%s"}'
    pops.answers[ASSIGN] = lambda request: request.reply(
        0, body=f'{{"messageQueueAssignments":[{entry % (1, "POP")}]}}'.encode()
    )
    async with member(pops) as consumer:
        await consumer.receive()
        assert {request.ext_fields["queueId"] for request in pops.asked(POP)} == {"1"}


async def test_a_listener_acknowledges_and_refuses() -> None:
    pops = Pops()
    pops.fill(4)

    async def listener(message: ReceivedMessage) -> None:
        if message.body == b"2":
            raise ValueError(message.body)

    async with member(pops, listener=listener) as consumer:
        await eventually(lambda: len(pops.acked) == 3 and pops.changed)
        assert sorted(pops.acked) == [0, 1, 3]
        assert pops.changed == [(2, 250)]
        await eventually(lambda: consumer.in_flight == 0)


async def test_after_the_last_attempt_a_message_is_a_dead_letter() -> None:
    pops = Pops()
    pops.fill(1)

    async def listener(message: ReceivedMessage) -> None:
        raise ValueError(message.body)

    settings = ShareSettings(max_reconsume_times=0)
    async with member(pops, listener=listener, settings=settings):
        await eventually(lambda: pops.acked == [0])
        (sent,) = pops.asked(SEND_BACK)
        assert sent.ext_fields["delayLevel"] == "-1"


async def test_7837_a_message_is_extended_while_its_listener_runs() -> None:
    pops = Pops()
    pops.fill(1)
    done = asyncio.Event()

    async def listener(message: ReceivedMessage) -> None:
        await done.wait()

    settings = ShareSettings(invisible_s=0.1)
    async with member(pops, listener=listener, settings=settings):
        await eventually(lambda: len(pops.changed) >= 3)
        done.set()
        await eventually(lambda: pops.acked == [0])
        assert pops.handles[-1].split(" ")[1] == str(pops.pop_ms)


async def test_stop_gives_back_what_waits_for_a_worker() -> None:
    pops = Pops()
    pops.fill(3)
    begun, done = asyncio.Event(), asyncio.Event()

    async def listener(message: ReceivedMessage) -> None:
        begun.set()
        await done.wait()

    settings = ShareSettings(concurrency=1)
    async with member(pops, listener=listener, settings=settings):
        await begun.wait()
        await eventually(lambda: pops.next == 3)
        asyncio.get_running_loop().call_later(0.05, done.set)
    assert pops.acked == [0]
    assert sorted(pops.changed) == [(1, 0), (2, 0)]


async def test_an_iteration_acknowledges_and_gives_back() -> None:
    pops = Pops()
    pops.fill(4)
    async with member(pops) as consumer:
        messages = aiter(consumer)
        async for message in messages:
            if message.body == b"2":
                break
        await messages.aclose()  # type: ignore[attr-defined]
        assert pops.acked == [0, 1]
        assert sorted(pops.changed) == [(2, 0), (3, 0)]


async def test_hooks_see_what_is_received() -> None:
    pops = Pops()
    pops.fill(2)
    seen: list[object] = []

    class Hook(ConsumeHook):
        def after_receive(self, context: ReceiveContext) -> None:
            seen.append((context.group, len(context.messages)))

        def after_consume(self, context: ConsumeContext) -> None:
            seen.append(context.outcome)

    async with member(pops, hooks=[Hook()]) as consumer:
        await consumer.receive()
    assert seen == [("cg", 2)]


async def test_columns_are_settled_as_a_whole() -> None:
    pytest.importorskip("pyarrow")
    pops = Pops()
    pops.fill(100)
    async with member(pops) as consumer:
        received = await consumer.receive_columns(["body", "brokerName"], max_rows=70)
        assert received is not None
        assert received.batch.column("body").to_pylist() == [b"%d" % i for i in range(70)]
        assert set(received.batch.column("brokerName").to_pylist()) == {"a"}
        await consumer.extend(received, invisible_s=5)
        assert len(pops.asked(CHANGE)) == 70
        await consumer.ack(received)
        assert sorted(pops.acked) == list(range(70))
        await consumer.ack(received)
        assert len(pops.asked(BATCH_ACK)) == 1


async def test_what_the_consumer_refuses() -> None:
    pops = Pops()
    with pytest.raises(InvalidSubscriptionError, match="no topics"):
        ShareConsumer("a:1", group="g", topics={})
    with pytest.raises(InvalidSettingError, match="first or the last offset"):
        ShareConsumer("a:1", group="g", topics={"T": "*"}, consume_from=ConsumeFrom.TIMESTAMP)
    for setting in ({"invisible_s": 50_000}, {"max_in_flight": 0}, {"retry_delays_s": ()}):
        with pytest.raises(InvalidSettingError):
            ShareSettings(**setting)  # type: ignore[arg-type]
    async with member(pops) as consumer:
        with pytest.raises(InvalidSettingError, match="max_count"):
            await consumer.receive(0)
        with pytest.raises(InvalidSettingError, match="at most 43200"):
            await consumer.receive(invisible_s=50_000)
    with pytest.raises(ClientStateError, match="stopped"):
        await consumer.receive()


async def test_pops_and_listeners_go_on_after_an_error_that_is_not_expected(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pops, seen = Pops(), []
    pops.fill(3)

    async def listener(message: ReceivedMessage) -> None:
        seen.append(message.body)

    def fails_once(kind: type, name: str) -> None:
        do, failures = getattr(kind, name), [ValueError(f"in {name}")]

        async def call(*arguments: Any, **options: Any) -> Any:
            if failures:
                raise failures.pop()
            return await do(*arguments, **options)

        monkeypatch.setattr(kind, name, call)

    fails_once(Receiving, "pop")
    fails_once(Settling, "ack")
    async with member(pops, listener=listener, settings=QUICK):
        await eventually(lambda: len(seen) == 3)
        pops.fill(3)
        await eventually(lambda: len(seen) >= 6)
    assert "in pop" in caplog.text and "in ack" in caplog.text
