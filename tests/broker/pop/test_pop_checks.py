"""The checks of pops and acknowledgements, with the codes of RocketMQ 5."""

import asyncio

import pytest

from congreve.broker.config_parts import PopConfig
from congreve.remoting.messages.bodies import SubscriptionGroupConfig, TopicConfig

from ..tool import config_of, running
from .popping import (
    ACK,
    ILLEGAL,
    NO_MESSAGE,
    NOTHING,
    NOTIFICATION,
    OK,
    POLLING_FULL,
    POLLING_INFO,
    TOPIC_ABSENT,
    Member,
)

NO_PERMISSION, INVALID, NO_GROUP, BAD_FILTER = 16, 29, 26, 23
REFUSAL = {"popTime": "0", "invisibleTime": "0", "restNum": "0", "reviveQid": "0"}


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"bornTime": 1}, NOTHING),
        ({"maxMsgNums": 33, "topic": "absent"}, INVALID),
        ({"topic": "absent", "queueId": 9}, TOPIC_ABSENT),
        ({"topic": "unreadable", "queueId": 9}, NO_PERMISSION),
        ({"queueId": 9, "consumerGroup": "a b"}, INVALID),
        ({"consumerGroup": "a b", "exp": "||"}, NO_GROUP),
        ({"consumerGroup": "off", "exp": "||"}, NO_PERMISSION),
        ({"exp": "||"}, BAD_FILTER),
        ({"exp": "a >", "expType": "SQL92"}, BAD_FILTER),
        ({"invisibleTime": -1}, INVALID),
        ({"invisibleTime": 12 * 3600 * 1000 + 1}, INVALID),
    ],
)
async def test_the_first_check_that_fails_gives_the_code(tmp_path, fields, code):
    config = config_of(tmp_path, enable_property_filter=True)
    async with running(config) as (tool, broker):
        await tool.create_topic("T", queues=1)
        metadata = broker.managers.metadata
        metadata.topics.update(TopicConfig(topic_name="unreadable", perm=2))
        metadata.groups.update(SubscriptionGroupConfig(group_name="off", consume_enable=False))
        answer = await Member(tool).ask(**fields)
        assert answer.code == code, answer.remark
        assert answer.ext_fields == REFUSAL
        broker.config.broker_permission = 2
        expected = NOTHING if code == NOTHING else NO_PERMISSION
        assert (await Member(tool).ask(**fields)).code == expected


async def test_an_empty_answer_has_all_fields(tmp_path):
    async with running(config_of(tmp_path)) as (tool, _):
        await tool.create_topic("T", queues=1)
        answer = await Member(tool).ask()
        assert answer.code == NOTHING
        fields = dict(answer.ext_fields)
        assert fields.pop("popTime") > "0"
        maps = {"startOffsetInfo": "", "msgOffsetInfo": "", "orderCountInfo": ""}
        assert fields == {"invisibleTime": "60000", "restNum": "0", "reviveQid": "0"} | maps


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"topic": "absent"}, TOPIC_ABSENT),
        ({"queueId": "1"}, ILLEGAL),
        ({"offset": "7"}, NO_MESSAGE),
        ({"extraInfo": "0 1 2 3"}, ILLEGAL),
        ({"extraInfo": "0 1 60000 0 9 b 0 0"}, ILLEGAL),
    ],
)
async def test_an_acknowledgement_of_nothing_is_refused(tmp_path, changed, code):
    async with running(config_of(tmp_path)) as (tool, _):
        await tool.create_topic("T", queues=1)
        await tool.send("T")
        (message,) = await Member(tool).pop()
        assert await Member(tool).ack(message, **changed) == code
        assert await Member(tool).ack(message) == OK


@pytest.mark.parametrize("limit", ["popPollingSize", "maxPopPollingSize"])
async def test_one_waiting_pop_too_many_is_refused(tmp_path, limit):
    async with running(config_of(tmp_path)) as (tool, broker):
        assert (await tool.ask(25, body=f"{limit}=2\n".encode())).code == OK
        await tool.create_topic("T", queues=1)
        member = Member(tool)
        held = [asyncio.create_task(member.ask(pollTime=2_000)) for _ in range(2)]
        while len(broker.managers.pops.waiting) < 2:
            await asyncio.sleep(0.02)
        info = {"consumerGroup": "G", "topic": "T", "queueId": "-1"}
        assert (await tool.ask(POLLING_INFO, info)).ext_fields == {"pollingNum": "2"}
        full = await member.ask(pollTime=2_000)
        assert (full.code, full.remark) == (POLLING_FULL, "polling full")
        assert {(await each).code for each in held} == {NOTHING}


async def test_one_message_too_many_is_not_handed_out(tmp_path):
    pops = PopConfig(max_messages_out=3, max_messages_out_of_queue=2)
    async with running(config_of(tmp_path, pops=pops)) as (tool, _):
        await tool.create_topic("T", queues=2)
        for number in range(6):
            await tool.send("T", b"%d" % number, number % 2)
        member = Member(tool)
        found = await member.pop()
        assert sorted(message.queue_id for message in found) in ([0, 0, 1], [0, 1, 1])
        full = await member.ask()
        assert full.code == POLLING_FULL
        assert full.remark == "too many messages of group[G] are not acknowledged"
        assert await member.ack(found[0]) == OK
        assert len(await member.pop()) == 1


async def test_a_notification_waits_for_messages(tmp_path):
    async with running(config_of(tmp_path)) as (tool, _):
        await tool.create_topic("T", queues=1)
        fields = {"consumerGroup": "G", "topic": "T", "queueId": "-1", "bornTime": "0"}
        nothing = await tool.ask(NOTIFICATION, fields | {"pollTime": "0"})
        assert nothing.ext_fields == {"hasMsg": "false", "pollingFull": "false"}
        waiting_one = asyncio.create_task(tool.ask(NOTIFICATION, fields | {"pollTime": "2500"}))
        await asyncio.sleep(0.1)
        await tool.send("T")
        assert (await waiting_one).ext_fields["hasMsg"] == "true"


async def test_nothing_is_made_without_pops(tmp_path):
    async with running(config_of(tmp_path)) as (tool, broker):
        await tool.create_topic("T", queues=1)
        await tool.send("T")
        fields = {"consumerGroup": "G", "topic": "T", "queueId": "0", "offset": "0"}
        refused = await tool.ask(ACK, fields | {"extraInfo": "0 1 1 0 0 b 0 0"})
        assert refused.code == ILLEGAL
        assert "rmq_sys_congreve_pops" not in broker.store.queues.topics()
        assert not any(name.startswith("%RETRY%") for name in broker.managers.metadata.topics.table)
    assert not (tmp_path / "congreve" / "pops.json").exists()
