"""A whole broker over TCP: what tools and consumers ask, restarts, and starts that must fail."""

import asyncio
import socket
import subprocess
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from congreve.broker.broker import Broker
from congreve.broker.config import BrokerConfig
from congreve.engine.config import StoreConfig
from congreve.engine.errors import StoreLockedError
from congreve.errors import CongreveError
from congreve.remoting import fastjson
from congreve.remoting.client import RemotingClient
from congreve.remoting.codes import RequestCode, ResponseCode
from congreve.remoting.command import RemotingCommand
from congreve.remoting.headers import (
    CreateTopicRequestHeader,
    PullMessageRequestHeader,
    SendMessageRequestHeader,
)


def config_of(root: Path, name: str = "b", **settings) -> BrokerConfig:
    return BrokerConfig(
        **{
            "broker_name": name,
            "broker_cluster_name": "C",
            "broker_ip1": "127.0.0.1",
            "bind_address": "127.0.0.1",
            "listen_port": 0,
            "store": StoreConfig(
                root_dir=str(root),
                mapped_file_size_commit_log=16 << 20,
                max_hash_slot_num=1000,
                max_index_num=4000,
            ),
        }
        | settings
    )


class Tool:
    """A client of one broker."""

    def __init__(self, address: str, client: RemotingClient) -> None:
        self.address = address
        self.client = client

    async def ask(self, code: int, fields=None, body: bytes = b"") -> RemotingCommand:
        command = RemotingCommand(code=code, ext_fields=dict(fields or {}), body=body)
        return await self.client.invoke(self.address, command)

    async def json(self, code: int, fields=None, body: bytes = b""):
        answer = await self.ask(code, fields, body)
        assert answer.code == 0, answer.remark
        return fastjson.loads(answer.body)

    async def create_topic(self, topic: str, queues: int = 2) -> RemotingCommand:
        header = CreateTopicRequestHeader(
            topic=topic,
            default_topic="TBW102",
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=6,
            topic_filter_type="SINGLE_TAG",
        )
        return await self.ask(17, header.fields())

    async def send(self, topic: str, body: bytes = b"x", queue_id: int = 0) -> RemotingCommand:
        header = SendMessageRequestHeader(
            producer_group="P",
            topic=topic,
            default_topic="TBW102",
            default_topic_queue_nums=4,
            queue_id=queue_id,
            sys_flag=0,
            born_timestamp=1,
            flag=0,
            properties="KEYS\x01k1",
        )
        return await self.ask(10, header.fields(), body)

    async def heart_beat(self, group: str, topic: str) -> RemotingCommand:
        body = {
            "clientID": "c1",
            "consumerDataSet": [
                {
                    "groupName": group,
                    "consumeType": "CONSUME_PASSIVELY",
                    "messageModel": "CLUSTERING",
                    "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
                    "subscriptionDataSet": [
                        {"topic": topic, "subString": "*", "subVersion": 5, "tagsSet": []}
                    ],
                    "unitMode": False,
                }
            ],
            "producerDataSet": [{"groupName": "P"}],
        }
        return await self.ask(34, body=fastjson.dumps(body).encode())


@asynccontextmanager
async def running(config: BrokerConfig, handlers=None, **options):
    async with Broker(config, **options) as broker:
        client = RemotingClient(handlers=handlers)
        try:
            yield Tool(f"127.0.0.1:{broker.port}", client), broker
        finally:
            await client.close()


def commit(group: str, topic: str, offset: int) -> dict[str, str]:
    return {
        "consumerGroup": group,
        "topic": topic,
        "queueId": "0",
        "commitOffset": str(offset),
    }


async def test_topics_live_their_life_by_tool(tmp_path):
    async with running(config_of(tmp_path)) as (tool, broker):
        assert (await tool.create_topic("T")).code == 0
        assert (await tool.create_topic("TBW102")).code == 1
        assert (await tool.create_topic("bad name")).code == 1
        await tool.send("T")
        await tool.send("T")
        stats = await tool.json(202, {"topic": "T"})
        first = fastjson.loads(min(stats["offsetTable"]))
        assert first == {"brokerName": "b", "queueId": 0, "topic": "T"}
        assert stats["offsetTable"][min(stats["offsetTable"])]["maxOffset"] == 2
        table = (await tool.json(21))["topicConfigTable"]
        assert table["T"]["readQueueNums"] == 2
        assert "TBW102" in (await tool.json(305))["topicList"]
        await tool.ask(15, commit("G", "T", 2))
        assert (await tool.ask(215, {"topic": "T"})).code == 0
        assert (await tool.ask(202, {"topic": "T"})).code == ResponseCode.TOPIC_NOT_EXIST
        assert broker.managers.offsets.query("G", "T", 0) == -1
        await tool.create_topic("T")
        assert (await tool.send("T")).ext_fields["queueOffset"] == "0"


