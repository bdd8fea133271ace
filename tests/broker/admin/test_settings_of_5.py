"""Topics with attributes and groups with the members of RocketMQ 5."""

import json
from pathlib import Path
from typing import Any

import pytest

from congreve.remoting.messages.admin_bodies import ConsumeStats
from congreve.remoting.messages.codes import ResponseCode
from congreve.remoting.messages.command import RemotingCommand

from ..tool import Tool, commit, config_of, running

FURTHER = {
    "consumeMessageOrderly": True,
    "groupRetryPolicy": {"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": [1000, 5000]}},
    "consumeTimeoutMinute": 3,
    "subscriptionDataSet": [{"topic": "T", "expressionType": "TAG", "expression": "a"}],
    "memberOfTheFuture": {"a": [1, {"b": None, "c": "ü"}]},
}


async def update_topic(tool: Tool, attributes: str | None = None, topic: str = "T") -> Any:
    fields = {
        **{"topic": topic, "defaultTopic": "TBW102", "readQueueNums": "2", "writeQueueNums": "2"},
        **{"perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"},
    }
    if attributes is not None:
        fields["attributes"] = attributes
    return await tool.ask(17, fields)


async def attributes_of(tool: Tool, topic: str = "T") -> Any:
    return json.loads((await tool.ask(351, {"topic": topic})).body)["attributes"]


async def test_attributes_last_until_a_request_changes_them(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    async with running(config) as (tool, _):
        assert (await update_topic(tool, "+message.type=FIFO,+reserve.time=60000")).code == 0
        assert (await update_topic(tool)).code == 0
        assert (await update_topic(tool, "")).code == 0
        assert await attributes_of(tool) == {"message.type": "FIFO", "reserve.time": "60000"}
        assert (await update_topic(tool, "+message.type=DELAY,-reserve.time")).code == 0
    stored = json.loads(Path(config.store.config_dir, "topics.json").read_text())
    assert stored["topicConfigTable"]["T"]["attributes"] == {"message.type": "DELAY"}
    async with running(config) as (tool, _):
        assert await attributes_of(tool) == {"message.type": "DELAY"}
        assert (await update_topic(tool, "-message.type")).code == 0
        assert await attributes_of(tool) == {}
        table = (await tool.json(21))["topicConfigTable"]
        assert "attributes" not in table["T"], "as 4.9.4 writes it"


@pytest.mark.parametrize(
    ("attributes", "code", "remark"),
    [
        ("+foo=1", 1, "unsupported key: foo"),
        ("message.type=FIFO", 1, "add/alter attribute format is wrong: message.type"),
        ("+message.type=MIXED", 29, "MIXED message type is not supported."),
        ("-message.type", 1, "only add attribute is supported while creating topic."),
    ],
)
async def test_a_refused_attribute_creates_no_topic(
    tmp_path: Path, attributes: str, code: int, remark: str
) -> None:
    async with running(config_of(tmp_path)) as (tool, _):
        answer = await update_topic(tool, attributes)
        assert answer.code == code and answer.remark.startswith(remark)
        absent = await tool.ask(351, {"topic": "T"})
        assert absent.code == ResponseCode.TOPIC_NOT_EXIST
        assert absent.remark == "No topic in this broker. topic: T"


async def test_a_setting_allows_topics_of_mixed_messages(tmp_path: Path) -> None:
    async with running(config_of(tmp_path, enable_mixed_message_type=True)) as (tool, _):
        assert (await update_topic(tool, "+message.type=MIXED")).code == 0


async def test_lists_create_topics_and_groups(tmp_path: Path) -> None:
    topics = [
        {"topicName": "T", "readQueueNums": 3, "attributes": {"+message.type": "FIFO"}},
        {"topicName": "U"},
    ]
    groups = [{"groupName": "G", "attributes": {"+priority.factor": "7"}}, {"groupName": "H"}]
    async with running(config_of(tmp_path)) as (tool, broker):
        assert (await tool.ask(18, body=json.dumps({"topicConfigList": topics}).encode())).code == 0
        assert (
            await tool.ask(225, body=json.dumps({"groupConfigList": groups}).encode())
        ).code == 0
        assert await attributes_of(tool) == {"message.type": "FIFO"}
        metadata = broker.managers.metadata
        assert metadata.topics.table["T"].read_queue_nums == 3 and "U" in metadata.topics.table
        assert metadata.groups.table["G"].attributes == {"priority.factor": "7"}
        assert "H" in metadata.groups.table


async def test_members_of_a_group_that_this_broker_does_not_know_last(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    wanted = {"groupName": "G", "retryMaxTimes": 3, **FURTHER}
    async with running(config) as (tool, _):
        assert (await tool.ask(200, body=json.dumps(wanted).encode())).code == 0
        attributes = {**wanted, "attributes": {"+priority.factor": "50"}}
        assert (await tool.ask(200, body=json.dumps(attributes).encode())).code == 0
        assert (await tool.ask(200, body=json.dumps(wanted).encode())).code == 0
        assert (await tool.ask(200, body=b'{"groupName":"H"}')).code == 0
    kept = {**FURTHER, "memberOfTheFuture": {"a": [1, {"c": "ü"}]}}
    kept["attributes"] = {"priority.factor": "50"}
    async with running(config) as (tool, _):
        found = json.loads((await tool.ask(352, {"group": "G"})).body)
        assert {key: found[key] for key in kept} == kept and found["retryMaxTimes"] == 3
        table = (await tool.json(201))["subscriptionGroupTable"]
        assert table["G"] == found
        assert table["H"].keys() == table["TOOLS_CONSUMER"].keys(), "as 4.9.4 writes it"


async def test_a_group_is_not_larger_than_its_limit(tmp_path: Path) -> None:
    body = json.dumps({"groupName": "G", "x": "x" * (64 << 10)}).encode()
    async with running(config_of(tmp_path)) as (tool, _):
        answer = await tool.ask(200, body=body)
        assert answer.code == 1 and "longer than" in answer.remark


async def test_settings_of_a_group_that_may_not_be_created_are_refused(tmp_path: Path) -> None:
    async with running(config_of(tmp_path, auto_create_subscription_group=False)) as (tool, _):
        answer = await tool.ask(352, {"group": "G"})
        assert (answer.code, answer.remark) == (26, "No group in this broker")


async def test_tools_of_rocketmq_5_see_nothing_in_flight_that_was_pulled(tmp_path: Path) -> None:
    async with running(config_of(tmp_path)) as (tool, _):
        await tool.create_topic("T")
        await tool.send("T", queue_id=0)
        assert (await tool.ask(15, commit("G", "T", 1))).code == 0
        for version, wanted in ((401, None), (513, 1)):
            request = RemotingCommand(code=208, ext_fields={"consumerGroup": "G"}, version=version)
            body = (await tool.client.invoke(tool.address, request)).body
            offsets = ConsumeStats.decode(body).offset_table.values()
            assert [each.pull_offset for each in offsets if each.consumer_offset] == [wanted]
