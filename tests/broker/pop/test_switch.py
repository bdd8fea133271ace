"""Members that pull, beside and after members that pop."""

import asyncio
from unittest.mock import patch

from harness.eventually import eventually

from congreve.base.clock import ManualClock
from congreve.broker.broker import Broker
from congreve.broker.pop.lanes.pop_plan import pop_key
from congreve.records.message.message import Record
from congreve.records.record import decode_records
from congreve.remoting.messages import fastjson

from ..tool import PULL_FIELDS, Tool, commit, config_of, running
from .popping import OK, Member


async def pull(tool: Tool, topic: str, offset: int) -> list:
    fields = PULL_FIELDS | {"topic": topic, "queueOffset": str(offset), "maxMsgNums": "32"}
    answer = await tool.ask(11, fields)
    return decode_records(answer.body) if answer.code == OK else []


async def beginning(tool: Tool, topic: str = "T") -> int:
    fields = {"consumerGroup": "G", "topic": topic, "queueId": "0"}
    return int((await tool.ask(14, fields)).ext_fields["offset"])


def sent_back(broker: Broker, topic: str | None, body: bytes, retries: str = "%RETRY%G") -> None:
    """A message in a retry topic, as a consumer sends it back."""
    broker.managers.metadata.topics.create_internal(retries, 1)
    put = broker.store.put(
        Record(
            topic=retries,
            body=body,
            properties={} if topic is None else {"RETRY_TOPIC": topic, "ORIGIN_MESSAGE_ID": "id"},
            reconsume_times=1,
            born_host=("127.0.0.1", 1),
            store_host=("127.0.0.1", 1),
        )
    )
    assert put.status.name == "PUT_OK"


async def heart_beat(tool: Tool, *topics: str) -> None:
    """That of a member of group G which pulls these topics."""
    subscriptions = [
        {"topic": topic, "subString": "*", "subVersion": 5, "tagsSet": []} for topic in topics
    ]
    member = {
        "groupName": "G",
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "subscriptionDataSet": subscriptions,
        "unitMode": False,
    }
    body = {"clientID": "c", "consumerDataSet": [member], "producerDataSet": []}
    assert (await tool.ask(34, body=fastjson.dumps(body).encode())).code == OK


async def test_pops_get_what_members_that_pulled_have_sent_back(tmp_path):
    async with running(config_of(tmp_path)) as (tool, broker):
        await tool.create_topic("T", queues=1)
        await tool.create_topic("U", queues=1)
        sent_back(broker, "T", b"1")
        sent_back(broker, "U", b"2")
        sent_back(broker, "%RETRY%G", b"3")
        member = Member(tool)
        waiting = asyncio.create_task(member.pop_all(2, pollTime=20_000))
        found = await asyncio.wait_for(waiting, 20)
        assert sorted(each.body for each in found) == [b"1", b"3"]
        assert {(each.topic, each.record.topic) for each in found} == {("%RETRY%G_T", "T")}
        assert {each.record.reconsume_times for each in found} == {1}
        sent_back(broker, None, b"4")
        (last,) = await asyncio.wait_for(member.pop(pollTime=20_000), 20)
        for message in (*found, last):
            assert await member.ack(message) == OK
        (other,) = await Member(tool, topic="U").pop(pollTime=5_000)
        assert (other.body, other.topic) == (b"2", "%RETRY%G_U")
        assert broker.managers.metadata.offsets.query("G", "%RETRY%G", 0) == 4
        assert await member.pop(pollTime=300) == []


async def test_a_member_that_pulls_its_retry_topic_keeps_it(tmp_path):
    async with running(config_of(tmp_path)) as (tool, broker):
        await tool.create_topic("T", queues=1)
        await heart_beat(tool, "T", "%RETRY%G")
        sent_back(broker, "T", b"x")
        member = Member(tool)
        assert await member.pop(pollTime=300) == []
        (message,) = await pull(tool, "%RETRY%G", 0)
        assert message.body == b"x"
        await heart_beat(tool, "T")  # it pops from now on
        (again,) = await member.pop(pollTime=5_000)
        assert again.body == b"x"


async def test_what_was_taken_over_goes_back_to_members_that_pull(tmp_path):
    async with running(config_of(tmp_path)) as (tool, broker):
        await tool.create_topic("T", queues=1)
        await tool.create_topic("U", queues=1)
        sent_back(broker, "U", b"x")
        await Member(tool).pop(pollTime=300)
        assert broker.store.max_offset("%RETRY%G_U", 0) == 1
        await heart_beat(tool, "U", "%RETRY%G")
        await beginning(tool, "U")
        broker.managers.pops._save()  # what is done every five seconds
        while broker.store.max_offset("%RETRY%G", 0) < 2:
            await asyncio.sleep(0.05)
        (again,) = await pull(tool, "%RETRY%G", 1)
        assert (again.body, again.reconsume_times) == (b"x", 1)
        assert again.properties["RETRY_TOPIC"] == "U"


async def test_a_message_that_was_taken_over_comes_once_after_a_kill(tmp_path):
    async with running(config_of(tmp_path)) as (tool, broker):
        await tool.create_topic("T", queues=1)
        await Member(tool).pop()
        sent_back(broker, "T", b"x")
        pops = broker.managers.pops
        pops.take_over_retries("G", "T")
        pops.journal.write = lambda: True
        while broker.store.max_offset("%RETRY%G_T", 0) < 1:
            await asyncio.sleep(0.05)
        pops.journal.writer.changed = lambda: 0
    async with running(config_of(tmp_path)) as (tool, broker):
        (again,) = await Member(tool).pop(pollTime=5_000)
        assert again.body == b"x"
        assert await Member(tool).ack(again) == OK
        assert await Member(tool).pop(pollTime=600) == []


