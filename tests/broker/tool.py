"""A broker over TCP, and a client that sends the requests of tools and consumers."""

from contextlib import asynccontextmanager
from pathlib import Path

from congreve.broker.broker import Broker
from congreve.broker.config import BrokerConfig
from congreve.engine.config import StoreConfig
from congreve.remoting.messages import fastjson
from congreve.remoting.messages.admin_headers import CreateTopicRequestHeader
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.messages.headers import SendMessageRequestHeader
from congreve.remoting.transport.client import RemotingClient

TOPIC_FIELDS = {
    "topic": "T",
    "defaultTopic": "TBW102",
    "readQueueNums": "1",
    "writeQueueNums": "1",
    "perm": "6",
    "topicFilterType": "SINGLE_TAG",
    "order": "false",
}
PULL_FIELDS = {
    "consumerGroup": "G",
    "topic": "T",
    "queueId": "0",
    "queueOffset": "0",
    "maxMsgNums": "1",
    "sysFlag": "4",
    "commitOffset": "0",
    "suspendTimeoutMillis": "0",
    "subscription": "*",
    "subVersion": "0",
}


def local_config(**settings) -> BrokerConfig:
    """Settings of a broker that listens on a free port of 127.0.0.1."""
    local = {"broker_ip1": "127.0.0.1", "bind_address": "127.0.0.1", "listen_port": 0}
    return BrokerConfig(**local | settings)


def config_of(root: Path, name: str = "b", **settings) -> BrokerConfig:
    return local_config(
        **{
            "broker_name": name,
            "broker_cluster_name": "C",
            "store": StoreConfig(
                root_dir=str(root),
                mapped_file_size_commit_log=8 << 20,
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

    async def send(
        self,
        topic: str,
        body: bytes = b"x",
        queue_id: int = 0,
        *,
        sys_flag: int = 0,
        born_ms: int = 1,
        properties: str = "KEYS\x01k1",
    ) -> RemotingCommand:
        header = SendMessageRequestHeader(
            producer_group="P",
            topic=topic,
            default_topic="TBW102",
            default_topic_queue_nums=4,
            queue_id=queue_id,
            sys_flag=sys_flag,
            born_timestamp=born_ms,
            flag=0,
            properties=properties,
        )
        return await self.ask(10, header.fields(), body)

    async def send_half(self, topic: str, born_ms: int = 1) -> RemotingCommand:
        properties = "PGROUP\x01P\x02TRAN_MSG\x01true\x02UNIQ_KEY\x01u"
        return await self.send(topic, b"half", sys_flag=4, born_ms=born_ms, properties=properties)

    async def commit_half(self, queue_offset: int, physical_offset: int) -> RemotingCommand:
        fields = {"tranStateTableOffset": str(queue_offset), "commitOrRollback": "8"}
        fields |= {"commitLogOffset": str(physical_offset), "producerGroup": "P", "msgId": "x"}
        return await self.ask(37, fields)

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
