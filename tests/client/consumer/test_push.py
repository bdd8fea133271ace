"""A member of a group with a fake broker."""

import asyncio
from typing import Any

import pytest
from harness.eventually import eventually
from harness.fake_cluster import refused
from harness.fake_group import (
    HEART_BEAT,
    MEMBERS,
    PULL,
    SEND_BACK,
    UNREGISTER,
    Group,
    cluster_of,
    member,
    take,
)

from congreve.client import (
    ConsumeFrom,
    ConsumerSettings,
    MessageQueue,
    PushConsumer,
    ReceivedMessage,
    Sql,
)
from congreve.client.consumer.listening import Listening
from congreve.client.errors import (
    ClientStateError,
    InvalidNameError,
    InvalidSubscriptionError,
    NoNameServerError,
)
from congreve.remoting.messages.bodies import HeartbeatData

CHECK_CLIENT = 46


async def test_messages_arrive_in_order_and_are_committed_at_the_end() -> None:
    group = Group()
    group.fill(0, range(100))
    async with member(group) as consumer:
        assert await take(consumer, 100) == [b"%d" % i for i in range(100)]
    assert group.committed[0] == 100


async def test_a_message_in_progress_is_not_committed() -> None:
    group = Group()
    group.fill(0, range(10))
    async with member(group) as consumer:
        async for message in consumer:
            if message.queue_offset == 4:
                break
    assert group.committed[0] == 4


async def test_a_failed_message_is_not_committed() -> None:
    group = Group()
    group.fill(0, range(10))

    async def work(consumer: PushConsumer) -> None:
        async for message in consumer:
            if message.queue_offset == 7:
                raise RuntimeError("work failed")

    async with member(group) as consumer:
        with pytest.raises(RuntimeError):
            await work(consumer)
    assert group.committed[0] == 7


async def test_a_group_continues_at_its_offsets() -> None:
    group = Group()
    group.fill(0, range(10))
    group.committed = {0: 6, 1: 0}
    async with member(group) as consumer:
        assert await take(consumer, 4) == [b"6", b"7", b"8", b"9"]


async def test_new_group_begins_at_the_end_by_default() -> None:
    group = Group()
    group.fill(0, range(8))
    async with member(group, consume_from=ConsumeFrom.LAST_OFFSET) as consumer:
        assert await take(consumer, 3) == [b"5", b"6", b"7"]


async def test_a_consumer_reports_its_start_and_stop_to_the_broker() -> None:
    group = Group()
    async with member(group, tags="A || B") as consumer:
        data = HeartbeatData.decode(group.asked(HEART_BEAT)[0].body)
        (heard,) = data.consumer_data_set
        assert (heard.group_name, heard.consume_type, heard.message_model) == (
            "cg",
            "CONSUME_PASSIVELY",
            "CLUSTERING",
        )
        topics = {one.topic: one for one in heard.subscription_data_set}
        assert set(topics) == {"T", "%RETRY%cg"}
        assert topics["T"].tags_set == ["A", "B"]
        assert topics["T"].code_set == [65, 66]
        assert topics["%RETRY%cg"].sub_string == "*"
        client_id = consumer.client_id
    (request,) = group.asked(UNREGISTER)
    assert request.ext_fields == {"clientID": client_id, "consumerGroup": "cg"}


async def test_a_notification_starts_a_rebalance_at_once() -> None:
    group = Group()
    group.fill(1, range(3))
    async with member(group) as consumer:
        assert [queue.queue_id for queue in consumer.assigned] == [0, 1]
        assert await take(consumer, 3)
        group.others = ["000-sorts-first"]
        await group.notify()
        await eventually(lambda: [queue.queue_id for queue in consumer.assigned] == [1])
        group.others = ["zzz-sorts-last"]
        await group.notify()
        await eventually(lambda: [queue.queue_id for queue in consumer.assigned] == [0])
        assert group.committed[1] == 3


async def test_messages_of_a_lost_queue_are_not_delivered() -> None:
    group = Group()
    group.fill(0, range(5))
    async with member(group) as consumer:
        assert await take(consumer, 2) == [b"0", b"1"]
        group.others = ["000-sorts-first"]
        await group.notify()
        await eventually(lambda: [queue.queue_id for queue in consumer.assigned] == [1])
        await eventually(lambda: group.committed.get(0) == 2)
        group.fill(1, range(1))
        group.fill(0, [])
        late = asyncio.create_task(take(consumer, 1))
        await asyncio.sleep(0.05)
        assert not late.done()
        late.cancel()


async def test_failing_pulls_are_repeated() -> None:
    group = Group()
    group.fill(0, range(3))
    group.failures = 4
    async with member(group) as consumer:
        assert len(await take(consumer, 3)) == 3


async def test_offset_beyond_the_end_is_corrected() -> None:
    group = Group()
    group.fill(0, range(3))
    group.committed = {0: 50, 1: 0}
    async with member(group) as consumer:
        await eventually(lambda: len(group.asked(PULL)) >= 3)
        assert MessageQueue(topic="T", broker_name="a", queue_id=0) in consumer.assigned
    assert group.committed[0] == 3


