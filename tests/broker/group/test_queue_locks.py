"""Which queues a client can lock."""

from pathlib import Path

from congreve.broker.config_parts import LimitsConfig
from congreve.remoting.messages import fastjson

from ..tool import Tool, config_of, running

LOCK = 41
UNREGISTER = 35


async def locked(tool: Tool, topic: str, ids: range, broker: str = "b", group: str = "G"):
    queues = [{"topic": topic, "brokerName": broker, "queueId": number} for number in ids]
    body = {"consumerGroup": group, "clientId": "c1", "mqSet": queues}
    answer = await tool.json(LOCK, body=fastjson.dumps(body).encode())
    return sorted(queue["queueId"] for queue in answer["lockOKMQSet"])


async def test_only_queues_that_exist_can_be_locked(tmp_path: Path) -> None:
    async with running(config_of(tmp_path)) as (tool, broker):
        await tool.create_topic("T", queues=2)
        locks = broker.managers.members.locks
        assert await locked(tool, "T", range(-1, 5)) == [0, 1]
        assert await locked(tool, "unknown", range(4), group="H") == []
        assert await locked(tool, "T", range(2), broker="another", group="H") == []
        assert len(locks) == 2
        assert "H" not in broker.managers.metadata.groups.table


async def test_a_group_that_does_not_exist_locks_nothing(tmp_path: Path) -> None:
    limits = LimitsConfig(max_queue_locks=3)
    config = config_of(tmp_path, auto_create_subscription_group=False, limits=limits)
    async with running(config) as (tool, broker):
        await tool.create_topic("T", queues=8)
        assert await locked(tool, "T", range(8)) == []
        assert (await tool.ask(200, body=b'{"groupName":"G"}')).code == 0
        assert await locked(tool, "T", range(8)) == [0, 1, 2]
        assert len(broker.managers.members.locks) == 3


async def test_a_client_id_that_is_too_long_locks_nothing(tmp_path: Path) -> None:
    async with running(config_of(tmp_path)) as (tool, _):
        body = {"consumerGroup": "G", "clientId": "c" * 1_025, "mqSet": []}
        answer = await tool.ask(LOCK, body=fastjson.dumps(body).encode())
        assert answer.code == 1 and "1025 characters" in answer.remark


async def test_a_member_that_leaves_its_group_holds_no_lock_of_it(tmp_path: Path) -> None:
    async with running(config_of(tmp_path)) as (tool, broker):
        await tool.create_topic("T", queues=3)
        assert await locked(tool, "T", range(3)) == [0, 1, 2]
        assert await locked(tool, "T", range(2), group="H") == [0, 1]
        for client_id, left in (("c2", 5), ("c1", 2), ("c1", 2)):
            fields = {"clientID": client_id, "consumerGroup": "G"}
            assert (await tool.ask(UNREGISTER, fields)).code == 0
            assert len(broker.managers.members.locks) == left
