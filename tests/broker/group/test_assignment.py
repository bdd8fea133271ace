"""The broker assigns queues as RocketMQ 5 does."""

import json
from pathlib import Path
from typing import Any

import pytest
from harness.wire import pull_fields
from hypothesis import given
from hypothesis import strategies as st

from congreve.broker.config_parts import PopConfig
from congreve.broker.errors import ConfigError
from congreve.broker.group.allocation import ALL_QUEUES, STRATEGIES, averagely, popped
from congreve.namesrv.server import NameServer
from congreve.remoting.messages.body import MessageQueue
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.transport.client import RemotingClient

from ..tool import Tool, config_of, running

VECTORS = json.loads((Path(__file__).parents[2] / "golden/pop_vectors.json").read_text())["vectors"]
VERSION_5 = 513


def queues(count: int) -> list[MessageQueue]:
    return [MessageQueue("T", "b", i) for i in range(count)]


async def heart_beat(tool: Tool, client_id: str, group: str = "GQ5", **more: Any) -> Any:
    subscription = {"topic": "Q5", "subString": "*", "subVersion": 1}
    consumer = {"groupName": group, "subscriptionDataSet": [subscription]}
    if more.get("withoutSub"):
        del consumer["subscriptionDataSet"]
    body = {"clientID": client_id, "consumerDataSet": [consumer], "producerDataSet": [], **more}
    return await tool.client.invoke(
        tool.address,
        RemotingCommand(code=34, body=json.dumps(body).encode(), version=VERSION_5),
    )


def places(answer: dict[str, Any]) -> Any:
    found = answer.get("messageQueueAssignments")
    if found is None:
        return None
    return sorted(
        (each["messageQueue"]["topic"], each["messageQueue"]["queueId"], each["mode"])
        for each in found
    )


async def test_requests_are_answered_as_by_rocketmq(tmp_path: Path) -> None:
    """All exchanges of the vectors, in their order."""
    wrong = {}
    async with running(config_of(tmp_path, "broker-a")) as (tool, broker):
        await tool.create_topic("Q5", 4)
        topics = broker.managers.metadata.topics
        members = {"assignment/one member, PULL": ["c-1"]}
        members["assignment/three members, PULL, first"] = ["c-2", "c-3"]
        clients = [RemotingClient(timeout_s=5) for _ in range(3)]
        for vector in VECTORS:
            name, wanted = vector["name"], vector["response"]
            if vector["remoting_code"] not in (400, 401):
                continue
            for client_id in members.get(name, ()):
                other = Tool(tool.address, clients.pop())
                assert (await heart_beat(other, client_id)).code == 0
                assert topics.get("%RETRY%GQ5") is not None
            answer = await tool.ask(vector["remoting_code"], body=vector["request_body"].encode())
            found = (answer.code, answer.remark)
            if found != (wanted["code"], wanted["remark"]):
                wrong[name] = found
            elif "body" in wanted:
                body = json.loads(answer.body)
                if places(body) != places(wanted["body"]):
                    wrong[name] = body
        assert not wrong
        modes = (await tool.json(402))["messageRequestModeMap"]["Q5"]
        assert modes["GQ5"] == {
            **{"consumerGroup": "GQ5", "mode": "PULL", "popShareQueueNum": 0, "topic": "Q5"}
        }


