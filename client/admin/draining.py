"""Takes a broker out of use without a loss: no new messages, and what it still has (RocketMQ:
WipeWritePermSubCommand)."""

import asyncio
from collections.abc import Collection, Mapping
from contextlib import suppress
from enum import StrEnum

import msgspec

from congreve.base.fields import Fields
from congreve.client.admin.brokers import in_turns
from congreve.client.admin.client import AdminClient
from congreve.client.admin.queue_reader import QueueReader
from congreve.client.admin.reports import BrokerReports
from congreve.client.errors import BrokerError, BrokerNotFoundError
from congreve.client.transport.route import MASTER_ID, PERM_WRITE
from congreve.records.message.topics import (
    DLQ_PREFIX,
    SCHEDULE_TOPIC,
    TRANS_GROUP,
    TRANS_HALF_TOPIC,
    is_system_group,
    is_system_topic,
)
from congreve.remoting.errors import RemotingError
from congreve.remoting.messages.admin_bodies import (
    ConsumeStats,
    ConsumeStatsList,
    DelayedCounts,
    GroupList,
)
from congreve.remoting.messages.admin_headers import (
    DelayedMessagesRequestHeader,
    GetConsumeStatsRequestHeader,
    GetRouteInfoRequestHeader,
    QueryTopicConsumeByWhoRequestHeader,
    UnregisterBrokerRequestHeader,
    WipeWritePermOfBrokerRequestHeader,
)
from congreve.remoting.messages.bodies import BrokerData, ClusterInfo, TopicRouteData
from congreve.remoting.messages.body import MessageQueue
from congreve.remoting.messages.codes import RequestCode, ResponseCode
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.messages.headers import (
    OffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
)

DRAINING = "draining"
"""The setting of Congreve's brokers."""
PERMISSION = "brokerPermission"
OPEN_TRANSACTIONS = "openTransactions"
"""A figure of Congreve's brokers."""
LEVEL_FIGURE = "scheduleMessageOffset_"
REGISTERED_S = 15.0
"""How long name servers may take to get a change; a broker tries again after 5 s."""
LOOK_S = 0.2
FOREVER_MS = (1 << 63) - 1


class Sends(StrEnum):
    """Whether routes lead producers to a broker."""

    OPEN = "open"
    DRAINING = "draining"
    """By its setting, which lasts until it is changed."""
    WIPED = "wiped"
    """At a name server, until the broker registers changes (mqadmin: wipeWritePerm)."""
    FORBIDDEN = "forbidden"
    """By brokerPermission: it also refuses what consumers send back."""


class Remaining(Fields, msgspec.Struct, frozen=True, order=True):
    """Messages that a broker still has to deliver; `group` and `topic` are empty where they do not
    matter."""

    kind: str
    group: str
    topic: str
    messages: int


