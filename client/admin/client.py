"""The client of administrators, and topics (RocketMQ: DefaultMQAdminExt)."""

import asyncio
from typing import Unpack

import msgspec

from congreve.base.fields import Fields
from congreve.client.admin.brokers import Brokers
from congreve.client.admin.dead_letters import DeadLetterAdmin
from congreve.client.admin.groups import GroupAdmin
from congreve.client.admin.reports import BrokerReports
from congreve.client.admin.timers import TimerAdmin
from congreve.client.admin.traces import TraceAdmin
from congreve.client.checks import check_topic
from congreve.client.errors import ClientError
from congreve.client.transport.instance import ClientInstance
from congreve.client.transport.options import ConnectionOptions, check_options
from congreve.client.transport.route import MASTER_ID
from congreve.records.filter.kinds import SQL92
from congreve.records.message.topics import AUTO_CREATE_TOPIC_KEY_TOPIC
from congreve.remoting.messages.admin_bodies import (
    ConsumeQueueData,
    QueryConsumeQueueResponseBody,
    SubscriptionData,
    TopicList,
    TopicStatsTable,
)
from congreve.remoting.messages.admin_headers import (
    CreateTopicRequestHeader,
    DeleteTopicFromNamesrvRequestHeader,
    DeleteTopicRequestHeader,
    GetTopicStatsInfoRequestHeader,
    QueryConsumeQueueRequestHeader,
)
from congreve.remoting.messages.bodies import CheckClientRequestBody, ClusterInfo
from congreve.remoting.messages.body import MessageQueue
from congreve.remoting.messages.codes import RequestCode
from congreve.remoting.messages.command import RemotingCommand

PERM_READ_WRITE = 6
ENTRIES_MAX = 8192
"""Maximum number of consume queue entries in one request: each takes some hundred bytes of JSON."""


class QueueStats(Fields, msgspec.Struct, frozen=True, order=True):
    """Offsets of one queue (RocketMQ: TopicOffset); `last_update_ms` is the store time of its
    last message, 0 for an empty queue."""

    broker_name: str
    queue_id: int
    min_offset: int
    max_offset: int
    last_update_ms: int


class BrokerRoute(Fields, msgspec.Struct, frozen=True, order=True):
    """The brokers of one broker name that serve a topic; the first of `addresses` is the
    master's. (RocketMQ: BrokerData.)
    """

    broker_name: str
    addresses: tuple[str, ...]
    read_queues: int
    write_queues: int
    perm: int