async def test_groups_live_their_life_by_tool(tmp_path):
    async with running(config_of(tmp_path)) as (tool, broker):
        body = fastjson.dumps({"groupName": "G", "retryMaxTimes": 3}).encode()
        assert (await tool.ask(200, body=body)).code == 0
        assert (await tool.json(201))["subscriptionGroupTable"]["G"]["retryMaxTimes"] == 3
        await tool.create_topic("T")
        await tool.send("T")
        await tool.ask(15, commit("G", "T", 1))
        stats = await tool.json(208, {"consumerGroup": "G"})
        progress = stats["offsetTable"][min(stats["offsetTable"])]
        assert (progress["brokerOffset"], progress["consumerOffset"]) == (1, 1)
        assert progress["lastTimestamp"] > 0
        assert (await tool.json(300, {"topic": "T"}))["groupList"] == ["G"]
        spans = await tool.json(303, {"topic": "T", "group": "G"})
        assert len(spans["consumeTimeSpanSet"]) == 2
        assert (await tool.json(317, {"isOrder": "false"}))["totalDiff"] == 0
        await tool.ask(314, {"srcGroup": "G", "destGroup": "H", "topic": "T"})
        assert broker.managers.offsets.query("H", "T", 0) == 1
        assert (await tool.json(43))["offsetTable"]["T@G"] == {"0": 1}
        await tool.ask(207, {"groupName": "G", "removeOffset": "true"})
        assert "G" not in broker.managers.groups.table
        assert broker.managers.offsets.topics_of("G") == []


async def test_config_is_shown_changed_and_kept(tmp_path):
    path = tmp_path / "broker.conf"
    path.write_text("# mine\nbrokerPermission=6\n")
    async with running(config_of(tmp_path / "store"), config_path=path) as (tool, broker):
        shown = await tool.ask(26)
        assert b"brokerName=b\n" in shown.body
        assert fastjson.loads(shown.ext_fields["version"])["counter"] == 0
        assert (await tool.ask(25, body=b"brokerPermission=4\nmine=1\n")).code == 0
        assert not broker.config.writable
        assert path.read_text() == "# mine\nbrokerPermission=4\nmine=1\n"
        refused = await tool.ask(25, body=b"brokerPermission=x\n")
        assert refused.code == 1 and "brokerPermission='x'" in refused.remark
        assert path.read_text() == "# mine\nbrokerPermission=4\nmine=1\n"
        later = await tool.ask(25, body=b"listenPort=1234\nfileReservedTime=9\n")
        assert (later.code, later.remark) == (0, "after a restart: listenPort")
        assert broker.port != 1234 and broker.store.config.file_reserved_time == 9
        assert "listenPort=1234\n" in path.read_text()


async def test_runtime_info_has_what_mqadmin_reads(tmp_path):
    async with running(config_of(tmp_path)) as (tool, _):
        await tool.create_topic("T")
        await tool.send("T")
        table = (await tool.json(28))["table"]
        assert table["brokerVersion"] == "401"
        assert table["msgPutTotalTodayNow"] == "1"
        for key in ("putTps", "getTransferedTps", "getTotalTps", "getFoundTps", "getMissTps"):
            assert len([float(part) for part in table[key].split()]) == 3
        for key in (
            "msgPutTotalYesterdayMorning",
            "msgGetTotalTodayMorning",
            "sendThreadPoolQueueSize",
            "pullThreadPoolQueueHeadWaitTimeMills",
            "queryThreadPoolQueueCapacity",
            "earliestMessageTimeStamp",
            "commitLogDiskRatio",
            "commitLogMaxOffset",
            "pageCacheLockTimeMills",
        ):
            assert float(table[key]) >= 0


