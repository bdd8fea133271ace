"""Defects of RocketMQ's POP that users have reported; each test has the number of its issue.

Those without a number were observed with version 5.5.0.
"""

import asyncio
import random
import time
from contextlib import asynccontextmanager

import msgspec
import pytest

from congreve.remoting.messages.admin_headers import ResetOffsetRequestHeader
from congreve.remoting.messages.bodies import SubscriptionGroupConfig
from congreve.remoting.transport.client import RemotingClient

from ..tool import Tool, config_of, running
from .popping import CHANGE, ILLEGAL, NOTHING, OK, Member

TOGETHER = 2_000
"""Requests that wait for their answers."""


@pytest.fixture
def size(quick, kill_rounds) -> int:
    """0 for `make check`, 1 for `make test`, 2 for `make soak`."""
    return 0 if quick else 2 if kill_rounds >= 1_000 else 1


@asynccontextmanager
async def popping(tmp_path, queues: int = 1, **settings):
    """A member of group G that pops topic T, and the broker."""
    async with running(config_of(tmp_path, **settings)) as (tool, broker):
        await tool.create_topic("T", queues=queues)
        yield Member(tool), broker


async def send(member: Member, *bodies: bytes, queue_id: int = 0, tag: str = "a") -> None:
    for body in bodies:
        answer = await member.tool.send("T", body, queue_id, properties=f"TAGS\x01{tag}")
        assert answer.code == 0


async def bodies(member: Member, **changed: object) -> list[bytes]:
    return [message.body for message in await member.pop(**changed)]


# --- handles


async def test_9583_10259_the_old_handle_is_refused_after_a_change(tmp_path):
    async with popping(tmp_path) as (member, _):
        await send(member, b"x")
        (first,) = await member.pop()
        changed = await member.change(first, 300)
        assert await member.ack(first) == ILLEGAL
        (again,) = await member.pop(pollTime=5_000)
        assert again.body == b"x"
        assert await member.ack(changed) == ILLEGAL
        newer = await member.change(again, 60_000)
        assert await member.ack(newer) == OK
        assert await member.pop() == []


async def test_a_second_change_with_one_handle_is_refused(tmp_path):
    async with popping(tmp_path) as (member, _):
        await send(member, b"x")
        (first,) = await member.pop()
        assert not isinstance(await member.change(first, 200), int)
        assert await member.change(first, 200) == ILLEGAL
        (again,) = await member.pop(pollTime=5_000)
        assert await member.ack(again) == OK
        assert await member.change(again, 100) == ILLEGAL
        assert await member.pop(pollTime=400) == []


@pytest.mark.parametrize("wrong", [{"consumerGroup": "H"}, {"topic": "U"}, {"extraInfo": "x y"}])
async def test_an_acknowledgement_of_another_group_or_topic_is_refused(tmp_path, wrong):
    async with popping(tmp_path) as (member, _):
        await member.tool.create_topic("U", queues=1)
        await member.tool.send("U")
        await send(member, b"x")
        (message,) = await member.pop(invisibleTime=200)
        assert await member.ack(message, **wrong) == ILLEGAL
        assert await bodies(member, pollTime=5_000) == [b"x"]


async def test_5408_3443_further_acknowledgements_change_nothing(tmp_path):
    async with popping(tmp_path) as (member, broker):
        await send(member, b"1", b"2")
        first, second = await member.pop()
        for _ in range(3):
            assert await member.ack(first) == OK
        assert broker.managers.metadata.offsets.query("G", "T", 0) == 1
        assert await member.ack(second) == OK
        assert broker.managers.metadata.offsets.query("G", "T", 0) == 2


async def test_9956_many_changes_at_once_delay_nothing(tmp_path, size):
    count = (2_000, 20_000, 100_000)[size]
    async with popping(tmp_path) as (member, broker):
        for start in range(0, count, 500):
            await asyncio.gather(*(send(member, b"%d" % n) for n in range(start, start + 500)))
        found = await member.pop_all(count, invisibleTime=600_000)
        for at in range(0, count, TOGETHER):
            part = found[at : at + TOGETHER]
            found[at : at + TOGETHER] = await asyncio.gather(
                *(member.change(message, 600_000) for message in part)
            )
        assert broker.managers.pops.in_flight.out == count
        for at in range(0, count, TOGETHER):
            part = found[at : at + TOGETHER]
            assert set(await asyncio.gather(*map(member.ack, part))) == {OK}
        assert broker.managers.metadata.offsets.query("G", "T", 0) == count


# --- in time