async def test_modes_last_until_the_topic_or_the_group_is_deleted(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    path = Path(config.store.config_dir, "messageRequestMode.json")
    pop = {"mode": "POP", "popShareQueueNum": 2}

    async def set_mode(tool: Tool, topic: str, group: str) -> None:
        body = json.dumps({"topic": topic, "consumerGroup": group, **pop}).encode()
        assert (await tool.ask(401, body=body)).code == 0

    async with running(config) as (tool, _):
        assert not path.exists()
        await tool.create_topic("T")
        await tool.create_topic("U")
        for topic, group in (("T", "g"), ("U", "g"), ("U", "h")):
            await set_mode(tool, topic, group)
        assert json.loads(path.read_text())["messageRequestModeMap"].keys() == {"T", "U"}
    async with running(config) as (tool, _):
        modes = (await tool.json(402))["messageRequestModeMap"]
        assert modes["U"]["h"] == {"topic": "U", "consumerGroup": "h", **pop}
        assert (await tool.ask(215, {"topic": "T"})).code == 0
        assert (await tool.ask(207, {"groupName": "h"})).code == 0
        assert (await tool.json(402))["messageRequestModeMap"] == {
            "U": {"g": {"topic": "U", "consumerGroup": "g", **pop}}
        }


async def test_queues_of_all_brokers_that_name_servers_know_are_assigned(tmp_path: Path) -> None:
    async with NameServer(port=0) as names:
        one = config_of(tmp_path / "one", "one", namesrv_addr=names.address)
        two = config_of(tmp_path / "two", "two", namesrv_addr=names.address)
        async with running(one) as (tool, _), running(two) as (other, _):
            await tool.create_topic("Q5", 2)
            await other.create_topic("Q5", 3)
            await heart_beat(tool, "c")
            body = b'{"topic":"Q5","consumerGroup":"GQ5","clientId":"c","strategyName":"AVG"}'
            found = await tool.json(400, body=body)
            read = [each["messageQueue"] for each in found["messageQueueAssignments"]]
            brokers = [queue["brokerName"] for queue in read]
            assert sorted(brokers) == ["one"] * 2 + ["two"] * 3
            mode = b'{"topic":"Q5","consumerGroup":"GQ5","mode":"POP"}'
            assert (await tool.ask(401, body=mode)).code == 0
            popped = (await tool.json(400, body=body))["messageQueueAssignments"]
            assert [each["messageQueue"]["queueId"] for each in popped] == [ALL_QUEUES] * 2


@pytest.mark.parametrize("mode", ["", "PUSH"])
async def test_an_unknown_mode_is_refused(tmp_path: Path, mode: str) -> None:
    async with running(config_of(tmp_path)) as (tool, _):
        await tool.create_topic("T")
        body = json.dumps({"topic": "T", "consumerGroup": "g", "mode": mode}).encode()
        assert (await tool.ask(401, body=body)).code == 29


@given(st.integers(1, 40), st.integers(1, 12), st.sampled_from(sorted(STRATEGIES)))
def test_each_queue_has_one_reader(count: int, members: int, name: str) -> None:
    found = [STRATEGIES[name](queues(count), place, members) for place in range(members)]
    assert sorted(queue for each in found for queue in each) == queues(count)
    sizes = {len(each) for each in found}
    assert max(sizes) - min(sizes) <= 1


@given(st.integers(1, 40), st.integers(1, 12), st.integers(-1, 13))
def test_each_queue_has_as_many_members_that_pop_it(count: int, members: int, share: int) -> None:
    found = [popped(queues(count), place, members, share, averagely) for place in range(members)]
    if share <= 0 or share >= members - 1:
        assert found == [[MessageQueue("T", "b", ALL_QUEUES)]] * members
        return
    readers = [sum(queue in each for each in found) for queue in queues(count)]
    assert all(readers)
    if members <= count:
        assert set(readers) == {share + 1}


async def test_clients_of_rocketmq_5_may_leave_out_subscriptions_that_stay(tmp_path: Path) -> None:
    async with running(config_of(tmp_path)) as (tool, broker):
        groups = broker.managers.members.consumers.groups

        async def changed(**more: Any) -> str:
            answer = await heart_beat(tool, "c", **more)
            assert answer.code == 0
            assert answer.ext_fields["IS_SUPPORT_HEART_BEAT_V2"] == "true"
            return str(answer.ext_fields["IS_SUB_CHANGE"])

        assert await changed(heartbeatFingerprint=7, withoutSub=True) == "true", "unknown here"
        assert "GQ5" not in groups
        assert await changed(heartbeatFingerprint=7) == "false"
        assert await changed(heartbeatFingerprint=7, withoutSub=True) == "false"
        assert set(groups["GQ5"].subscriptions) == {"Q5"}
        assert await changed(heartbeatFingerprint=8, withoutSub=True) == "true"
        assert set(groups["GQ5"].subscriptions) == {"Q5"}
        assert await changed() == "true"
        older = await tool.heart_beat("G", "T")
        assert not older.ext_fields, "as 4.9.4 answers"


async def test_a_client_of_rocketmq_5_sends_a_newer_subscription_that_a_pull_lacks(
    tmp_path: Path,
) -> None:
    async with running(config_of(tmp_path)) as (tool, _):
        await tool.create_topic("Q5", queues=1)

        async def heard(**more: Any) -> str:
            answer = await heart_beat(tool, "c", heartbeatFingerprint=7, **more)
            return str(answer.ext_fields["IS_SUB_CHANGE"])

        async def pulled(version: int) -> int:
            registered = {"consumerGroup": "GQ5", "sysFlag": "0", "subVersion": str(version)}
            return (await tool.ask(11, pull_fields("Q5", 0, 0, 1) | registered)).code

        assert [await heard(), await heard(withoutSub=True)] == ["false"] * 2
        assert await pulled(0) == 19
        assert await pulled(1 << 60) == 25
        assert [await heard(withoutSub=True) for _ in range(2)] == ["true"] * 2
        await heard()
        assert await heard(withoutSub=True) == "false"


async def test_the_default_mode_may_be_pop(tmp_path: Path) -> None:
    pops = PopConfig(default_message_request_mode="POP")
    async with running(config_of(tmp_path, pops=pops)) as (tool, _):
        await tool.create_topic("T", queues=4)
        assert (await heart_beat(tool, "c")).code == 0
        asked = {"consumerGroup": "GQ5", "clientId": "c", "strategyName": "AVG"}
        for topic, queues in (("T", [("POP", -1)]), ("%RETRY%GQ5", [("PULL", 0)])):
            body = json.dumps({"topic": topic, **asked, "messageModel": "CLUSTERING"}).encode()
            found = (await tool.json(400, body=body))["messageQueueAssignments"]
            assert [(each["mode"], each["messageQueue"]["queueId"]) for each in found] == queues
    with pytest.raises(ConfigError, match="use PULL or POP"):
        PopConfig(default_message_request_mode="PUSH")