async def test_the_retry_topic_of_the_second_form_is_read(tmp_path):
    second = "%RETRY%G+T"
    async with running(config_of(tmp_path)) as (tool, broker):
        await tool.create_topic("T", queues=1)
        sent_back(broker, "T", b"x", second)
        member = Member(tool)
        (message,) = await member.pop(invisibleTime=200)
        assert (message.body, message.topic, message.record.topic) == (b"x", second, "T")
        (again,) = await member.pop(pollTime=5_000)
        assert (again.topic, again.record.reconsume_times) == (second, 2)
        assert await member.batch_ack(again, offsets=[again.offset]) == OK
        assert await member.pop(pollTime=300) == []
        assert (await tool.ask(215, {"topic": "T"})).code == OK
        assert second not in broker.managers.metadata.topics.table


async def test_a_member_that_pulls_gets_what_was_out_from_the_retry_topic(tmp_path):
    async with running(config_of(tmp_path)) as (tool, broker):
        await tool.create_topic("T", queues=1)
        for number in range(4):
            await tool.send("T", b"%d" % number)
        member = Member(tool)
        found = await member.pop(invisibleTime=300, maxMsgNums=3)
        assert await member.ack(found[1]) == OK
        assert await beginning(tool) == 3
        (left,) = await pull(tool, "T", 3)
        assert left.body == b"3"
        assert (await tool.ask(15, commit("G", "T", 4))).code == OK
        store = broker.store
        while store.max_offset("%RETRY%G", 0) < 2:
            await asyncio.sleep(0.05)
        again = await pull(tool, "%RETRY%G", 0)
        assert [record.body for record in again] == [b"0", b"2"]
        assert [record.reconsume_times for record in again] == [1, 1]
        assert {record.properties["RETRY_TOPIC"] for record in again} == {"T"}
        assert await member.pop(pollTime=300) == []


async def test_what_waits_to_be_popped_again_is_moved_to_members_that_pull(tmp_path):
    async with running(config_of(tmp_path)) as (tool, broker):
        await tool.create_topic("T", queues=1)
        await tool.send("T", b"x")
        await Member(tool).pop(invisibleTime=100)
        store = broker.store
        while store.max_offset("%RETRY%G_T", 0) < 1:
            await asyncio.sleep(0.05)
        await beginning(tool)
        broker.managers.pops._save()  # what is done every five seconds
        while store.max_offset("%RETRY%G", 0) < 1:
            await asyncio.sleep(0.05)
        (again,) = await pull(tool, "%RETRY%G", 0)
        assert (again.body, again.reconsume_times) == (b"x", 1)
        assert await Member(tool).pop(pollTime=300) == []


async def test_pops_begin_behind_what_members_that_pull_have_consumed(tmp_path):
    async with running(config_of(tmp_path)) as (tool, broker):
        await tool.create_topic("T", queues=1)
        for number in range(3):
            await tool.send("T", b"%d" % number)
        await tool.heart_beat("G", "T")
        assert (await tool.ask(15, commit("G", "T", 2))).code == OK
        member = Member(tool)
        (last,) = await member.pop()
        assert last.body == b"2"
        assert await member.ack(last) == OK
        assert (await tool.ask(15, commit("G", "T", 2))).code == OK  # late: ignored
        assert broker.managers.metadata.offsets.query("G", "T", 0) == 3


async def test_lanes_serve_the_pops_again_when_no_member_pulls_any_more(tmp_path):
    clock = ManualClock(1_700_000_000_000)
    async with running(config_of(tmp_path), clock=clock) as (tool, broker):
        await tool.create_topic("T", queues=1)
        await tool.send("T", b"x")
        await tool.heart_beat("G", "T")
        pops, plan = broker.managers.pops, pop_key("G", "T", -1, None, None)

        async def lanes_pop(*, pulls: bool) -> bool:
            """Whether they do 15 seconds later, in which a member may have pulled."""
            for _ in range(3):
                clock.advance(5_000)
                pops._save()  # what is done every five seconds
                if pulls:
                    await pull(tool, "T", 0)
            assert await Member(tool).pop() == []
            return pops.plans.has(plan)

        assert [each.body for each in await Member(tool).pop(invisibleTime=3_600_000)] == [b"x"]
        assert pops.plans.has(plan)
        await pull(tool, "T", 0)  # which lets a lane serve the next ones
        assert not pops.plans.has(plan)
        assert not any([await lanes_pop(pulls=True) for _ in range(6)])
        assert [await lanes_pop(pulls=False) for _ in range(5)][-2:] == [True, True]
        await pull(tool, "T", 0)
        assert not pops.plans.has(plan)


async def test_a_backlog_of_pops_is_moved_to_members_that_pull_at_once(tmp_path):
    async with running(config_of(tmp_path)) as (tool, broker):
        await tool.create_topic("T", queues=1)
        for number in range(12):
            await tool.send("T", b"%d" % number)
        await Member(tool).pop(invisibleTime=100)
        store, pops = broker.store, broker.managers.pops
        while store.max_offset("%RETRY%G_T", 0) < 12:
            await asyncio.sleep(0.05)
        await beginning(tool)
        with patch("congreve.broker.pop.service.MOVED_AT_ONCE", 5):
            pops._save()
            await eventually(lambda: store.max_offset("%RETRY%G", 0) == 12)