async def test_1344_4815_what_is_not_acknowledged_comes_again_in_time(tmp_path):
    async with popping(tmp_path) as (member, _):
        await send(member, b"x")
        (message,) = await member.pop(invisibleTime=500)
        due_ms = int(message.handle.split(" ")[1]) + 500
        assert await member.pop() == []
        answer = await member.ask(pollTime=20_000)
        assert answer.code == OK
        assert int(answer.ext_fields["popTime"]) >= due_ms


async def test_6681_a_waiting_pop_wakes_for_what_comes_again(tmp_path):
    async with popping(tmp_path) as (member, _):
        await send(member, b"x")
        (message,) = await member.pop()
        waiting = asyncio.create_task(member.pop(pollTime=60_000))
        await asyncio.sleep(0.1)
        assert not isinstance(await member.change(message, 100), int)
        (again,) = await asyncio.wait_for(waiting, 20)
        assert again.body == b"x"


async def test_8472_a_pop_finds_the_one_message_that_its_filter_wants(tmp_path, quick):
    count = 1_000 if quick else 10_000
    async with popping(tmp_path) as (member, broker):
        for start in range(0, count, 500):
            await asyncio.gather(*(send(member, b"no", tag="b") for _ in range(start, start + 500)))
        waiting = asyncio.create_task(bodies(member, exp="a", expType="TAG", pollTime=60_000))
        await asyncio.sleep(0.05)
        await send(member, b"yes", tag="a")
        assert await asyncio.wait_for(waiting, 20) == [b"yes"]
        assert broker.managers.metadata.offsets.query("G", "T", 0) == count


async def test_9339_what_a_filter_leaves_out_is_committed(tmp_path):
    async with popping(tmp_path) as (member, _):
        await send(member, *[b"no"] * 10, tag="b")
        assert (await member.ask(exp="a", expType="TAG")).code == NOTHING
        stats = await member.tool.json(208, {"consumerGroup": "G", "topic": "T"})
        (row,) = stats["offsetTable"].values()
        assert (row["brokerOffset"], row["consumerOffset"]) == (10, 10)


async def test_4367_the_lag_is_never_negative(tmp_path):
    async with popping(tmp_path, queues=2) as (member, _):
        for queue_id in (0, 1):
            await send(member, b"1", b"2", queue_id=queue_id)
        for message in await member.pop():
            await member.ack(message)
        stats = await member.tool.json(208, {"consumerGroup": "G"})
        rows = stats["offsetTable"].values()
        assert len(rows) == 3  # and the retry topic
        assert all(row["brokerOffset"] >= row["consumerOffset"] for row in rows)


async def test_10058_a_backlog_of_retries_drains(tmp_path, size):
    count = (500, 10_000, 10_000)[size]
    async with popping(tmp_path) as (member, broker):
        for start in range(0, count, 500):
            await asyncio.gather(*(send(member, b"%d" % n) for n in range(start, start + 500)))
        await member.pop_all(count, invisibleTime=300)
        again = await member.pop_all(count, pollTime=5_000, queueId=0)
        assert {message.body for message in again} == {b"%d" % n for n in range(count)}
        codes = await asyncio.gather(*(member.ack(message) for message in again))
        assert set(codes) == {OK}
        assert broker.managers.pops.in_flight.out == 0


async def test_3787_acknowledged_messages_stay_away_from_a_slow_consumer(tmp_path, size):
    count, pause_s = ((40, 0.01), (40, 0.01), (6_000, 0.1))[size]
    async with popping(tmp_path) as (member, _):
        await send(member, *(b"%d" % n for n in range(count)))
        seen: list[bytes] = []
        while len(seen) < count:
            for message in await member.pop(maxMsgNums=4, invisibleTime=60_000):
                assert await member.ack(message) == OK
                seen.append(message.body)
                await asyncio.sleep(pause_s)
        assert sorted(seen) == sorted(set(seen))
        assert await member.pop(pollTime=300) == []


async def test_5813_clients_that_die_while_they_poll_block_nothing(tmp_path, size):
    async with popping(tmp_path) as (member, broker):
        for _ in range((20, 300, 1_000)[size]):
            async with Dying(broker.address) as dying:
                await dying.ask(member.fields(pollTime=60_000))
        await send(member, b"x")
        assert await bodies(member, pollTime=2_500) == [b"x"]


async def test_9253_what_a_lost_client_popped_comes_again_soon(tmp_path):
    async with popping(tmp_path) as (member, broker):
        await send(member, b"x")
        async with Dying(broker.address) as dying:
            await dying.ask(member.fields(invisibleTime=3_600_000))
            while not broker.managers.pops.in_flight.out:
                await asyncio.sleep(0.01)
        (again,) = await member.pop(pollTime=20_000)
        assert (again.body, again.record.reconsume_times) == (b"x", 1)


