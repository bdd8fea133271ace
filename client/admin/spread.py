"""Gives a topic queues on the brokers that lack them (RocketMQ: UpdateTopicSubCommand)."""

import asyncio
from collections.abc import Mapping

import msgspec

from congreve.base.fields import Fields
from congreve.client.admin.client import AdminClient
from congreve.client.admin.draining import DrainedBroker, Sends
from congreve.client.admin.reports import BrokerReports
from congreve.client.errors import RouteNotFoundError
from congreve.records.message.topics import AUTO_CREATE_TOPIC_KEY_TOPIC, is_system_group
from congreve.remoting.messages.admin_bodies import GroupList
from congreve.remoting.messages.admin_headers import (
    CreateTopicRequestHeader,
    GetRouteInfoRequestHeader,
    QueryTopicConsumeByWhoRequestHeader,
)
from congreve.remoting.messages.bodies import TopicConfig, TopicRouteData
from congreve.remoting.messages.codes import RequestCode, ResponseCode
from congreve.remoting.messages.command import RemotingCommand

TYPE, FIFO = "message.type", "FIFO"
"""The attribute of RocketMQ 5, and its value for ordered topics."""
LOOK_S = 0.2


class Share(Fields, msgspec.Struct, frozen=True, order=True):
    """The write queues of a topic on one broker, before and after; 0 where it has no such topic."""

    topic: str
    broker: str
    before: int
    after: int


class TopicTables:
    """The topics of all masters of a cluster, as they were read (RocketMQ: TopicConfigManager)."""

    def __init__(
        self,
        masters: Mapping[str, str],
        tables: Mapping[str, Mapping[str, TopicConfig]],
        sends: Mapping[str, Sends],
    ) -> None:
        self.masters = masters
        self._tables = tables
        self._sends = sends

    @classmethod
    async def read(cls, admin: AdminClient, cluster: str) -> "TopicTables":
        """Ask all masters."""
        masters = await admin.masters(cluster)
        tables, sends = {}, {}
        for name, address in masters.items():
            tables[name] = await BrokerReports(admin, address).topics()
            sends[name] = await DrainedBroker(admin, name).sends()
        return cls(masters, tables, sends)

    def names(self) -> list[str]:
        """The topics of any master, with permissions, sorted."""
        return sorted({topic for table in self._tables.values() for topic in table})

    def of(self, topic: str) -> dict[str, TopicConfig]:
        """The settings of a topic by the broker that has it. Raises RouteNotFoundError if none has
        it."""
        found = {name: table[topic] for name, table in self._tables.items() if topic in table}
        if not found:
            raise RouteNotFoundError(f"no master of this cluster has the topic {topic}")
        return found

    def queues(self, topic: str) -> dict[str, int]:
        """The write queues by broker, 0 where there is no such topic."""
        found = self.of(topic)
        return {name: found[name].write_queue_nums if name in found else 0 for name in self.masters}

    def is_ordered(self, topic: str) -> bool:
        """Whether keys of the topic depend on its queues: by an order configuration at the name
        servers, or by its attribute."""
        return any(
            config.order or (config.attributes or {}).get(TYPE) == FIFO
            for config in self.of(topic).values()
        )

    def plan(self, topic: str, queues: int | None = None) -> list[Share]:
        """As many queues on each broker as on the one with the most, or `queues`: no broker loses
        one, and one that is drained gets none."""
        counts = self.queues(topic)
        wanted = queues or max(counts.values())
        return [
            Share(topic, name, count, max(count, wanted) if self.is_open(name) else count)
            for name, count in counts.items()
        ]

    def is_open(self, broker: str) -> bool:
        """Whether producers send to the broker."""
        return self._sends[broker] is Sends.OPEN


class TopicSpread:
    """Creates queues as a plan says, with the settings of the groups that read the topic.

    It may be interrupted and repeated: what is there stays. Errors are those of AdminClient.
    (RocketMQ: DefaultMQAdminExt.createAndUpdateTopicConfig.)
    """

    def __init__(self, admin: AdminClient, tables: TopicTables) -> None:
        self._admin = admin
        self._tables = tables

    async def apply(self, share: Share) -> None:
        """Create the queues of one broker, and before them the groups that read the topic."""
        known = self._tables.of(share.topic)
        address = self._tables.masters[share.broker]
        if share.before == 0:
            await self._copy_groups(share.topic, known, address)
        config = known.get(share.broker) or max(
            known.values(), key=lambda each: each.write_queue_nums
        )
        attributes = config.attributes or {}
        header = CreateTopicRequestHeader(
            topic=share.topic,
            default_topic=AUTO_CREATE_TOPIC_KEY_TOPIC,
            read_queue_nums=max(config.read_queue_nums, share.after),
            write_queue_nums=share.after,
            perm=config.perm,
            topic_filter_type=config.topic_filter_type,
            topic_sys_flag=config.topic_sys_flag,
            order=config.order,
            attributes=",".join(f"+{key}={value}" for key, value in attributes.items()) or None,
        )
        await self._admin.demand(address, RequestCode.UPDATE_AND_CREATE_TOPIC, header.fields())

    async def registered(self, share: Share) -> None:
        """Return when all name servers that answer have the queues."""
        header = GetRouteInfoRequestHeader(topic=share.topic)
        request = RemotingCommand(
            code=RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields=header.fields()
        )
        while True:
            answers = (await self._admin.name_servers.ask_each(request)).values()
            if all(_has(answer, share) for answer in answers):
                return
            await asyncio.sleep(LOOK_S)

    async def _copy_groups(
        self, topic: str, known: Mapping[str, TopicConfig], address: str
    ) -> None:
        target = await BrokerReports(self._admin, address).groups()
        fields = QueryTopicConsumeByWhoRequestHeader(topic=topic).fields()
        for name in known:
            source = self._tables.masters[name]
            code = RequestCode.QUERY_TOPIC_CONSUME_BY_WHO
            answer = await self._admin.ask(source, code, fields)
            if answer.code != ResponseCode.SUCCESS:
                continue
            settings = await BrokerReports(self._admin, source).groups()
            for group in GroupList.decode(answer.body).group_list:
                if group not in target and group in settings and not is_system_group(group):
                    target[group] = settings[group]
                    code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
                    await self._admin.demand(address, code, body=settings[group].encode())


def _has(answer: RemotingCommand, share: Share) -> bool:
    if answer.code != ResponseCode.SUCCESS:
        return False
    return any(
        queue.broker_name == share.broker and queue.write_queue_nums >= share.after
        for queue in TopicRouteData.decode(answer.body).queue_datas
    )