async def test_stored_messages_are_found_by_offset_time_key_and_id(tmp_path):
    async with running(config_of(tmp_path)) as (tool, _):
        await tool.create_topic("T")
        sent = await tool.send("T", b"one")
        queue = {"topic": "T", "queueId": "0"}
        assert (await tool.ask(30, queue)).ext_fields["offset"] == "1"
        assert (await tool.ask(31, queue)).ext_fields["offset"] == "0"
        earliest = int((await tool.ask(32, queue)).ext_fields["timestamp"])
        at = {**queue, "timestamp": str(earliest)}
        assert (await tool.ask(29, at)).ext_fields["offset"] == "0"
        offset = int(sent.ext_fields["msgId"][16:], 16)
        assert b"one" in (await tool.ask(33, {"offset": str(offset)})).body
        missing = await tool.ask(33, {"offset": str(offset + 1)})
        assert missing.code == 1 and str(offset + 1) in missing.remark
        query = {
            "topic": "T",
            "key": "k1",
            "maxNum": "10",
            "beginTimestamp": "0",
            "endTimestamp": str(2**62),
        }
        for _ in range(100):
            found = await tool.ask(12, query)
            if found.code == 0:
                break
            await asyncio.sleep(0.02)
        assert b"one" in found.body
        assert (await tool.ask(12, {**query, "key": "other"})).code == 22


async def test_members_are_listed_told_and_asked(tmp_path):
    told: list[RemotingCommand] = []

    def remember(request, connection):
        told.append(request)
        return request.reply(0, "mine", body=b"{}")

    handlers = dict.fromkeys((40, 220, 307, 309), remember)
    async with running(config_of(tmp_path), handlers) as (tool, broker):
        await tool.create_topic("T")
        assert (await tool.ask(38, {"consumerGroup": "G"})).code == 1
        assert (await tool.ask(203, {"consumerGroup": "G"})).code == 206
        assert (await tool.heart_beat("G", "T")).code == 0
        assert [request.code for request in told] == [40]
        assert broker.managers.topics.get("%RETRY%G").write_queue_nums == 1
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
        assert told[-1].code == 220 and fastjson.loads(told[-1].body) == moved
        assert (await tool.ask(35, {"clientID": "c1", "consumerGroup": "G"})).code == 0
        assert (await tool.ask(38, {"consumerGroup": "G"})).code == 1


async def test_a_closed_connection_leaves_its_groups(tmp_path):
    async with running(config_of(tmp_path)) as (tool, broker):
        await tool.heart_beat("G", "T")
        assert broker.managers.consumers.groups and broker.managers.producers.groups
        await tool.client.close()
        for _ in range(100):
            if not broker.managers.consumers.groups:
                break
            await asyncio.sleep(0.02)
        assert broker.managers.consumers.groups == broker.managers.producers.groups == {}


async def test_locks_go_to_one_member(tmp_path):
    async with running(config_of(tmp_path)) as (tool, _):
        queues = [{"topic": "T", "brokerName": "b", "queueId": n} for n in (0, 1)]
        body = {"consumerGroup": "G", "clientId": "c1", "mqSet": queues}
        held = await tool.json(41, body=fastjson.dumps(body).encode())
        assert len(held["lockOKMQSet"]) == 2
        other = fastjson.dumps({**body, "clientId": "c2"}).encode()
        assert (await tool.json(41, body=other))["lockOKMQSet"] == []
        assert (await tool.ask(42, body=fastjson.dumps(body).encode())).code == 0
        assert len((await tool.json(41, body=other))["lockOKMQSet"]) == 2


async def test_a_group_without_offset_starts_a_young_queue_at_zero(tmp_path):
    async with running(config_of(tmp_path)) as (tool, _):
        await tool.create_topic("T")
        await tool.send("T")
        wanted = {"consumerGroup": "G", "topic": "T", "queueId": "0"}
        assert (await tool.ask(14, wanted)).ext_fields["offset"] == "0"
        await tool.ask(15, commit("G", "T", 1))
        assert (await tool.ask(14, wanted)).ext_fields["offset"] == "1"


async def test_what_the_broker_knows_survives_a_restart(tmp_path):
    config = config_of(tmp_path)
    async with running(config) as (tool, broker):
        await tool.create_topic("T", queues=3)
        await tool.send("T", b"kept")
        await tool.heart_beat("G", "T")
        await tool.ask(15, commit("G", "T", 1))
    async with running(config) as (tool, broker):
        assert broker.managers.topics.get("T").write_queue_nums == 3
        assert "G" in broker.managers.groups.table
        assert broker.managers.offsets.query("G", "T", 0) == 1
        assert (await tool.send("T")).ext_fields["queueOffset"] == "1"


async def test_codes_that_nobody_serves_are_told_so(tmp_path):
    async with running(config_of(tmp_path)) as (tool, _):
        for code in (301, 400, 9999):
            answer = await tool.ask(code)
            assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