async def test_11083_5866_clients_that_came_and_went_leave_nothing(tmp_path, size):
    async with popping(tmp_path) as (member, broker):
        pops = broker.managers.pops
        await member.pop()  # the group, and its retry topic
        for _ in range((20, 300, 10_000)[size]):
            async with Dying(broker.address) as dying:
                await dying.ask(member.fields(pollTime=600_000, attemptId="a" * 1_000))
                while not len(pops.waiting):
                    await asyncio.sleep(0)
        for _ in range(200):
            if not len(pops.waiting):
                break
            await send(member, b"x")  # what wakes them finds that they are gone
            await asyncio.sleep(0.05)
        assert len(pops.waiting) == 0
        assert set(await bodies(member, pollTime=2_500)) == {b"x"}


class Dying:
    """A connection that asks, and is reset before its answer."""

    def __init__(self, address: str) -> None:
        self._host, _, self._port = address.rpartition(":")

    async def __aenter__(self) -> "Dying":
        _, self._writer = await asyncio.open_connection(self._host, int(self._port))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.transport.abort()

    async def ask(self, fields: dict[str, str]) -> None:
        from congreve.remoting.messages.command import RemotingCommand

        self._writer.write(RemotingCommand(code=200_050, ext_fields=fields).encode())
        await self._writer.drain()


# --- restarts, deletions, resets


async def test_7914_7724_after_a_restart_exactly_the_unacknowledged_come_again(tmp_path):
    chance = random.Random(5)
    kept: set[bytes] = set()
    async with popping(tmp_path, queues=4) as (member, _):
        for number in range(200):
            await send(member, b"%d" % number, queue_id=number % 4)
        for message in await member.pop_all(200, invisibleTime=1_000):
            if chance.random() < 0.3:
                kept.add(message.body)
            else:
                assert await member.ack(message) == OK
    async with popping(tmp_path, queues=4) as (member, broker):
        found = await member.pop_all(len(kept), pollTime=5_000)
        assert sorted(message.body for message in found) == sorted(kept)
        for message in found:
            assert await member.ack(message) == OK
        assert await member.pop(pollTime=300) == []
        assert broker.managers.pops.in_flight.out == 0


async def test_9128_10278_a_handle_is_good_after_a_restart_and_on_another_connection(tmp_path):
    async with popping(tmp_path) as (member, _):
        await send(member, b"1", b"2")
        first, second = await member.pop(invisibleTime=60_000)
    async with popping(tmp_path) as (member, broker):
        assert await member.ack(first) == OK
        client = RemotingClient()
        try:
            other = Member(Tool(member.tool.address, client))
            assert await other.ack(second) == OK
        finally:
            await client.close()
        assert broker.managers.pops.in_flight.out == 0
        assert await member.pop(pollTime=300) == []


async def test_8479_a_deleted_topic_brings_nothing_back(tmp_path):
    async with popping(tmp_path) as (member, broker):
        await send(member, b"old")
        (old,) = await member.pop(invisibleTime=300)
        assert (await member.tool.ask(215, {"topic": "T"})).code == OK
        assert broker.managers.pops.in_flight.out == 0
        assert "%RETRY%G_T" not in broker.managers.metadata.topics.table
        await member.tool.create_topic("T", queues=1)
        await send(member, b"new")
        assert await bodies(member, pollTime=1_000) == [b"new"]
        assert await member.ack(old) == ILLEGAL
        assert await member.pop(pollTime=500) == []


async def test_a_deleted_group_gets_nothing_more(tmp_path):
    async with popping(tmp_path) as (member, broker):
        await send(member, b"x")
        (message,) = await member.pop(invisibleTime=200)
        fields = {"groupName": "G", "removeOffset": "true"}
        assert (await member.tool.ask(207, fields)).code == OK
        assert broker.managers.pops.in_flight.out == 0
        assert await member.ack(message) == ILLEGAL
        await asyncio.sleep(0.4)
        assert broker.store.max_offset("%RETRY%G_T", 0) == 0


