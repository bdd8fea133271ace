"""Polling: a poll completes the messages of the previous one, and seek() sets the next offset."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from harness.fake_cluster import refused
from harness.fake_group import HEART_BEAT, PULL, Group, cluster_of

from congreve.client import ConsumeFrom, LitePullConsumer, MessageQueue, Sql
from congreve.client.errors import ClientStateError, InvalidSettingError, InvalidSubscriptionError
from congreve.remoting.messages.bodies import HeartbeatData

QUEUE = MessageQueue(topic="T", broker_name="a", queue_id=0)
MIN_OFFSET, CHECK_CLIENT = 31, 46


@asynccontextmanager
async def poller(group: Group, **settings: Any) -> AsyncIterator[LitePullConsumer]:
    group.answers[MIN_OFFSET] = lambda request: request.reply(0, ext_fields={"offset": "0"})
    async with (
        cluster_of(group) as cluster,
        LitePullConsumer(
            cluster.address, group="cg", consume_from=ConsumeFrom.FIRST_OFFSET, **settings
        ) as consumer,
    ):
        yield consumer


async def test_polls_return_each_message_once_and_commit_those_of_the_poll_before() -> None:
    group = Group()
    group.fill(0, range(25))
    async with poller(group, topics={"T": "*"}) as consumer:
        sizes = [len(await consumer.poll()) for _ in range(3)]
        assert sizes == [10, 10, 5]
        assert await consumer.poll(timeout_s=0.01) == []
        heard = HeartbeatData.decode(group.asked(HEART_BEAT)[0].body).consumer_data_set[0]
        assert heard.consume_type == "CONSUME_ACTIVELY"
        assert int(group.asked(PULL)[0].ext_fields["sysFlag"]) & 16
    assert group.committed[0] == 25


async def test_an_offset_lost_by_the_broker_is_committed_again() -> None:
    """RocketMQ 4.9.4 loses one of a new group's first two offsets if both arrive at once."""
    group = Group()
    group.fill(0, range(5))
    async with poller(group, topics={"T": "*"}) as consumer:
        assert len(await consumer.poll()) == 5
        await consumer.commit_polled()
        assert group.committed.pop(0) == 5
        await consumer.commit_polled()
        assert group.committed[0] == 5


async def test_messages_of_the_last_poll_are_not_committed() -> None:
    group = Group()
    group.fill(0, range(25))
    async with poller(group, topics={"T": "*"}) as consumer:
        await consumer.poll()
        await consumer.poll()
        assert consumer.position(QUEUE) == 20
    assert group.committed[0] == 10


async def test_without_auto_commit_only_explicit_commits_are_sent() -> None:
    group = Group()
    group.fill(0, range(25))
    async with poller(group, topics={"T": "*"}, auto_commit=False) as consumer:
        await consumer.poll()
        await consumer.poll()
        assert group.committed.get(0) is None
        await consumer.commit_polled()
        assert group.committed[0] == 20
        await consumer.poll()
    assert group.committed[0] == 20


async def test_a_filter_that_the_broker_refuses_is_not_assigned() -> None:
    group = Group()
    group.answers[CHECK_CLIENT] = refused(1)
    async with poller(group) as consumer:
        with pytest.raises(InvalidSubscriptionError, match="enablePropertyFilter=true"):
            await consumer.assign([QUEUE], expression=Sql("a > 1"))
        assert consumer.assigned == []
        with pytest.raises(InvalidSubscriptionError, match="not valid Unicode"):
            await consumer.assign([QUEUE], expression=Sql("a = '\ud800'"))


async def test_assigned_queues_are_read_independently_of_the_group() -> None:
    group = Group()
    group.others = ["000"]
    group.fill(0, range(3))
    group.fill(1, range(3))
    async with poller(group) as consumer:
        await consumer.assign([QUEUE])
        assert consumer.assigned == [QUEUE]
        messages = await consumer.poll()
        assert [message.queue_offset for message in messages] == [0, 1, 2]
        await consumer.assign([])
        assert await consumer.poll(timeout_s=0.01) == []
        assert consumer.assigned == []


async def test_a_seek_discards_pulled_messages() -> None:
    group = Group()
    group.fill(0, range(30))
    group.answers[30] = lambda request: request.reply(0, ext_fields={"offset": "30"})
    async with poller(group) as consumer:
        await consumer.assign([QUEUE])
        await consumer.poll()
        await consumer.seek(QUEUE, 27)
        assert [each.queue_offset for each in await consumer.poll()] == [27, 28, 29]
        await consumer.seek_to_begin(QUEUE)
        assert (await consumer.poll())[0].queue_offset == 0
        await consumer.seek_to_end(QUEUE)
        assert await consumer.poll(timeout_s=0.01) == []
        with pytest.raises(InvalidSettingError, match="0 to 30"):
            await consumer.seek(QUEUE, 31)


async def test_paused_queues_return_no_message() -> None:
    group = Group()
    group.fill(0, range(5))
    async with poller(group) as consumer:
        await consumer.assign([QUEUE])
        await consumer.poll(max_count=1)
        consumer.pause([QUEUE])
        assert await consumer.poll(timeout_s=0.01) == []
        polling = asyncio.create_task(consumer.poll())
        await asyncio.sleep(0)
        consumer.resume([QUEUE])
        assert [each.queue_offset for each in await polling] == [1, 2, 3, 4]


async def test_invalid_arguments_are_refused() -> None:
    async with poller(Group(), topics={"T": "*"}) as consumer:
        with pytest.raises(ClientStateError, match="not available"):
            await consumer.assign([QUEUE])
        with pytest.raises(ClientStateError, match="does not read"):
            consumer.pause([MessageQueue(topic="T", broker_name="a", queue_id=99)])
    with pytest.raises(InvalidSettingError, match="orderly"):
        LitePullConsumer("127.0.0.1:1", group="g", topics={"T": "*"}, orderly=True)
    with pytest.raises(ClientStateError, match="not started"):
        await LitePullConsumer("127.0.0.1:1", group="g", topics={"T": "*"}).poll()