async def test_bad_bodies_and_headers_get_an_answer(tmp_path):
    async with running(config_of(tmp_path)) as (tool, _):
        for code in (34, 41, 42, 46, 200):
            answer = await tool.ask(code, body=b'{"consumerDataSet":7')
            assert answer.code == ResponseCode.SYSTEM_ERROR and answer.remark
        for code in (11, 12, 14, 15, 17, 29, 30, 33, 36, 38, 202, 208, 222):
            answer = await tool.ask(code, {"queueId": "x"})
            assert answer.code == ResponseCode.SYSTEM_ERROR and answer.remark


async def test_several_brokers_live_in_one_process(tmp_path):
    async with (
        running(config_of(tmp_path / "a", "a")) as (one, _),
        running(config_of(tmp_path / "b", "b")) as (two, _),
    ):
        await one.create_topic("T")
        assert (await one.send("T")).code == 0
        assert (await two.ask(202, {"topic": "T"})).code == ResponseCode.TOPIC_NOT_EXIST


def test_a_broker_runs_on_a_thread_of_its_own(tmp_path):
    with Broker(config_of(tmp_path)) as broker:
        with socket.create_connection(("127.0.0.1", broker.port), 3):
            pass
        port = broker.port
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", port), 1)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


async def test_the_vip_port_serves_all_but_pulls(tmp_path):
    port = free_port()
    async with running(config_of(tmp_path, listen_port=port)) as (tool, _):
        tool.address = f"127.0.0.1:{port - 2}"
        await tool.create_topic("T")
        assert (await tool.send("T")).code == 0
        header = PullMessageRequestHeader(
            consumer_group="G",
            topic="T",
            queue_id=0,
            queue_offset=0,
            max_msg_nums=1,
            sys_flag=4,
            commit_offset=0,
            suspend_timeout_millis=0,
            sub_version=0,
        )
        answer = await tool.ask(RequestCode.PULL_MESSAGE, header.fields())
        assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


async def test_a_second_broker_on_the_same_store_does_not_start(tmp_path):
    async with running(config_of(tmp_path)) as (tool, _):
        with pytest.raises(StoreLockedError):
            await Broker(config_of(tmp_path)).start()
        assert (await tool.create_topic("T")).code == 0


async def test_a_taken_port_is_one_clear_error_and_lets_the_store_go(tmp_path):
    async with running(config_of(tmp_path / "a")) as (_, broker):
        with pytest.raises(CongreveError, match=str(broker.port)):
            await Broker(config_of(tmp_path / "b", listen_port=broker.port)).start()
        assert not (tmp_path / "b").exists()
    async with running(config_of(tmp_path / "b")) as (tool, _):
        assert (await tool.create_topic("T")).code == 0


async def test_a_broker_that_was_started_says_that_it_cannot_be_again(tmp_path):
    async with Broker(config_of(tmp_path)) as broker:
        with pytest.raises(CongreveError, match="starts only once"):
            await broker.start()
    with pytest.raises(CongreveError, match="starts only once"):
        await broker.start()


async def test_a_disk_without_room_is_told_until_it_has_some(small_disk):
    disk = small_disk(24 << 20)
    async with running(config_of(disk / "s")) as (tool, _):
        await tool.create_topic("T")
        while (refused := await tool.send("T", bytes(1 << 20))).code == 0:
            pass
        assert refused.code == ResponseCode.SYSTEM_ERROR
        assert "No space left" in refused.remark
        told = (await tool.json(RequestCode.GET_BROKER_RUNTIME_INFO))["table"]["storeWritable"]
        assert told.startswith("false") and "No space left" in told
        subprocess.run(["mount", "-o", "remount,size=512m", str(disk)], check=True)
        assert (await tool.send("T", bytes(1 << 20))).code == 0
        told = (await tool.json(RequestCode.GET_BROKER_RUNTIME_INFO))["table"]["storeWritable"]
        assert told == "true"


@pytest.mark.parametrize(
    ("settings", "backend"),
    [({"flush_disk_type": "ASYNC_FLUSH"}, "mmap"), ({"io_backend": "pool"}, "pool")],
)
async def test_runtime_info_tells_which_backend_is_in_force(tmp_path, settings, backend):
    config = config_of(tmp_path / "s")
    store = msgspec.structs.replace(
        config.store, transient_store_pool_size=1, transient_store_pool_locked=False, **settings
    )
    async with running(msgspec.structs.replace(config, store=store)) as (tool, _):
        table = (await tool.json(RequestCode.GET_BROKER_RUNTIME_INFO))["table"]
        assert table["ioBackend"] == backend
