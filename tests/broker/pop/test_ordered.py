"""Batches of ordered pops, as RocketMQ 5.5's own PopOrderlyIT and BatchAckIT see them."""

import pytest

from congreve.remoting.messages.bodies import SubscriptionGroupConfig

from .popping import OK
from .test_reported_defects import popping, send


async def sequence(member, **changed):
    return [(each.body, each.attempts) for each in await member.pop(order="true", **changed)]


async def test_what_was_acknowledged_behind_a_refused_message_comes_after_it(tmp_path):
    async with popping(tmp_path) as (member, broker):
        await send(member, b"0", b"1", b"2", b"3")
        first, second, third = await member.pop(order="true", maxMsgNums=3)
        assert await member.ack(first) == OK
        assert not isinstance(await member.change(second, 200), int)
        assert await member.ack(third) == OK
        assert await sequence(member) == []
        again = await sequence(member, maxMsgNums=3, pollTime=20_000)
        assert again == [(b"1", 1), (b"2", 1), (b"3", 0)]
        assert broker.managers.metadata.offsets.query("G", "T", 0) == 1


@pytest.mark.parametrize("in_a_batch", [False, True])
async def test_what_was_acknowledged_behind_an_extended_message_is_settled_with_it(
    tmp_path, in_a_batch
):
    async with popping(tmp_path) as (member, broker):
        await send(member, b"0", b"1", b"2")
        first, second, third = await member.pop(order="true")
        extended = await member.change(first, 60_000)
        if in_a_batch:
            assert await member.batch_ack(second, [1, 2]) == OK
        else:
            assert [await member.ack(each) for each in (second, third, third)] == [OK] * 3
        offsets = broker.managers.metadata.offsets
        assert offsets.query("G", "T", 0) == 0
        assert await member.ack(extended) == OK
        assert offsets.query("G", "T", 0) == 3


async def test_what_was_acknowledged_behind_a_message_that_expires_comes_after_it(tmp_path):
    async with popping(tmp_path) as (member, broker):
        await send(member, b"0", b"1", b"2", b"3")
        offsets = broker.managers.metadata.offsets
        assert offsets.query("G", "T", 0) == -1
        for attempts in range(3):
            found = await member.pop(order="true", maxMsgNums=3, invisibleTime=200, pollTime=20_000)
            assert [(each.body, each.attempts) for each in found] == [
                (b"%d" % number, attempts) for number in range(3)
            ]
            assert [await member.ack(each) for each in found[1:]] == [OK, OK]
            assert offsets.query("G", "T", 0) == 0
        found = await member.pop(order="true", maxMsgNums=3, pollTime=20_000)
        for each, settled in zip((found[2], found[0], found[1]), (0, 1, 3), strict=True):
            assert await member.ack(each) == OK
            assert offsets.query("G", "T", 0) == settled
        assert await sequence(member) == [(b"3", 0)]


async def test_an_acknowledged_message_behind_one_that_is_given_up_is_no_dead_letter(tmp_path):
    async with popping(tmp_path) as (member, broker):
        await send(member, b"0", b"1")
        broker.managers.metadata.groups.update(
            SubscriptionGroupConfig(group_name="G", retry_max_times=1)
        )
        for _ in range(2):
            found = await member.pop(order="true", invisibleTime=200, pollTime=20_000)
            assert len(found) == 2
            assert await member.ack(found[1]) == OK
        assert await sequence(member, pollTime=500) == []
        assert broker.managers.metadata.offsets.query("G", "T", 0) == 2
        assert broker.store.max_offset("%DLQ%G", 0) == 1


async def test_a_message_is_due_with_the_one_before_it_that_is_changed_later(tmp_path):
    async with popping(tmp_path) as (member, _):
        await send(member, b"0", b"1")
        first, second = await member.pop(order="true")
        assert await member.ack(second) == OK
        assert not isinstance(await member.change(first, 200), int)
        assert await sequence(member, pollTime=20_000) == [(b"0", 1), (b"1", 1)]


async def test_a_repeated_attempt_leaves_out_what_was_acknowledged(tmp_path):
    async with popping(tmp_path) as (member, _):
        await send(member, b"0", b"1", b"2")
        first, second, _ = await member.pop(order="true", attemptId="a")
        assert not isinstance(await member.change(first, 60_000), int)
        assert await member.ack(second) == OK
        assert await sequence(member, attemptId="a") == [(b"0", 0), (b"2", 0)]


async def test_new_messages_come_behind_a_batch_that_comes_again(tmp_path):
    async with popping(tmp_path) as (member, broker):
        await send(member, b"0", b"1")
        assert len(await member.pop(order="true", invisibleTime=200)) == 2
        await send(member, b"2", b"3")
        again = await member.pop(order="true", maxMsgNums=3, pollTime=20_000)
        assert [(each.body, each.attempts) for each in again] == [(b"0", 1), (b"1", 1), (b"2", 0)]
        assert await member.batch_ack(again[0], [0, 1, 2]) == OK
        assert broker.managers.metadata.offsets.query("G", "T", 0) == 3


async def test_a_message_that_is_sent_on_has_a_handle_of_its_own(tmp_path):
    async with popping(tmp_path) as (member, _):
        for properties in (
            "POP_CK\x01old",
            "DELAY\x010\x02POP_CK\x01old",
            "CLUSTER\x01c\x02POP_CK\x01old",
        ):
            assert (await member.tool.send("T", b"x", 0, properties=properties)).code == OK
        found = await member.pop()
        assert [each.record.properties.get("POP_CK") for each in found] == [None] * 3
