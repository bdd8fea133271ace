"""Pops over TCP: what is handed out, acknowledged, and comes again."""

import asyncio

from harness.eventually import eventually

from congreve.broker.pop import service

from ..tool import config_of, running
from .popping import ILLEGAL, NO_MESSAGE, NOTHING, OK, Member


async def test_a_popped_message_is_out_until_it_is_acknowledged(tmp_path):
    async with running(config_of(tmp_path)) as (tool, broker):
        await tool.create_topic("T", queues=2)
        for number in range(4):
            await tool.send("T", b"%d" % number, number % 2)
        member = Member(tool)
        found = await member.pop()
        assert sorted(message.body for message in found) == [b"0", b"1", b"2", b"3"]
        empty = await member.ask()
        assert (empty.code, empty.remark) == (NOTHING, "NO_MESSAGE_IN_QUEUE")
        offsets = broker.managers.metadata.offsets
        assert offsets.queues("G", "T") == {0: 0, 1: 0}
        for message in found:
            assert await member.ack(message) == OK
        assert offsets.queues("G", "T") == {0: 2, 1: 2}
        assert broker.managers.pops.in_flight.out == 0


async def test_what_is_not_acknowledged_comes_again_from_the_retry_topic(tmp_path):
    async with running(config_of(tmp_path)) as (tool, broker):
        await tool.create_topic("T", queues=1)
        await tool.send("T", b"slow")
        await tool.send("T", b"quick")
        member = Member(tool)
        slow, quick = await member.pop(invisibleTime=200)
        assert await member.ack(quick) == OK
        (again,) = await member.pop(pollTime=5_000)
        assert (again.body, again.record.reconsume_times) == (b"slow", 1)
        assert (again.topic, again.record.topic) == ("%RETRY%G_T", "T")
        properties = again.record.properties
        assert properties["ORIGIN_GROUP"] == "G"
        assert properties["1ST_POP_TIME"] == slow.handle.split(" ")[1]
        assert await member.ack(slow) == ILLEGAL
        assert await member.ack(again) == OK
        assert broker.managers.metadata.offsets.query("G", "T", 0) == 2
        assert broker.managers.metadata.offsets.query("G", "%RETRY%G_T", 0) == 1
        assert await member.pop(pollTime=300) == []


async def test_groups_whose_retry_topics_have_one_name_do_not_share_what_comes_again(tmp_path):
    async with running(config_of(tmp_path)) as (tool, broker):
        for topic in ("b_c", "c"):
            await tool.create_topic(topic, queues=1)
        mine, other = Member(tool, "b_c", "a"), Member(tool, "c", "a_b")
        assert await other.pop() == []
        for number in range(2):
            await tool.send("b_c", b"%d" % number, 0)
        assert len(await mine.pop(invisibleTime=200)) == 2
        await eventually(lambda: broker.store.max_offset("%RETRY%a_b_c", 0) == 2)
        assert await other.pop(pollTime=300) == []
        assert [each.body for each in await mine.pop()] == [b"0", b"1"]
        await tool.send("c", b"theirs", 0)
        (message,) = await other.pop(invisibleTime=200)
        (again,) = await other.pop(pollTime=5_000)
        assert (message.body, again.body, again.topic) == (b"theirs", b"theirs", "%RETRY%a_b_c")
        assert await other.ack(again) == OK
        assert broker.managers.metadata.offsets.query("a_b", "%RETRY%a_b_c", 0) == 3


async def test_a_waiting_pop_gets_the_next_message(tmp_path):
    async with running(config_of(tmp_path)) as (tool, _):
        await tool.create_topic("T", queues=4)
        member = Member(tool)
        waiting = asyncio.create_task(member.pop(pollTime=20_000))
        await asyncio.sleep(0.1)
        await tool.send("T", b"new", 3)
        (message,) = await asyncio.wait_for(waiting, 5)
        assert message.body == b"new"


async def test_a_batch_acknowledges_by_bits(tmp_path):
    async with running(config_of(tmp_path)) as (tool, _):
        await tool.create_topic("T", queues=1)
        for number in range(4):
            await tool.send("T", b"%d" % number)
        member = Member(tool)
        found = await member.pop(invisibleTime=300)
        assert await member.batch_ack(found[0], offsets=[0, 2]) == OK
        again = await member.pop_all(2, pollTime=5_000)
        assert sorted(message.body for message in again) == [b"1", b"3"]
        assert await member.batch_ack() == NO_MESSAGE


async def test_a_copy_that_a_kill_left_without_its_entry_is_the_only_one(tmp_path):
    async with running(config_of(tmp_path)) as (tool, broker):
        await tool.create_topic("T", queues=1)
        await tool.send("T", b"x")
        await Member(tool).pop(invisibleTime=200)
        pops = broker.managers.pops
        pops.journal.write = lambda: True
        while broker.store.max_offset("%RETRY%G_T", 0) < 1:
            await asyncio.sleep(0.05)
        pops.journal.writer.changed = lambda: 0
    async with running(config_of(tmp_path)) as (tool, broker):
        (again,) = await Member(tool).pop(pollTime=5_000)
        assert (again.body, again.record.reconsume_times) == (b"x", 1)
        assert await Member(tool).ack(again) == OK
        assert await Member(tool).pop(pollTime=600) == []


async def test_a_pop_of_old_messages_waits_for_a_thread(tmp_path, monkeypatch):
    monkeypatch.setattr(service, "RECENT_BYTES", -1)
    async with running(config_of(tmp_path)) as (tool, broker):
        await tool.create_topic("T", queues=1)
        await tool.send("T", b"old")
        store = broker.store
        place = store.queues.get("T", 0)[0][0]
        in_memory = iter([False])
        monkeypatch.setattr(
            store,
            "store_time_in_memory",
            lambda *_: (-1, -1) if next(in_memory, True) else (-1, place),
        )
        (message,) = await Member(tool).pop(pollTime=2_500)
        assert message.body == b"old"
        assert store.cold_reads.count == 1


async def test_long_names_have_a_retry_topic(tmp_path):
    group, topic = "g" * 78, "t" * 78
    async with running(config_of(tmp_path)) as (tool, broker):
        await tool.create_topic(topic, queues=1)
        for number in range(3):
            assert (await tool.send(topic, b"%d" % number)).code == OK
        member = Member(tool, topic, group)
        assert len(await member.pop(invisibleTime=100)) == 3
        again = await member.pop_all(3, pollTime=20_000, invisibleTime=60_000)
        assert {each.topic for each in again} == {f"%RETRY%{group}_{topic}"}
        assert await member.ack(again[0]) == OK
        assert await member.batch_ack(again[1], [again[1].offset]) == OK
        changed = await member.change(again[2], 60_000)
        assert not isinstance(changed, int)
        assert await member.ack(changed) == OK
        assert broker.managers.pops.in_flight.out == 0
        names = [name for name in broker.managers.metadata.topics.table if topic in name]
        assert len(names) == 2
        assert (await tool.ask(207, {"groupName": group, "cleanOffset": "true"})).code == OK
        assert (await tool.ask(215, {"topic": topic})).code == OK
        assert not [name for name in broker.managers.metadata.topics.table if topic in name]