async def test_a_deleted_group_leaves_no_retry_topic_of_pops(tmp_path):
    async with popping(tmp_path) as (member, broker):
        tool, topics = member.tool, broker.managers.metadata.topics.table
        await tool.create_topic("x_T", queues=1)
        other = Member(tool, group="G_x")
        shared = Member(tool, topic="x_T")  # its retry topic has the name of the other's
        for each in (member, other, shared):
            await each.pop()
        second = broker.managers.metadata.topics
        second.create_internal("%RETRY%G+T", 1)
        assert {"%RETRY%G_T", "%RETRY%G+T", "%RETRY%G_x_T"} <= topics.keys()
        assert (await tool.ask(207, {"groupName": "G", "cleanOffset": "false"})).code == OK
        assert "%RETRY%G_T" in topics
        await member.pop()
        assert (await tool.ask(207, {"groupName": "G", "cleanOffset": "true"})).code == OK
        assert {name for name in topics if name.startswith("%RETRY%")} == {"%RETRY%G_x_T"}
        assert await member.pop() == []


@pytest.mark.parametrize("order", ["false", "true"])
@pytest.mark.parametrize(("offset", "expected"), [(1, [b"1", b"2", b"3"]), (3, [b"3"])])
async def test_9025_9087_9369_a_reset_of_offsets_holds(tmp_path, order, offset, expected):
    async with popping(tmp_path) as (member, broker):
        await send(member, b"0", b"1", b"2", b"3")
        for message in await member.pop(maxMsgNums=2, order=order):
            assert await member.ack(message) == OK
        await member.pop(maxMsgNums=1, order=order, invisibleTime=300)
        assert broker.managers.pops.reset("G", "T", 0, offset)
        assert await bodies(member, order=order) == expected


async def test_9025_mqadmin_resets_a_group_without_members(tmp_path):
    async with popping(tmp_path) as (member, _):
        await send(member, b"0", b"1")
        for message in await member.pop():
            assert await member.ack(message) == OK
        header = ResetOffsetRequestHeader(topic="T", group="G", timestamp=0, is_force=True)
        assert (await member.tool.ask(222, header.fields())).code == OK
        assert await bodies(member) == [b"0", b"1"]


@pytest.mark.parametrize("order", ["false", "true"])
async def test_a_tool_of_rocketmq_5_resets_one_queue_to_an_offset(tmp_path, order):
    async with popping(tmp_path, queues=2) as (member, broker):
        for queue_id in (0, 1):
            await send(member, b"0", b"1", b"2", queue_id=queue_id)
        assert len(await member.pop(order=order)) == 6
        header = ResetOffsetRequestHeader(
            topic="T", group="G", timestamp=0, is_force=False, queue_id=1, offset=1
        )
        assert (await member.tool.ask(222, header.fields())).code == OK
        found = await member.pop(order=order)
        assert [(each.queue_id, each.body) for each in found] == [(1, b"1"), (1, b"2")]
        refused = {"queueId": "2"}, {"offset": "4"}, {"topic": "absent"}, {"group": "absent"}
        asked = [await member.tool.ask(222, header.fields() | each) for each in refused]
        assert [answer.code for answer in asked] == [1, 1, 17, 26]
        time = {"queueId": "0", "offset": "-1", "timestamp": "-1"}
        assert (await member.tool.ask(222, header.fields() | time)).code == OK
        assert broker.managers.metadata.offsets.query("G", "T", 0) == 3


async def test_a_tool_of_rocketmq_5_resets_a_queue_without_consumers(tmp_path):
    async with popping(tmp_path) as (member, _):
        await send(member, b"0", b"1")
        assert (await member.tool.ask(200, body=b'{"groupName":"G"}')).code == OK
        header = ResetOffsetRequestHeader(
            topic="T", group="G", timestamp=0, is_force=False, queue_id=0, offset=1
        )
        assert (await member.tool.ask(222, header.fields())).code == OK
        assert await bodies(member) == [b"1"]


# --- groups and topics


async def test_7251_7256_the_retry_topic_is_there_after_the_first_pop(tmp_path):
    async with popping(tmp_path) as (member, _):
        await send(member, b"x")
        await member.pop()
        topics = await member.tool.json(21)
        assert topics["topicConfigTable"]["%RETRY%G_T"]["readQueueNums"] == 1


async def test_a_new_group_pops_at_once(tmp_path):
    async with popping(tmp_path) as (member, _):
        await send(member, b"x")
        assert await bodies(Member(member.tool, group="new")) == [b"x"]


