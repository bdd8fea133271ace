"""Administers consumer groups: lag, members, offsets (RocketMQ: DefaultMQAdminExt)."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

from congreve.base.fields import Fields
from congreve.client.admin.brokers import TOOLS_GROUP, Brokers, in_turns
from congreve.client.admin.queue_reader import QueueReader
from congreve.client.checks import check_group
from congreve.client.errors import InvalidSettingError
from congreve.client.transport.instance import ClientInstance
from congreve.records.message.topics import RETRY_PREFIX
from congreve.remoting.messages.admin_bodies import (
    ConsumerConnection,
    ConsumeStats,
    ConsumeStatsList,
    OffsetWrapper,
    QueryConsumeTimeSpanBody,
    QueueTimeSpan,
    ResetOffsetBody,
)
from congreve.remoting.messages.admin_headers import (
    DeleteSubscriptionGroupRequestHeader,
    GetConsumerConnectionListRequestHeader,
    GetConsumeStatsInBrokerHeader,
    GetConsumeStatsRequestHeader,
    QueryConsumeTimeSpanRequestHeader,
    ResetOffsetRequestHeader,
)
from congreve.remoting.messages.bodies import SubscriptionGroupConfig, SubscriptionGroupWrapper
from congreve.remoting.messages.body import MessageQueue
from congreve.remoting.messages.codes import RequestCode, ResponseCode
from congreve.remoting.messages.headers import (
    OffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)

OffsetTarget = int | Literal["first", "last"]
"""The oldest message, the end of the queue, or a store time in ms since 1970."""

_TO_THE_END = -1


class GroupSummary(Fields, msgspec.Struct, frozen=True, order=True):
    """A consumer group: its members, its topics, and its lag in messages."""

    group: str
    members: int
    topics: int
    lag: int


class QueueLag(Fields, msgspec.Struct, frozen=True, order=True):
    """How far a group is in one queue (RocketMQ: OffsetWrapper).

    `lag` counts the messages that are not consumed, `lag_ms` is the age of the oldest of them.
    """

    topic: str
    broker_name: str
    queue_id: int
    consumer_offset: int
    broker_offset: int
    lag: int
    lag_ms: int
    last_consumed_ms: int
    in_flight: int | None = None
    """Messages that pops have taken and not settled; None of a queue that the group pulls."""
    ready: int | None = None
    """Messages that no pop has taken."""
    in_flight_ms: int | None = None
    """The age of the oldest message in flight, None without one."""
    redelivered: int | None = None
    """Messages that came again since the broker's start."""
    dead_letters: int | None = None
    """Messages that became dead letters since then."""
    without_order: bool | None = None
    """Whether they are popped without the order that the topic's message.type FIFO says."""


class GroupMember(Fields, msgspec.Struct, frozen=True, order=True):
    """A client of a group, connected to `broker_name` (RocketMQ: Connection)."""

    client_id: str
    address: str
    language: str
    version: int
    broker_name: str
    transport: str = "remoting"
    """Or "grpc", of a client of RocketMQ 5."""


class QueueReset(Fields, msgspec.Struct, frozen=True, order=True):
    """A group's offset in a queue before and after a reset; -1: the group had none."""

    broker_name: str
    queue_id: int
    before: int
    after: int
    online: bool
    """Members get the new offset and commit it; otherwise the broker's table changes at once."""