async def test_a_message_that_was_sent_back_counts_as_done() -> None:
    group = Group()
    group.fill(0, range(2))
    async with member(group) as consumer:
        async with asyncio.timeout(60):
            async for message in consumer:
                await consumer.send_back(message, delay_level=2)
                if message.queue_offset == 1:
                    break
        request = group.asked(SEND_BACK)[0]
        assert request.ext_fields == {
            "offset": "1000",
            "group": "cg",
            "delayLevel": "2",
            "originMsgId": "U0",
            "originTopic": "T",
            "unitMode": "false",
            "maxReconsumeTimes": "16",
        }
    assert group.committed[0] == 2


async def test_stopping_ends_all_iterations() -> None:
    group = Group()

    async def work(consumer: PushConsumer) -> int:
        return len([message async for message in consumer])

    async with member(group) as consumer:
        tasks = [asyncio.create_task(work(consumer)) for _ in range(3)]
        await asyncio.sleep(0)
    assert await asyncio.gather(*tasks) == [0, 0, 0]


async def test_unreachable_member_list_keeps_the_queues() -> None:
    group = Group()
    async with member(group) as consumer:
        assert len(consumer.assigned) == 2
        group.answers[MEMBERS] = refused(1, "no consumer for this group")
        asked = len(group.asked(MEMBERS))
        await group.notify()
        await eventually(lambda: len(group.asked(MEMBERS)) > asked)
        assert len(consumer.assigned) == 2


async def test_a_failed_start_leaves_no_task_running() -> None:
    with pytest.raises(InvalidSubscriptionError, match="no topics"):
        PushConsumer("127.0.0.1:1", group="cg", topics={})
    with pytest.raises(InvalidNameError):
        PushConsumer("127.0.0.1:1", group="cg", topics={"a b": "*"})
    consumer = PushConsumer("127.0.0.1:1", group="cg", topics={"T": "*"})
    with pytest.raises(NoNameServerError):
        await consumer.start()
    with pytest.raises(ClientStateError, match="stopped"):
        await consumer.queues("T")


async def test_a_topic_created_later_is_consumed() -> None:
    settings = ConsumerSettings(rebalance_s=0.02)
    group = Group()
    async with (
        cluster_of(group, topics=()) as cluster,
        PushConsumer(cluster.address, group="cg", topics={"T": "*"}, settings=settings) as consumer,
    ):
        assert consumer.assigned == []
        cluster.register("a", "T", perm=4)
        await eventually(lambda: len(consumer.assigned) == 2)
        assert group.asked(HEART_BEAT)


async def test_only_the_messages_of_a_cancelled_task_are_redelivered() -> None:
    group = Group()
    group.fill(0, range(4))
    had = asyncio.Event()
    async with member(group) as consumer:

        async def work() -> None:
            async for message in consumer:
                if message.body == b"1":
                    had.set()
                    await asyncio.Event().wait()

        task = asyncio.create_task(work())
        await had.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert await take(consumer, 3) == [b"1", b"2", b"3"]
    assert group.committed[0] == 4


async def test_an_interrupted_stop_completes_and_the_next_one_waits_for_it() -> None:
    group = Group()
    group.fill(0, range(10))
    async with member(group) as consumer:
        assert await take(consumer, 10) == [b"%d" % i for i in range(10)]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await consumer.stop()
        await consumer.stop()
        assert group.committed[0] == 10
        with pytest.raises(ClientStateError):
            consumer.check_running()


async def test_a_filter_that_the_broker_refuses_is_an_error_at_the_start() -> None:
    """By default RocketMQ evaluates no SQL92 filters: a consumer would wait without an end."""
    group = Group()
    group.answers[CHECK_CLIENT] = refused(1)
    with pytest.raises(InvalidSubscriptionError, match="enablePropertyFilter=true"):
        async with member(group, tags=Sql("a > 1")):
            pass
    assert group.asked(CHECK_CLIENT)


async def test_a_broker_that_checks_no_filters_is_asked_by_pulls_alone() -> None:
    group = Group()
    group.answers[CHECK_CLIENT] = refused(3)
    group.fill(0, range(3))
    async with member(group, tags=Sql("a > 1")) as consumer:
        assert await take(consumer, 3) == [b"0", b"1", b"2"]


async def test_a_queue_is_pulled_again_after_an_error_that_is_not_expected(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    group, failures = Group(), [ValueError("unexpected"), ValueError("unexpected")]
    group.fill(0, range(3))
    take_pulled = PushConsumer._take

    def failing(consumer: PushConsumer, *arguments: Any) -> None:
        if failures:
            raise failures.pop()
        take_pulled(consumer, *arguments)

    monkeypatch.setattr(PushConsumer, "_take", failing)
    async with member(group) as consumer:
        assert await take(consumer, 3) == [b"0", b"1", b"2"]
    assert "pull failed" in caplog.text and "ValueError: unexpected" in caplog.text


async def test_an_orderly_queue_goes_on_after_an_error_that_is_not_expected(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    group, failures, seen = Group(), [KeyError("unexpected")], []
    group.fill(0, range(3))
    run = Listening.run

    async def failing(listening: Listening, *arguments: Any, **options: Any) -> Any:
        if failures:
            raise failures.pop()
        return await run(listening, *arguments, **options)

    async def listener(message: ReceivedMessage) -> None:
        seen.append(message.body)

    monkeypatch.setattr(Listening, "run", failing)
    async with member(group, listener=listener, orderly=True):
        await eventually(lambda: len(seen) == 3)
    assert seen == [b"0", b"1", b"2"]
    assert "messages are delivered again" in caplog.text
