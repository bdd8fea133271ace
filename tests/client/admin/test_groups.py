"""Consumer groups: lag, members, offsets."""

import asyncio
from pathlib import Path

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
from congreve.client.admin.lookup import MessageLookup
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
        assert await group.committed(queue) == 5
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


async def test_a_reset_to_a_time_takes_the_first_message_at_it_or_later(
    node: congreve.Node,
) -> None:
    """A broker answers with the nearest message, which may be an earlier one."""
    async with AdminClient(node.address) as admin, PullConsumer(node.address, group="g") as group:
        await _messages(node, admin, 1)
        async with Producer(node.address, group="p") as producer:
            for _ in range(2):
                await asyncio.sleep(0.02)
                await producer.send(Message(topic="T", body=b"m"))
        [queue] = await group.queues("T")
        times = [message.store_timestamp for message in (await group.pull(queue, 0)).messages]
        for time_ms, wanted in (
            *((times[0] - 1000, 0), (times[1], 1), (times[1] + 1, 2), (times[2], 2)),
            *((times[2] + 1, 3), (times[2] + 3_600_000, 3)),
        ):
            [row] = await admin.groups.reset("g", "T", time_ms, preview=True)
            assert row.after == wanted


async def test_an_offset_id_is_found_at_a_broker_that_is_registered_by_name(
    tmp_path: Path,
) -> None:
    """The id holds an address, the table of brokers a name."""
    with congreve.serve(tmp_path, brokerIP1="localhost") as node:
        async with AdminClient(node.address) as admin, Producer(node.address, group="p") as sender:
            sent = await sender.send(Message(topic="T", body=b"m"))
            found = await MessageLookup(admin).by_offset_id(sent.offset_message_id)
            assert found is not None and found.record.body == b"m"
            other_port = sent.offset_message_id[:8] + "00000001" + sent.offset_message_id[16:]
            assert await MessageLookup(admin).by_offset_id(other_port) is None