class GroupAdmin:
    """Consumer groups of all brokers: ``admin.groups`` of an AdminClient.

    Errors are those of AdminClient. (RocketMQ: DefaultMQAdminExt.)
    """

    def __init__(self, client: ClientInstance, brokers: Brokers) -> None:
        self._client = client
        self._brokers = brokers

    async def names(self) -> list[str]:
        """Names of all groups with settings, sorted."""
        return sorted(await self._settings())

    async def retry_limit(self, group: str) -> int | None:
        """How often a message of the group is delivered again before it is a dead letter; None
        for an unknown group."""
        return (await self._settings()).get(group)

    async def summaries(self) -> list[GroupSummary]:
        """All groups with their lag. Each costs one small request for its members."""
        lags: dict[str, int] = dict.fromkeys(await self._settings(), 0)
        topics: dict[str, set[str]] = {}
        fields = GetConsumeStatsInBrokerHeader(is_order=False).fields()
        answers = await self._brokers.ask_masters(
            RequestCode.GET_BROKER_CONSUME_STATS, fields, accept=(ResponseCode.SYSTEM_ERROR,)
        )
        for answer in answers.values():
            for entry in ConsumeStatsList.decode(answer.body).consume_stats_list:
                for group, stats in entry.items():
                    lags[group] = lags.get(group, 0) + sum(map(_lag, stats))
                    topics.setdefault(group, set()).update(
                        queue.topic for one in stats for queue in one.offset_table
                    )
        members = await in_turns(self.members, list(lags))
        return sorted(
            GroupSummary(
                group=group,
                members=len({member.client_id for member in found}),
                topics=len({t for t in topics.get(group, ()) if not t.startswith(RETRY_PREFIX)}),
                lag=lags[group],
            )
            for group, found in zip(lags, members, strict=True)
        )

    async def lag(self, group: str, topic: str | None = None) -> list[QueueLag]:
        """The lag of a group in each queue of its topics, or of one of them."""
        fields = GetConsumeStatsRequestHeader(consumer_group=group, topic=topic).fields()
        answers = await self._brokers.ask_masters(RequestCode.GET_CONSUME_STATS, fields)
        masters = await self._brokers.masters()
        rows: list[QueueLag] = []
        for name, answer in answers.items():
            table = ConsumeStats.decode(answer.body).offset_table
            spans = await self._spans(masters[name], group, {queue.topic for queue in table})
            for queue, offsets in table.items():
                span = spans.get((queue.topic, queue.queue_id))
                rows.append(
                    QueueLag(
                        topic=queue.topic,
                        broker_name=queue.broker_name,
                        queue_id=queue.queue_id,
                        consumer_offset=offsets.consumer_offset,
                        broker_offset=offsets.broker_offset,
                        lag=max(offsets.broker_offset - offsets.consumer_offset, 0),
                        lag_ms=max(span.delay_time, 0) if span is not None else 0,
                        last_consumed_ms=offsets.last_timestamp,
                        **_popped(offsets),
                    )
                )
        return sorted(rows)

    async def members(self, group: str) -> list[GroupMember]:
        """The clients of a group; none while it is offline."""
        fields = GetConsumerConnectionListRequestHeader(consumer_group=group).fields()
        answers = await self._brokers.ask_masters(
            RequestCode.GET_CONSUMER_CONNECTION_LIST,
            fields,
            accept=(ResponseCode.CONSUMER_NOT_ONLINE,),
        )
        return sorted(
            GroupMember(
                client_id=client.client_id,
                address=client.client_addr,
                language=client.language,
                version=client.version,
                broker_name=name,
                transport=client.protocol or "remoting",
            )
            for name, answer in answers.items()
            for client in ConsumerConnection.decode(answer.body).connection_set
        )

    async def reset(
        self, group: str, topic: str, to: OffsetTarget, *, preview: bool = False
    ) -> list[QueueReset]:
        """Set a group's offsets in all queues of a topic; with `preview` only show what would
        change.

        Members of a running group get their new offsets from the broker, which takes only a time;
        their offsets change when they commit them. Raises InvalidSettingError for another target.
        """
        if to not in ("first", "last") and (not isinstance(to, int) or to < 0):
            raise InvalidSettingError(f"to is {to!r}: first, last or a time in ms is expected")
        self._client.check_running()
        route = await self._client.routes.find(topic)
        online = {member.broker_name for member in await self.members(group)}
        rows = await in_turns(
            lambda queue: self._preview(group, queue, to, queue.broker_name in online),
            route.read_queues,
        )
        if preview:
            return sorted(rows)
        reset_by_members = {
            (queue.broker_name, queue.queue_id): offset
            for name in sorted(online & set(route.brokers))
            for queue, offset in (await self._reset_members(name, group, topic, to)).items()
        }
        for row in rows:
            if not row.online:
                await self._store_offset(row, group, topic)
        return sorted(
            msgspec.structs.replace(
                row, after=reset_by_members.get((row.broker_name, row.queue_id), row.after)
            )
            for row in rows
        )

    async def create(
        self,
        group: str,
        *,
        cluster: str = "DefaultCluster",
        retries: int | None = None,
        retry_queues: int | None = None,
        enabled: bool | None = None,
        broadcast: bool | None = None,
    ) -> dict[str, SubscriptionGroupConfig]:
        """Create a group, or change its settings, on all masters of a cluster; returns them by
        broker name. What is None stays as it is, or is RocketMQ's default of a new group.

        `retries`: how often a message is delivered again before it is a dead letter.
        """
        check_group(group, TOOLS_GROUP)
        given = {
            "retry_max_times": retries,
            "retry_queue_nums": retry_queues,
            "consume_enable": enabled,
            "consume_broadcast_enable": broadcast,
        }
        changes = {name: value for name, value in given.items() if value is not None}
        saved = {}
        for name, address in (await self._brokers.masters(cluster)).items():
            answer = await self._client.demand(
                address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
            )
            table = SubscriptionGroupWrapper.decode(answer.body).subscription_group_table
            known = table.get(group) or SubscriptionGroupConfig(group_name=group)
            saved[name] = msgspec.structs.replace(known, **changes)
            code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
            await self._client.demand(address, code, body=saved[name].encode())
        return saved

    async def delete(self, group: str, *, with_offsets: bool = False) -> list[str]:
        """Delete a group's settings on all brokers; returns their names."""
        header = DeleteSubscriptionGroupRequestHeader(group_name=group, remove_offset=with_offsets)
        return sorted(
            await self._brokers.ask_masters(RequestCode.DELETE_SUBSCRIPTIONGROUP, header.fields())
        )

    async def _settings(self) -> dict[str, int]:
        """The greatest retryMaxTimes of each group."""
        answers = await self._brokers.ask_masters(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        found: dict[str, int] = {}
        for answer in answers.values():
            table = SubscriptionGroupWrapper.decode(answer.body).subscription_group_table
            for name, settings in table.items():
                found[name] = max(found.get(name, 0), settings.retry_max_times)
        return found

    async def _spans(
        self, address: str, group: str, topics: Iterable[str]
    ) -> Mapping[tuple[str, int], QueueTimeSpan]:
        async def ask(topic: str) -> list[QueueTimeSpan]:
            fields = QueryConsumeTimeSpanRequestHeader(topic=topic, group=group).fields()
            answer = await self._brokers.ask(
                address,
                RequestCode.QUERY_CONSUME_TIME_SPAN,
                fields,
                accept=(ResponseCode.TOPIC_NOT_EXIST,),
            )
            if answer is None:
                return []
            return QueryConsumeTimeSpanBody.decode(answer.body).consume_time_span_set

        found = await in_turns(ask, sorted(topics))
        return {
            (span.message_queue.topic, span.message_queue.queue_id): span
            for spans in found
            for span in spans
        }

    async def _preview(
        self, group: str, queue: MessageQueue, to: OffsetTarget, online: bool
    ) -> QueueReset:
        address = self._client.routes.address(queue.broker_name)
        known = await self._brokers.ask(
            address,
            RequestCode.QUERY_CONSUMER_OFFSET,
            QueryConsumerOffsetRequestHeader(
                consumer_group=group, topic=queue.topic, queue_id=queue.queue_id
            ).fields(),
            accept=(ResponseCode.QUERY_NOT_FOUND,),
        )
        reader = QueueReader(self._client, queue, address)
        if isinstance(to, int):
            target = await reader.first_at(to)
        else:
            first, end = await reader.bounds()
            target = first if to == "first" else end
        return QueueReset(
            broker_name=queue.broker_name,
            queue_id=queue.queue_id,
            before=-1 if known is None else OffsetResponseHeader.read(known).offset,
            after=target,
            online=online,
        )

    async def _reset_members(
        self, broker_name: str, group: str, topic: str, to: OffsetTarget
    ) -> dict[MessageQueue, int]:
        timestamp = {"first": 0, "last": _TO_THE_END}.get(to, to) if isinstance(to, str) else to
        header = ResetOffsetRequestHeader(
            topic=topic, group=group, timestamp=int(timestamp), is_force=True
        )
        address = self._client.routes.address(broker_name)
        code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
        answer = await self._client.demand(address, code, header.fields())
        return dict(ResetOffsetBody.decode(answer.body).offset_table)

    async def _store_offset(self, row: QueueReset, group: str, topic: str) -> None:
        header = UpdateConsumerOffsetRequestHeader(
            consumer_group=group, topic=topic, queue_id=row.queue_id, commit_offset=row.after
        )
        address = self._client.routes.address(row.broker_name)
        code = RequestCode.UPDATE_CONSUMER_OFFSET
        await self._client.demand(address, code, header.fields())


def _popped(offsets: OffsetWrapper) -> dict[str, Any]:
    """The fields of a queue that its group pops. RocketMQ 5 only knows where the next pop
    begins."""
    if offsets.in_flight is None or offsets.pull_offset is None:
        return {}
    ready = max(offsets.broker_offset - offsets.pull_offset, 0)
    return {
        "in_flight": offsets.in_flight,
        "ready": ready,
        "in_flight_ms": offsets.in_flight_age,
        "redelivered": offsets.redelivered,
        "dead_letters": offsets.dead_letters,
        "without_order": bool(offsets.without_order),
    }


def _lag(stats: ConsumeStats) -> int:
    return sum(
        max(offsets.broker_offset - offsets.consumer_offset, 0)
        for offsets in stats.offset_table.values()
    )
