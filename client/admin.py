"""Topics from an operator's side (RocketMQ: DefaultMQAdminExt)."""

import asyncio

import msgspec

from congreve.client.checks import check_topic
from congreve.client.errors import BrokerNotFoundError, ClientError
from congreve.client.instance import ClientInstance
from congreve.client.route import CREATE_TOPIC_KEY, MASTER_ID
from congreve.client.subscription import SQL92
from congreve.remoting.admin_bodies import SubscriptionData
from congreve.remoting.bodies import (
    CheckClientRequestBody,
    ClusterInfo,
    ConsumeQueueData,
    MessageQueue,
    QueryConsumeQueueResponseBody,
    TopicList,
    TopicStatsTable,
)
from congreve.remoting.codes import RequestCode
from congreve.remoting.command import RemotingCommand
from congreve.remoting.headers import (
    CreateTopicRequestHeader,
    DeleteTopicFromNamesrvRequestHeader,
    DeleteTopicRequestHeader,
    GetTopicStatsInfoRequestHeader,
    QueryConsumeQueueRequestHeader,
)

PERM_READ_WRITE = 6
ENTRIES_MAX = 8192
"""Consume-queue entries that one request asks for: each is some hundred bytes of JSON."""


class QueueStats(msgspec.Struct, frozen=True, order=True):
    """One queue of a topic; `last_update_ms` is the store time of its last message, 0 for none."""

    broker_name: str
    queue_id: int
    min_offset: int
    max_offset: int
    last_update_ms: int


class BrokerRoute(msgspec.Struct, frozen=True, order=True):
    """What one broker name serves of a topic; the first of `addresses` is the master's."""

    broker_name: str
    addresses: tuple[str, ...]
    read_queues: int
    write_queues: int
    perm: int