class DrainedBroker:
    """The brokers of one name, for those that take them out of use (RocketMQ: DefaultMQAdminExt).

    Errors are those of AdminClient. RocketMQ's brokers do not know the setting `draining`: name
    servers remove their write permission instead, until such a broker registers changes.
    """

    def __init__(self, admin: AdminClient, name: str) -> None:
        self._admin = admin
        self.name = name

    async def addresses(self) -> dict[int, str]:
        """The registered brokers by number, 0 is the master. Raises BrokerNotFoundError if there is
        no master."""
        table = (await self._admin.cluster_info()).broker_addr_table
        group = table.get(self.name)
        if group is None or MASTER_ID not in group.broker_addrs:
            known = ", ".join(sorted(table)) or "none"
            raise BrokerNotFoundError(
                f"the name servers have no master {self.name}; they have {known}"
            )
        return dict(group.broker_addrs)

    async def places(self) -> list[tuple[int, str]]:
        """Numbers and addresses of this name at any name server, sorted."""
        return sorted({place for group in await self._groups() for place in _places(group)})

    async def common(self) -> list[tuple[int, str]]:
        """Those that all name servers have which answer."""
        return sorted(set.intersection(*map(_places, await self._groups())))

    async def _groups(self) -> list[BrokerData | None]:
        """What each name server that answers has of this name."""
        request = RemotingCommand(code=RequestCode.GET_BROKER_CLUSTER_INFO)
        answers = (await self._admin.name_servers.ask_each(request)).values()
        return [ClusterInfo.decode(each.body).broker_addr_table.get(self.name) for each in answers]

    async def unregister(self, number: int, address: str) -> None:
        """Remove a broker that does not run any more from the name servers that answer."""
        for cluster in {group.cluster for group in await self._groups() if group is not None}:
            header = UnregisterBrokerRequestHeader(
                broker_name=self.name,
                broker_addr=address,
                cluster_name=cluster,
                broker_id=number,
            )
            request = RemotingCommand(
                code=RequestCode.UNREGISTER_BROKER, ext_fields=header.fields()
            )
            await self._admin.name_servers.ask_each(request)

    async def is_left(self) -> bool:
        """Whether no name server leads producers here, also if the broker does not answer."""
        return not any((await self._routes({})).values())

    async def sends(self) -> Sends:
        """Whether routes lead producers to the master."""
        address = (await self.addresses())[MASTER_ID]
        settings = await BrokerReports(self._admin, address).settings()
        if settings.get(DRAINING) == "true":
            return Sends.DRAINING
        if not int(settings.get(PERMISSION, "6")) & PERM_WRITE:
            return Sends.FORBIDDEN
        return Sends.OPEN if all((await self._routes(settings)).values()) else Sends.WIPED

    async def _routes(self, settings: Mapping[str, str]) -> dict[str, bool]:
        """Which name servers, of those that have the broker, lead producers to it: the route of the
        broker's own topic shows that. Empty if that topic is never writable."""
        is_writable = int(settings.get(PERMISSION, "6")) & PERM_WRITE
        if not is_writable or settings.get("brokerTopicEnable") == "false":
            return {}
        header = GetRouteInfoRequestHeader(topic=self.name)
        request = RemotingCommand(
            code=RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields=header.fields()
        )
        return {
            address: bool(queue.perm & PERM_WRITE)
            for address, answer in (await self._admin.name_servers.ask_each(request)).items()
            if answer.code == ResponseCode.SUCCESS
            for queue in TopicRouteData.decode(answer.body).queue_datas
            if queue.broker_name == self.name
        }

    async def stop_sends(self) -> bool:
        """Lead producers to other brokers, also where that is so already. Returns whether all name
        servers do so by now.

        A slave that does not answer is left out: it may not become the master before the next call.
        """
        return not any((await self._set_draining(is_draining=True)).values())

    async def allow_sends(self) -> None:
        """Undo stop_sends(), also what `mqadmin wipeWritePerm` did; every topic has its own
        permission again. brokerPermission stays. Returns when name servers lead producers here, or
        after some seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(REGISTERED_S):
                while not all((await self._set_draining(is_draining=False)).values()):
                    await asyncio.sleep(LOOK_S)

    async def _set_draining(self, *, is_draining: bool) -> dict[str, bool]:
        """Change the setting where it differs; returns the routes of the master."""
        routes: dict[str, bool] = {}
        wanted = str(is_draining).lower()
        for number, address in sorted((await self.addresses()).items()):
            reports = BrokerReports(self._admin, address)
            try:
                settings = await reports.settings()
                is_known = DRAINING in settings
                if is_known and settings[DRAINING] != wanted:
                    await reports.update_settings({DRAINING: wanted})
                if number != MASTER_ID:
                    continue
                routes = await self._routes(settings)
                if is_draining and not is_known and any(routes.values()):
                    await self._wipe()
                elif (
                    not is_draining
                    and settings.get(DRAINING) != "true"
                    and not all(routes.values())
                ):
                    # A broker registers all topics when it gets this setting.
                    await reports.update_settings({PERMISSION: settings.get(PERMISSION, "6")})
            except RemotingError:
                if number == MASTER_ID:
                    raise
        return routes

    async def _wipe(self) -> None:
        header = WipeWritePermOfBrokerRequestHeader(broker_name=self.name)
        await self._admin.name_servers.ask_all(
            RemotingCommand(code=RequestCode.WIPE_WRITE_PERM_OF_BROKER, ext_fields=header.fields())
        )

    async def sent(self) -> int:
        """Messages that producers have sent to the master since it started; 0 for a RocketMQ
        broker, which counts its own copies of messages, too."""
        address = (await self.addresses())[MASTER_ID]
        figures = await BrokerReports(self._admin, address).runtime()
        if OPEN_TRANSACTIONS not in figures:
            return 0
        counts = figures["putMessageDistributeTime"].split()
        return sum(int(each.rpartition(":")[2]) for each in counts)

    # --- what remains

    async def remaining(
        self, ignored: Collection[str] = (), *, with_new_groups: bool = False
    ) -> list[Remaining]:
        """What groups have not consumed, but for the `ignored` ones, delayed messages, and open
        transactions. What members of a group have popped and not acknowledged is not consumed.

        With `with_new_groups` also the messages of topics that a connected group reads without an
        offset so far: one request for each topic.
        """
        address = (await self.addresses())[MASTER_ID]
        reports = BrokerReports(self._admin, address)
        lags = await self._lags(reports)
        if with_new_groups:
            lags |= await self._without_offsets(reports, lags.keys())
        figures = await reports.runtime()
        counts = [
            *(
                Remaining("not consumed", group, topic, lag)
                for (group, topic), lag in sorted(lags.items())
                if group not in ignored
            ),
            Remaining("delayed", "", "", await self._delayed(reports, figures)),
            Remaining("open transactions", "", "", await self._transactions(reports, figures)),
        ]
        return [each for each in counts if each.messages]

    async def _lags(self, reports: BrokerReports) -> dict[tuple[str, str], int]:
        """The lag by group and topic, also 0."""
        text = await reports.consume_stats_text()
        stats = await asyncio.to_thread(ConsumeStatsList.decode, text)
        lags: dict[tuple[str, str], int] = {}
        for entry in stats.consume_stats_list:
            for group, found in entry.items():
                if is_system_group(group):
                    continue
                for one in found:
                    for queue, offsets in one.offset_table.items():
                        key = group, queue.topic
                        lag = max(offsets.broker_offset - offsets.consumer_offset, 0)
                        lags[key] = lags.get(key, 0) + lag
        return lags

    async def _without_offsets(
        self, reports: BrokerReports, known: Collection[tuple[str, str]]
    ) -> dict[tuple[str, str], int]:
        async def look(topic: str) -> dict[tuple[str, str], int]:
            fields = QueryTopicConsumeByWhoRequestHeader(topic=topic).fields()
            code = RequestCode.QUERY_TOPIC_CONSUME_BY_WHO
            answer = await self._admin.ask(reports.address, code, fields)
            if answer.code != ResponseCode.SUCCESS:
                return {}
            groups = [
                group
                for group in GroupList.decode(answer.body).group_list
                if (group, topic) not in known and not is_system_group(group)
            ]
            return {(group, topic): await self._lag(reports, group, topic) for group in groups}

        topics = [
            topic
            for topic in await reports.topics()
            if not is_system_topic(topic) and not topic.startswith(DLQ_PREFIX)
        ]
        found = await in_turns(look, topics)
        return {key: count for each in found for key, count in each.items()}

    async def _lag(self, reports: BrokerReports, group: str, topic: str) -> int:
        """The lag of a group; without an offset it may have to read the whole topic."""
        header = GetConsumeStatsRequestHeader(consumer_group=group, topic=topic)
        code = RequestCode.GET_CONSUME_STATS
        answer = await self._admin.demand(reports.address, code, header.fields())
        offsets = ConsumeStats.decode(answer.body).offset_table.values()
        lag = sum(max(each.broker_offset - each.consumer_offset, 0) for each in offsets)
        return min(lag, await reports.stored(topic)) if lag else 0

    async def _delayed(self, reports: BrokerReports, figures: dict[str, str]) -> int:
        fields = DelayedMessagesRequestHeader(begin_ms=0, end_ms=FOREVER_MS).fields()
        answer = await self._admin.ask(reports.address, RequestCode.COUNT_DELAYED_MESSAGES, fields)
        if answer.code == ResponseCode.SUCCESS:
            return sum(row.count for row in DelayedCounts.decode(answer.body).counts)
        if answer.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            raise BrokerError(answer.code, answer.remark, reports.address)
        return sum(
            max(queue.max_offset - _next(figures, number + 1, queue.min_offset), 0)
            for number, queue in (await reports.offsets(SCHEDULE_TOPIC)).items()
        )

    async def _transactions(self, reports: BrokerReports, figures: dict[str, str]) -> int:
        """A RocketMQ broker only says up to where all are ended."""
        if OPEN_TRANSACTIONS in figures:
            return int(figures[OPEN_TRANSACTIONS])
        queue = MessageQueue(topic=TRANS_HALF_TOPIC, broker_name=self.name, queue_id=0)
        _, end = await QueueReader(self._admin, queue, reports.address).bounds()
        header = QueryConsumerOffsetRequestHeader(
            consumer_group=TRANS_GROUP, topic=TRANS_HALF_TOPIC, queue_id=0
        )
        code = RequestCode.QUERY_CONSUMER_OFFSET
        answer = await self._admin.ask(reports.address, code, header.fields())
        if answer.code != ResponseCode.SUCCESS:
            return end
        return max(end - OffsetResponseHeader.read(answer).offset, 0)


def _places(group: BrokerData | None) -> set[tuple[int, str]]:
    return set() if group is None else set(group.broker_addrs.items())


def _next(figures: Mapping[str, str], level: int, first: int) -> int:
    """The offset at which a level of a RocketMQ broker continues; before its first delivery that
    broker does not say it."""
    text = figures.get(f"{LEVEL_FIGURE}{level}")
    return first if text is None else int(text.partition(",")[0])