class AdminClient(ClientInstance):
    """Queries and changes a cluster: ``async with AdminClient("host:9876") as admin`` (RocketMQ:
    DefaultMQAdminExt).

    Its own methods are about topics; `groups`, `dead_letters`, `timers` and `traces` have the
    others.

    Every method raises BrokerError when a server refuses the request, NoNameServerError when no
    name server answers, another ClientError or a RemotingError when the request fails otherwise.
    """

    def __init__(
        self, namesrv: str, *, timeout_s: float = 3.0, **connection: Unpack[ConnectionOptions]
    ) -> None:
        check_options(self, connection, ConnectionOptions)
        super().__init__(namesrv, timeout_s=timeout_s, **connection)
        self.brokers = Brokers(self)
        self.groups = GroupAdmin(self, self.brokers)
        self.timers = TimerAdmin(self, self.brokers)
        self.traces = TraceAdmin(self.brokers)
        self.dead_letters = DeadLetterAdmin(self, self.brokers, self.groups)

    async def cluster_info(self) -> ClusterInfo:
        """All clusters and brokers."""
        return await self.brokers.cluster_info()

    async def masters(self, cluster: str) -> dict[str, str]:
        """The master addresses of a cluster by broker name. Raises BrokerNotFoundError when the
        cluster is unknown or has no master."""
        return await self.brokers.masters(cluster)

    async def topics(self) -> list[str]:
        """Names of all topics, sorted."""
        self.check_running()
        request = RemotingCommand(code=RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        answer = await self.name_servers.demand(request)
        return sorted(TopicList.decode(answer.body).topic_list)

    async def create_topic(
        self,
        topic: str,
        *,
        queues: int = 8,
        cluster: str = "DefaultCluster",
        attributes: str | None = None,
    ) -> list[str]:
        """Create a topic, or change its number of queues, on all masters of a cluster; returns
        their broker names.

        `attributes`: changes of them, "+message.type=FIFO" or "-message.type", with commas; others
        stay (RocketMQ 5: AttributeUtil).
        """
        check_topic(topic)
        if queues < 1:
            raise ClientError(f"topic {topic} with {queues} queues: at least 1 is required")
        header = CreateTopicRequestHeader(
            topic=topic,
            default_topic=AUTO_CREATE_TOPIC_KEY_TOPIC,
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=PERM_READ_WRITE,
            topic_filter_type="SINGLE_TAG",
            topic_sys_flag=0,
            order=False,
            attributes=attributes,
        )
        masters = await self.masters(cluster)
        for address in masters.values():
            await self.demand(address, RequestCode.UPDATE_AND_CREATE_TOPIC, header.fields())
        return list(masters)

    async def set_topic_permission(self, topic: str, perm: int) -> dict[str, int]:
        """Change a topic's permission, 4 for reading plus 2 for writing, on all masters that have
        it; returns the permissions by broker name.

        Raises RouteNotFoundError when no broker has the topic.
        """
        check_topic(topic)
        if perm not in (0, 2, 4, 6):
            raise ClientError(f"topic {topic} with permission {perm}: 0, 2, 4 or 6 is expected")
        await self.topic_route(topic)
        changed = {}
        for name, address in (await self.brokers.masters()).items():
            known = (await BrokerReports(self, address).topics()).get(topic)
            if known is None:
                continue
            header = CreateTopicRequestHeader(
                topic=topic,
                default_topic=AUTO_CREATE_TOPIC_KEY_TOPIC,
                read_queue_nums=known.read_queue_nums,
                write_queue_nums=known.write_queue_nums,
                perm=perm,
                topic_filter_type=known.topic_filter_type,
                topic_sys_flag=known.topic_sys_flag,
                order=known.order,
            )
            await self.demand(address, RequestCode.UPDATE_AND_CREATE_TOPIC, header.fields())
            changed[name] = perm
        return changed

    async def delete_topic(self, topic: str, *, cluster: str = "DefaultCluster") -> list[str]:
        """Delete a topic on all masters of a cluster and its routes; returns the masters' broker
        names."""
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
        """Offsets of each queue of a topic, from slaves where there is no master.

        Raises RouteNotFoundError when no broker has the topic.
        """
        check_topic(topic)
        self.check_running()
        route = await self.routes.find(topic)
        fields = GetTopicStatsInfoRequestHeader(topic=topic).fields()
        code = RequestCode.GET_TOPIC_STATS_INFO
        answers = await asyncio.gather(
            *(
                self.demand(self.routes.address_to_read(name, MASTER_ID), code, fields)
                for name in route.brokers
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
        """Entries of a consume queue from `offset` on: positions and sizes of records.

        Returns at most as many as a broker puts into one answer, none at the end of the queue.
        """
        self.check_running()
        await self.routes.find(queue.topic)
        header = QueryConsumeQueueRequestHeader(
            topic=queue.topic,
            queue_id=queue.queue_id,
            index=offset,
            count=min(count, ENTRIES_MAX),
        )
        answer = await self.demand(
            self.routes.address_to_read(queue.broker_name, MASTER_ID),
            RequestCode.QUERY_CONSUME_QUEUE,
            header.fields(),
        )
        if not answer.body:
            return []
        return QueryConsumeQueueResponseBody.decode(answer.body).queue_data

    async def check_filter(self, broker_name: str, topic: str, group: str, sql: str) -> None:
        """Ask a broker to compile an SQL92 filter. Raises BrokerError when it rejects the filter
        or does not support SQL92."""
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
        """The brokers that serve a topic. Raises RouteNotFoundError when no broker has the
        topic."""
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