async def test_the_last_attempt_ends_in_the_dead_letters(tmp_path):
    async with popping(tmp_path) as (member, broker):
        await member.tool.create_topic("T", queues=1)
        broker.managers.metadata.groups.update(
            SubscriptionGroupConfig(group_name="G", retry_max_times=1)
        )
        await send(member, b"x")
        await member.pop(invisibleTime=100)
        assert await bodies(member, pollTime=5_000, invisibleTime=100) == [b"x"]
        deadline = time.monotonic() + 20
        while broker.store.max_offset("%DLQ%G", 0) == 0 and time.monotonic() < deadline:
            await asyncio.sleep(0.05)
        letter = broker.managers.pops.redelivery.stored("%DLQ%G", 0, 0)
        assert (letter.body, letter.reconsume_times) == (b"x", 2)
        assert letter.properties["DLQ_ORIGIN_TOPIC"] == "T"
        assert letter.properties["RETRY_TOPIC"] == "T"
        assert await member.pop(pollTime=300) == []


# --- orderly groups


async def test_10827_the_same_attempt_gets_its_batch_again(tmp_path):
    async with popping(tmp_path) as (member, _):
        await send(member, b"1", b"2")
        lost = await member.pop(order="true", attemptId="one")
        assert await member.pop(order="true", attemptId="two") == []
        again = await member.pop(order="true", attemptId="one")
        assert [message.body for message in again] == [b"1", b"2"]
        assert [message.attempts for message in again] == [0, 0]
        assert await member.ack(again[0]) == OK
        assert await member.ack(again[1]) == OK
        assert len(lost) == 2
        assert await member.pop(order="true", attemptId="two") == []


async def test_an_acknowledged_message_of_an_orderly_batch_stays_away(tmp_path):
    async with popping(tmp_path) as (member, broker):
        await send(member, b"1", b"2", b"3")
        await member.pop(order="true", attemptId="one", maxMsgNums=3)
        latest = await member.pop(order="true", attemptId="one", maxMsgNums=3, invisibleTime=300)
        assert await member.ack(latest[1]) == OK
        assert await member.pop(order="true") == []
        again = await member.pop(order="true", pollTime=5_000)
        assert [(each.body, each.attempts) for each in again] == [(b"1", 1), (b"3", 1)]
        for message in again:
            assert await member.ack(message) == OK
        assert broker.managers.metadata.offsets.query("G", "T", 0) == 3


async def test_an_orderly_poll_wakes_when_a_change_is_over(tmp_path):
    async with popping(tmp_path) as (member, _):
        await send(member, b"1")
        (message,) = await member.pop(order="true")
        waiting = asyncio.create_task(member.pop(order="true", pollTime=60_000))
        await asyncio.sleep(0.1)
        assert not isinstance(await member.change(message, 200), int)
        (again,) = await asyncio.wait_for(waiting, 20)
        assert (again.body, again.attempts) == (b"1", 1)


async def test_attempts_of_orderly_messages_are_their_own(tmp_path):
    async with popping(tmp_path) as (member, _):
        await send(member, b"1", b"2")
        (first,) = await member.pop(order="true", maxMsgNums=1, invisibleTime=100)
        (again,) = await member.pop(order="true", maxMsgNums=1, pollTime=5_000)
        assert (again.offset, again.attempts) == (first.offset, 1)
        assert await member.ack(again) == OK
        ((second, attempts),) = [
            (each.body, each.attempts) for each in await member.pop(order="true", pollTime=5_000)
        ]
        assert (second, attempts) == (b"2", 0)


async def test_an_orderly_poll_wakes_with_the_last_acknowledgement(tmp_path):
    async with popping(tmp_path) as (member, _):
        await send(member, b"1", b"2")
        (first,) = await member.pop(order="true", maxMsgNums=1)
        waiting = asyncio.create_task(member.pop(order="true", pollTime=60_000))
        await asyncio.sleep(0.1)
        assert await member.ack(first) == OK
        (second,) = await asyncio.wait_for(waiting, 20)
        assert second.body == b"2"


async def test_a_change_of_an_absent_topic_is_refused(tmp_path):
    async with popping(tmp_path) as (member, _):
        fields = {"consumerGroup": "G", "topic": "absent", "queueId": "0", "offset": "0"}
        fields |= {"extraInfo": "0 1 1 0 0 b 0 0", "invisibleTime": "1"}
        assert (await member.tool.ask(CHANGE, fields)).code == 17


async def test_8154_7999_pops_without_the_order_of_a_topic_are_logged_once(tmp_path, caplog):
    async with popping(tmp_path) as (member, broker):
        topics = broker.managers.metadata.topics
        attributes = {"message.type": "FIFO"}
        topics.update(msgspec.structs.replace(topics.table["T"], attributes=attributes))
        await Member(member.tool, group="InOrder").pop(order="true")
        assert "FIFO" not in caplog.text
        for _ in range(3):
            await member.pop()
        assert caplog.text.count("group G pops topic T without its order") == 1
