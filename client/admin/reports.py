"""What one broker reports about itself, its topics and its groups (RocketMQ: MQClientAPIImpl).

Each method is one request to one broker, whatever the number of its topics and groups.
"""

import asyncio
from collections.abc import Mapping
from typing import TypeVar

from congreve.client.errors import BrokerError
from congreve.client.transport.instance import ClientInstance
from congreve.remoting.messages.admin_bodies import (
    AclConfig,
    BrokerStatsData,
    ConsumerConnection,
    ConsumerRunningInfo,
    EpochEntryCache,
    HARuntimeInfo,
    TopicOffset,
    TopicStatsTable,
)
from congreve.remoting.messages.admin_headers import (
    GetConsumerConnectionListRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumeStatsInBrokerHeader,
    GetTopicStatsInfoRequestHeader,
    ViewBrokerStatsDataRequestHeader,
)
from congreve.remoting.messages.bodies import (
    KVTable,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from congreve.remoting.messages.body import Body
from congreve.remoting.messages.codes import RequestCode, ResponseCode

B = TypeVar("B", bound=Body)

LARGE_BODY = 256 << 10


class BrokerReports:
    """Reads the reports of the broker at `address` (RocketMQ: MQClientAPIImpl).

    Every method raises BrokerError when the broker refuses the request, RemotingError when there
    is not an answer, BodyError when the answer cannot be read.
    """

    def __init__(self, client: ClientInstance, address: str) -> None:
        self._client = client
        self.address = address

    async def runtime(self) -> dict[str, str]:
        """The figures of `mqadmin brokerStatus` by name."""
        return KVTable.decode(await self._body(RequestCode.GET_BROKER_RUNTIME_INFO)).table

    async def topics(self) -> dict[str, TopicConfig]:
        """The settings of all topics by name."""
        code = RequestCode.GET_ALL_TOPIC_CONFIG
        return (await self._decoded(TopicConfigSerializeWrapper, code)).topic_config_table

    async def groups(self) -> dict[str, SubscriptionGroupConfig]:
        """The settings of all consumer groups by name."""
        code = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
        return (await self._decoded(SubscriptionGroupWrapper, code)).subscription_group_table

    async def stored(self, topic: str) -> int:
        """The messages of a topic: from the first to the last offset of its queues."""
        table = await self.offsets(topic)
        return sum(queue.max_offset - queue.min_offset for queue in table.values())

    async def offsets(self, topic: str) -> dict[int, TopicOffset]:
        """The first and the last offset of each queue of a topic, by its number."""
        fields = GetTopicStatsInfoRequestHeader(topic=topic).fields()
        body = await self._body(RequestCode.GET_TOPIC_STATS_INFO, fields)
        table = TopicStatsTable.decode(body).offset_table
        return {queue.queue_id: offsets for queue, offsets in table.items()}

    async def rate(self, name: str, key: str) -> float:
        """What a figure of `mqadmin statsAll` counted a second in the last minute, 0 for one that
        the broker has not."""
        header = ViewBrokerStatsDataRequestHeader(stats_name=name, stats_key=key)
        code = RequestCode.VIEW_BROKER_STATS_DATA
        answer = await self._client.ask(self.address, code, header.fields())
        if answer.code != ResponseCode.SUCCESS:
            return 0.0
        return BrokerStatsData.decode(answer.body).stats_minute.tps

    async def consume_stats_text(self) -> bytes:
        """The progress of all groups on all topics, as JSON of ConsumeStatsList: some megabytes
        for ten thousand groups, which a thread should decode."""
        fields = GetConsumeStatsInBrokerHeader(is_order=False).fields()
        return await self._body(RequestCode.GET_BROKER_CONSUME_STATS, fields)

    async def members(self, group: str) -> ConsumerConnection | None:
        """The connected members of a group and its subscriptions, None without a member."""
        fields = GetConsumerConnectionListRequestHeader(consumer_group=group).fields()
        try:
            body = await self._body(RequestCode.GET_CONSUMER_CONNECTION_LIST, fields)
        except BrokerError as error:
            if error.code in (ResponseCode.CONSUMER_NOT_ONLINE, ResponseCode.SYSTEM_ERROR):
                return None
            raise
        return ConsumerConnection.decode(body)

    async def running_info(self, group: str, client_id: str) -> ConsumerRunningInfo:
        """What a connected consumer says about itself, with the stacks of its threads."""
        header = GetConsumerRunningInfoRequestHeader(
            consumer_group=group, client_id=client_id, jstack_enable=True
        )
        body = await self._body(RequestCode.GET_CONSUMER_RUNNING_INFO, header.fields())
        return ConsumerRunningInfo.decode(body)

    async def settings(self) -> dict[str, str]:
        """The broker's settings, as its configuration file writes them."""
        text = (await self._body(RequestCode.GET_BROKER_CONFIG)).decode("utf-8", "replace")
        pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
        return {key.strip(): value for key, _, value in pairs}

    async def update_settings(self, texts: Mapping[str, str]) -> str | None:
        """Change settings; returns the broker's remark, such as which need a restart."""
        lines = "".join(f"{key}={value}\n" for key, value in texts.items())
        answer = await self._client.demand(
            self.address, RequestCode.UPDATE_BROKER_CONFIG, body=lines.encode()
        )
        return answer.remark

    async def ha_status(self) -> HARuntimeInfo:
        """How far a master's slaves are, or which master a slave follows."""
        return HARuntimeInfo.decode(await self._body(RequestCode.GET_BROKER_HA_STATUS))

    async def epochs(self) -> EpochEntryCache:
        """The epochs of its log; refused unless an election decides the broker's role."""
        return EpochEntryCache.decode(await self._body(RequestCode.GET_BROKER_EPOCH_CACHE))

    async def accounts(self) -> AclConfig:
        """The accounts and white addresses. A RocketMQ broker also sends the secrets."""
        return AclConfig.decode(await self._body(RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG))

    async def _decoded(self, kind: type[B], code: RequestCode) -> B:
        """A body, which a thread decodes if it is large."""
        body = await self._body(code)
        if len(body) < LARGE_BODY:
            return kind.decode(body)
        return await asyncio.to_thread(kind.decode, body)

    async def _body(self, code: RequestCode, fields: Mapping[str, str] | None = None) -> bytes:
        return (await self._client.demand(self.address, code, fields)).body
