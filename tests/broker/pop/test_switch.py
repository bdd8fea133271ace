"""Members that pull, beside and after members that pop."""

import asyncio

from congreve.records.record import decode_records

from ..tool import PULL_FIELDS, Tool, commit, config_of, running
from .popping import OK, Member


async def pull(tool: Tool, topic: str, offset: int) -> list:
    fields = PULL_FIELDS | {"topic": topic, "queueOffset": str(offset), "maxMsgNums": "32"}
    answer = await tool.ask(11, fields)
    return decode_records(answer.body) if answer.code == OK else []


async def beginning(tool: Tool, topic: str = "T") -> int:
    fields = {"consumerGroup": "G", "topic": topic, "queueId": "0"}
    return int((await tool.ask(14, fields)).ext_fields["offset"])


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