class AdminClient(ClientInstance):
    """Asks and changes: ``async with AdminClient("host:9876") as admin``.

    Every method raises BrokerError, NoNameServerError, another ClientError or a RemotingError.
    """

    async def cluster_info(self) -> ClusterInfo:
        """All clusters and brokers."""
        answer = await self._ask_name_server(RequestCode.GET_BROKER_CLUSTER_INFO)
        return ClusterInfo.decode(answer.body)

    async def masters(self, cluster: str) -> dict[str, str]:
        """Addresses of a cluster's masters by broker name. Raises BrokerNotFoundError."""
        info = await self.cluster_info()
        names = info.cluster_addr_table.get(cluster)
        if names is None:
            known = ", ".join(sorted(info.cluster_addr_table)) or "none"
            raise BrokerNotFoundError(f"no cluster {cluster}; the name servers know {known}")
        brokers = {name: info.broker_addr_table.get(name) for name in sorted(names)}
        masters = {
            name: data.broker_addrs[MASTER_ID]
            for name, data in brokers.items()
            if data is not None and MASTER_ID in data.broker_addrs
        }
        if not masters:
            raise BrokerNotFoundError(f"cluster {cluster} has no master at present")
        return masters

    async def topics(self) -> list[str]:
        """Names of all topics, sorted."""
        answer = await self._ask_name_server(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        return sorted(TopicList.decode(answer.body).topic_list)

    async def create_topic(
        self, topic: str, *, queues: int = 8, cluster: str = "DefaultCluster"
    ) -> list[str]:
        """Create a topic, or change its queues, on all masters of a cluster; their broker names."""
        check_topic(topic)
        if queues < 1:
            raise ClientError(f"topic {topic} with {queues} queues: at least 1 is needed")
        header = CreateTopicRequestHeader(
            topic=topic,
            default_topic=CREATE_TOPIC_KEY,
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=PERM_READ_WRITE,
            topic_filter_type="SINGLE_TAG",
            topic_sys_flag=0,
            order=False,
        )
        masters = await self.masters(cluster)
        for address in masters.values():
            await self.demand(address, RequestCode.UPDATE_AND_CREATE_TOPIC, header.fields())
        return list(masters)

    async def delete_topic(self, topic: str, *, cluster: str = "DefaultCluster") -> list[str]:
        """Delete a topic on all masters of a cluster and its routes; the masters' broker names."""
        check_topic(topic)
        masters = await self.masters(cluster)
        fields = DeleteTopicRequestHeader(topic=topic).fields()
        for address in masters.values():
            await self.demand(address, RequestCode.DELETE_TOPIC_IN_BROKER, fields)
        route = DeleteTopicFromNamesrvRequestHeader(topic=topic, cluster_name=cluster)
        await self.name_servers.ask_all(
            RemotingCommand(code=RequestCode.DELETE_TOPIC_IN_NAMESRV, ext_fields=route.fields())
        )
        return list(masters)

    async def topic_stats(self, topic: str) -> list[QueueStats]:
        """Offsets of each queue of a topic. Raises RouteNotFoundError."""
        check_topic(topic)
        self.check_running()
        route = await self.routes.find(topic)
        fields = GetTopicStatsInfoRequestHeader(topic=topic).fields()
        answers = await asyncio.gather(
            *(
                self.demand(addresses[MASTER_ID], RequestCode.GET_TOPIC_STATS_INFO, fields)
                for addresses in route.brokers.values()
                if MASTER_ID in addresses
            )
        )
        tables = [TopicStatsTable.decode(answer.body).offset_table for answer in answers]
        return sorted(
            QueueStats(
                broker_name=queue.broker_name,
                queue_id=queue.queue_id,
                min_offset=offsets.min_offset,
                max_offset=offsets.max_offset,
                last_update_ms=offsets.last_update_timestamp,
            )
            for table in tables
            for queue, offsets in table.items()
        )

    async def queue_entries(
        self, queue: MessageQueue, offset: int, count: int
    ) -> list[ConsumeQueueData]:
        """Entries of a consume queue from `offset` on, at most as many as a broker gives at once:
        where records lie and how many bytes they have. Empty behind the last one."""
        self.check_running()
        await self.routes.find(queue.topic)
        header = QueryConsumeQueueRequestHeader(
            topic=queue.topic,
            queue_id=queue.queue_id,
            index=offset,
            count=min(count, ENTRIES_MAX),
        )
        answer = await self.demand(
            self.routes.address(queue.broker_name),
            RequestCode.QUERY_CONSUME_QUEUE,
            header.fields(),
        )
        if not answer.body:
            return []
        return QueryConsumeQueueResponseBody.decode(answer.body).queue_data

    async def check_filter(self, broker_name: str, topic: str, group: str, sql: str) -> None:
        """Have a broker say that it evaluates SQL92 filters, and this one; else BrokerError."""
        self.check_running()
        await self.routes.find(topic)
        body = CheckClientRequestBody(
            client_id=self.client_id,
            group=group,
            subscription_data=SubscriptionData(topic=topic, sub_string=sql, expression_type=SQL92),
        )
        address = self.routes.address(broker_name)
        await self.demand(address, RequestCode.CHECK_CLIENT_CONFIG, body=body.encode())

    async def topic_route(self, topic: str) -> list[BrokerRoute]:
        """Brokers that serve a topic. Raises RouteNotFoundError."""
        check_topic(topic)
        self.check_running()
        data = await self.routes.fetch(topic)
        brokers = {broker.broker_name: broker.broker_addrs for broker in data.broker_datas}
        return sorted(
            BrokerRoute(
                broker_name=queue.broker_name,
                addresses=tuple(
                    address for _, address in sorted(brokers.get(queue.broker_name, {}).items())
                ),
                read_queues=queue.read_queue_nums,
                write_queues=queue.write_queue_nums,
                perm=queue.perm,
            )
            for queue in data.queue_datas
        )

    async def _ask_name_server(self, code: int) -> RemotingCommand:
        self.check_running()
        return await self.name_servers.demand(RemotingCommand(code=code))
