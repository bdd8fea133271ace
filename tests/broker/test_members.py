"""A whole broker over TCP: consumers, their groups, locks and offsets."""

import asyncio

from congreve.remoting.messages import fastjson
from congreve.remoting.messages.command import RemotingCommand

from .tool import commit, config_of, running


async def test_members_are_listed_notified_and_queried(tmp_path):
    requests: list[RemotingCommand] = []

    def remember(request, connection):
        requests.append(request)
        return request.reply(0, "mine", body=b"{}")

    handlers = dict.fromkeys((40, 220, 307, 309), remember)
    async with running(config_of(tmp_path), handlers) as (tool, broker):
        await tool.create_topic("T")
        assert (await tool.ask(38, {"consumerGroup": "G"})).code == 1
        assert (await tool.ask(203, {"consumerGroup": "G"})).code == 206
        assert (await tool.heart_beat("G", "T")).code == 0
        assert [request.code for request in requests] == [40]
        assert broker.managers.metadata.topics.get("%RETRY%G").write_queue_nums == 1
        assert (await tool.json(38, {"consumerGroup": "G"})) == {"consumerIdList": ["c1"]}
        online = await tool.json(203, {"consumerGroup": "G"})
        assert online["connectionSet"][0]["clientId"] == "c1"
        assert online["subscriptionTable"]["T"]["subString"] == "*"
        producers = await tool.json(204, {"producerGroup": "P"})
        assert producers["connectionSet"][0]["language"] == "JAVA"
        relayed = await tool.ask(307, {"consumerGroup": "G", "clientId": "c1"})
        assert (relayed.code, relayed.remark, relayed.body) == (0, "mine", b"{}")
        assert (await tool.ask(307, {"consumerGroup": "G", "clientId": "c9"})).code == 1
        reset = {"topic": "T", "group": "G", "timestamp": "-1", "isForce": "true"}
        assert (await tool.ask(222, reset)).code == 1
        for queue_id in ("0", "1"):
            await tool.ask(15, {**commit("G", "T", 0), "queueId": queue_id})
        await tool.send("T")
        moved = await tool.json(222, reset)
        assert sorted(moved["offsetTable"].values()) == [0, 1]
        assert requests[-1].code == 220 and fastjson.loads(requests[-1].body) == moved
        assert (await tool.ask(35, {"clientID": "c1", "consumerGroup": "G"})).code == 0
        assert (await tool.ask(38, {"consumerGroup": "G"})).code == 1


async def test_a_closed_connection_leaves_its_groups(tmp_path):
    async with running(config_of(tmp_path)) as (tool, broker):
        await tool.heart_beat("G", "T")
        assert broker.managers.members.consumers.groups and broker.managers.members.producers.groups
        await tool.client.close()
        for _ in range(100):
            if not broker.managers.members.consumers.groups:
                break
            await asyncio.sleep(0.02)
        assert (
            broker.managers.members.consumers.groups
            == broker.managers.members.producers.groups
            == {}
        )


async def test_a_queue_is_locked_by_one_member_only(tmp_path):
    async with running(config_of(tmp_path)) as (tool, _):
        await tool.create_topic("T")
        queues = [{"topic": "T", "brokerName": "b", "queueId": n} for n in (0, 1)]
        body = {"consumerGroup": "G", "clientId": "c1", "mqSet": queues}
        held = await tool.json(41, body=fastjson.dumps(body).encode())
        assert len(held["lockOKMQSet"]) == 2
        other = fastjson.dumps({**body, "clientId": "c2"}).encode()
        assert (await tool.json(41, body=other))["lockOKMQSet"] == []
        assert (await tool.ask(42, body=fastjson.dumps(body).encode())).code == 0
        assert len((await tool.json(41, body=other))["lockOKMQSet"]) == 2


async def test_a_group_without_an_offset_starts_at_zero_in_a_young_queue(tmp_path):
    async with running(config_of(tmp_path)) as (tool, _):
        await tool.create_topic("T")
        await tool.send("T")
        wanted = {"consumerGroup": "G", "topic": "T", "queueId": "0"}
        assert (await tool.ask(14, wanted)).ext_fields["offset"] == "0"
        await tool.ask(15, commit("G", "T", 1))
        assert (await tool.ask(14, wanted)).ext_fields["offset"] == "1"
