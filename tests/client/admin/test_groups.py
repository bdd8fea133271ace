"""Consumer groups: lag, members, offsets."""

import pytest

import congreve
from congreve.client import (
    AdminClient,
    ConsumeFrom,
    Message,
    Producer,
    PullConsumer,
    PushConsumer,
)
from congreve.client.errors import InvalidSettingError
from congreve.client.message import MessageQueue


async def _messages(node: congreve.Node, admin: AdminClient, count: int) -> MessageQueue:
    (name,) = await admin.create_topic("T", queues=1)
    async with Producer(node.address, group="p") as producer:
        for _ in range(count):
            await producer.send(Message(topic="T", body=b"m"))
    return MessageQueue(topic="T", broker_name=name, queue_id=0)


async def test_lag_is_reported_in_messages_and_time(node: congreve.Node) -> None:
    async with AdminClient(node.address) as admin, PullConsumer(node.address, group="g") as group:
        queue = await _messages(node, admin, 5)
        await group.commit(queue, 2)
        await group.announce()
        (row,) = await admin.groups.lag("g", "T")
        assert (row.consumer_offset, row.broker_offset, row.lag) == (2, 5, 3)
        assert row.lag_ms >= 0 and row.last_consumed_ms > 0
        await group.commit(queue, 5)
        (row,) = await admin.groups.lag("g", "T")
        assert (row.lag, row.lag_ms) == (0, 0)
        assert "g" in await admin.groups.names()
        summary = {one.group: one for one in await admin.groups.summaries()}["g"]
        assert (summary.members, summary.lag, summary.topics) == (0, 0, 1)
        assert await admin.groups.retry_limit("g") == 16
        assert await admin.groups.delete("g") == [queue.broker_name]
        assert "g" not in await admin.groups.names()


async def test_a_preview_shows_the_changes_of_a_reset(node: congreve.Node) -> None:
    async with AdminClient(node.address) as admin, PullConsumer(node.address, group="g") as group:
        queue = await _messages(node, admin, 5)
        await group.commit(queue, 2)
        (row,) = await admin.groups.reset("g", "T", "last", preview=True)
        assert (row.before, row.after, row.online) == (2, 5, False)
        assert await group.committed(queue) == 2
        await admin.groups.reset("g", "T", "last")
        assert await group.committed(queue) == 5
        await admin.groups.reset("g", "T", "first")
        assert await group.committed(queue) == 0
        stored = await group.pull(queue, 3)
        await admin.groups.reset("g", "T", stored.messages[0].store_timestamp + 60_000)
        assert await group.committed(queue) in (4, 5)
        with pytest.raises(InvalidSettingError, match="to is 'middle'"):
            await admin.groups.reset("g", "T", "middle")  # type: ignore[arg-type]


async def test_members_of_a_running_group_get_the_new_offsets(node: congreve.Node) -> None:
    async with AdminClient(node.address) as admin:
        queue = await _messages(node, admin, 3)
        async with PushConsumer(
            node.address,
            group="g",
            topics={"T": "*"},
            consume_from=ConsumeFrom.FIRST_OFFSET,
        ) as consumer:
            messages = aiter(consumer)
            first = [(await anext(messages)).queue_offset for _ in range(3)]
            (member,) = await admin.groups.members("g")
            assert (member.language, member.broker_name) == ("PYTHON", queue.broker_name)
            await consumer.commit_all()
            (row,) = await admin.groups.reset("g", "T", "first")
            assert (row.after, row.online) == (0, True)
            again = [(await anext(messages)).queue_offset for _ in range(3)]
            assert sorted(first) == sorted(again) == [0, 1, 2]
        assert not await admin.groups.members("g")
