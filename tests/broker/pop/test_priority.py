"""Messages with a priority (RocketMQ 5.4, RIP-80)."""

import asyncio
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

import congreve
from congreve.broker.broker import Broker
from congreve.broker.config_parts import PopConfig
from congreve.client import ConsumeFrom, Message, Producer, ShareConsumer
from congreve.client.errors import InvalidMessageError
from congreve.remoting.messages.bodies import SubscriptionGroupConfig

from ..tool import config_of, running
from .popping import OK, Member

PRIORITY = "_SYS_MSG_PRIORITY_"


@asynccontextmanager
async def popping(tmp_path, **settings):
    """A member of group G that pops topic T, whose four queues are those of priorities."""
    pops = PopConfig(**settings)
    async with running(config_of(tmp_path, pops=pops)) as (tool, broker):
        await tool.create_topic("T", queues=4)
        topics = broker.managers.metadata.topics
        attributes = {"message.type": "PRIORITY"}
        topics.update(msgspec.structs.replace(topics.table["T"], attributes=attributes))
        yield Member(tool), broker


async def send(member: Member, priority: object, more: str = "") -> int:
    """The queue of the message, whose sender chose the first one."""
    body = str(priority).encode()
    properties = f"{PRIORITY}\x01{priority}{more}"
    answer = await member.tool.send("T", body, 0, properties=properties)
    assert answer.code == OK
    return int(answer.ext_fields["queueId"])


async def one_by_one(member: Member, count: int) -> list[bytes]:
    return [(await member.pop(maxMsgNums=1))[0].body for _ in range(count)]


async def copies(broker: Broker, count: int) -> None:
    """Wait until so many messages have come again."""
    while broker.store.max_offset("%RETRY%G_T", 0) < count:
        await asyncio.sleep(0.02)


async def test_pops_take_the_highest_priority_first(tmp_path):
    async with popping(tmp_path) as (member, broker):
        queues = [await send(member, priority) for priority in (0, 1, 2, 3, 5)]
        assert queues == [0, 1, 2, 3, 3]
        assert broker._paths.stored_by_fast_path == 1  # the event loop opens each queue
        assert await one_by_one(member, 5) == [b"3", b"5", b"2", b"1", b"0"]


async def test_a_lower_number_may_be_the_higher_priority(tmp_path):
    async with popping(tmp_path, priority_order_asc=False) as (member, _):
        for priority in (2, 0, 1):
            await send(member, priority)
        assert await one_by_one(member, 3) == [b"0", b"1", b"2"]


async def test_what_comes_again_comes_after_all_priorities(tmp_path):
    async with popping(tmp_path, pop_from_retry_probability=100) as (member, broker):
        await send(member, 3)
        await member.pop(invisibleTime=50)
        (again,) = await member.pop(pollTime=5_000, invisibleTime=50)
        assert again.record.properties[PRIORITY] == "3"
        await send(member, 0)
        await copies(broker, 2)
        first, last = await member.pop()
        assert (first.body, last.topic) == (b"0", "%RETRY%G_T")
        group = SubscriptionGroupConfig(group_name="G")
        group = group.with_attributes({"priority.factor": "0"})
        broker.managers.metadata.groups.update(group)
        await member.change(last, 1)
        await send(member, 0)
        await copies(broker, 3)
        first, last = await member.pop()
        assert (first.topic, last.body) == ("%RETRY%G_T", b"0")


@pytest.mark.parametrize("asc", [True, False])
async def test_what_comes_again_may_keep_its_queue(tmp_path, asc):
    settings = {"use_separate_retry_queue": True, "priority_order_asc": asc}
    first_again = {"pop_from_retry_probability_for_priority": 100}
    async with popping(tmp_path, **settings, **first_again) as (member, broker):
        for priority in (0, 2, 1, 3):
            await send(member, priority)
        assert len(await member.pop(invisibleTime=50)) == 4
        for queue_id in range(4):
            while broker.store.max_offset("%RETRY%G_T", queue_id) < 1:
                await asyncio.sleep(0.02)
        again = await member.pop()
        order = [3, 2, 1, 0] if asc else [0, 1, 2, 3]
        assert [(each.queue_id, each.body) for each in again] == [(q, b"%d" % q) for q in order]
        assert {each.topic for each in again} == {"%RETRY%G_T"}
        assert [await member.ack(each) for each in again] == [OK] * 4
        assert broker.managers.pops.in_flight.out == 0
        await member.tool.create_topic("T", queues=8)
        await member.tool.send("T", b"7", 7)
        assert len(await member.pop(invisibleTime=50)) == 1
        (grown,) = await member.pop(pollTime=20_000)
        assert (grown.queue_id, grown.body) == (7, b"7")


async def test_a_dead_letter_keeps_its_priority(tmp_path):
    async with popping(tmp_path) as (member, broker):
        group = SubscriptionGroupConfig(group_name="G", retry_max_times=0)
        broker.managers.metadata.groups.update(group)
        await send(member, 2)
        await member.pop(invisibleTime=50)
        assert await member.pop(pollTime=1_000) == []
        letter = broker.managers.pops.redelivery.stored("%DLQ%G", 0, 0)
        assert letter.properties[PRIORITY] == "2"


@pytest.mark.parametrize(
    "more", ["\x02__SHARDINGKEY\x01k", "\x02DELAY\x011", "\x02TIMER_DELIVER_MS\x011"]
)
async def test_messages_of_other_types_have_no_priority(tmp_path, more):
    async with popping(tmp_path) as (member, _):
        assert await send(member, 3, more) == 0
        (message,) = await member.pop(pollTime=5_000)
        assert PRIORITY not in message.record.properties


@pytest.mark.parametrize("value", ["-1", "high", "2147483648"])
async def test_what_is_no_priority_is_kept(tmp_path, value):
    async with popping(tmp_path) as (member, _):
        assert await send(member, value) == 0
        (message,) = await member.pop()
        assert message.record.properties[PRIORITY] == value


async def test_the_client_sends_and_receives_by_priority(tmp_path: Path) -> None:
    async with (
        congreve.serve(tmp_path) as node,
        Producer(node.address, group="p") as producer,
    ):
        await producer.send(Message(topic="T", body=b"first", priority=0))
        topics = node.broker.managers.metadata.topics
        attributes = {"message.type": "PRIORITY"}
        topics.update(msgspec.structs.replace(topics.table["T"], attributes=attributes))
        last = topics.table["T"].write_queue_nums - 1
        queues = []
        for priority in (0, 1, 10**9):
            message = Message(topic="T", body=b"%d" % priority, priority=priority)
            queues.append((await producer.send(message)).queue.queue_id)
        assert queues == [0, min(1, last), last]
        with pytest.raises(InvalidMessageError, match="a batch goes to one queue"):
            await producer.send_batch([Message(topic="T", body=b"x", priority=1)])
        with pytest.raises(InvalidMessageError, match="priority -1"):
            await producer.send(Message(topic="T", body=b"x", priority=-1))
        first = ConsumeFrom.FIRST_OFFSET
        async with ShareConsumer(
            node.address, group="g", topics={"T": "*"}, consume_from=first
        ) as consumer:
            found = await consumer.receive()
            assert found[0].body == b"%d" % 10**9
