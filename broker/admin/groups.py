"""Administration of consumer groups and their progress (RocketMQ: AdminBrokerProcessor)."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator, Mapping

from congreve.base.clock import Clock
from congreve.broker.admin.consume_stats import BrokerConsumeStats, GroupConsumeStats, Popped
from congreve.broker.admin.paged_table import PagedTable
from congreve.broker.config import BrokerConfig
from congreve.broker.errors import RefusedError
from congreve.broker.figures.stats import BrokerStats
from congreve.broker.group.consumers import ConsumerManager
from congreve.broker.metadata.attributes import GROUP_ATTRIBUTES, changed
from congreve.broker.metadata.metadata import Metadata
from congreve.broker.metadata.name_rules import QUEUES_MAX, group_name_fault, retries_fault
from congreve.engine.store import MessageStore
from congreve.records.message.topics import (
    pop_retry_topic_v2,
    popped_topic,
    retry_topic,
    stored_pop_retry_topic,
)
from congreve.remoting.loop.pieces import Pieces
from congreve.remoting.messages import fastjson
from congreve.remoting.messages.admin_bodies import (
    GroupList,
    QueryConsumeTimeSpanBody,
    QueryCorrectionOffsetBody,
    QueueTimeSpan,
)
from congreve.remoting.messages.admin_headers import (
    CloneGroupOffsetRequestHeader,
    DeleteSubscriptionGroupRequestHeader,
    GetConsumeStatsInBrokerHeader,
    GetConsumeStatsRequestHeader,
    GetSubscriptionGroupConfigRequestHeader,
    QueryConsumeTimeSpanRequestHeader,
    QueryCorrectionOffsetHeader,
    QueryTopicConsumeByWhoRequestHeader,
)
from congreve.remoting.messages.bodies import SubscriptionGroupConfig, SubscriptionGroupList
from congreve.remoting.messages.body import MessageQueue
from congreve.remoting.messages.codes import VERSION, RequestCode, ResponseCode
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.transport.connection import Connection
from congreve.remoting.transport.dispatcher import Handler

logger = logging.getLogger(__name__)

FURTHER_MAX = 64 * 1024
"""Characters of the settings of a group that RocketMQ 4.9.4 does not have."""
NOTHING_TO_CORRECT = 2**63 - 1


class GroupAdminProcessor:
    """Settings, offsets and lag of consumer groups (RocketMQ: AdminBrokerProcessor)."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        metadata: Metadata,
        consumers: ConsumerManager,
        store: MessageStore,
        stats: BrokerStats,
        clock: Clock,
        pieces: Pieces,
        popped: Popped,
        delete_topic: Callable[[str], Awaitable[None]],
    ) -> None:
        self._config = config
        self._delete_topic = delete_topic
        self._topics = metadata.topics
        self._groups = metadata.groups
        self._consumers = consumers
        self._offsets = metadata.offsets
        self._modes = metadata.request_modes
        self._store = store
        self._clock = clock
        self._pieces = pieces
        groups, offsets = metadata.groups, metadata.offsets
        self._all_groups = PagedTable(
            pieces, groups.body(), lambda: groups.data_version, lambda: groups.data_version
        )
        self._all_offsets = PagedTable(
            pieces, offsets.body(), lambda: offsets.changes, lambda: None
        )
        self._consume_stats = GroupConsumeStats(
            config=config,
            metadata=metadata,
            consumers=consumers,
            store=store,
            stats=stats,
            popped=popped,
        )
        self._all_consume_stats = BrokerConsumeStats(
            self._consume_stats,
            config=config,
            metadata=metadata,
            store=store,
            pieces=pieces,
        )

    def handlers(self) -> Mapping[int, Handler]:
        """The handlers by request code."""
        return {
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self.update_group,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: self.update_groups,
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: self.get_group,
            RequestCode.DELETE_SUBSCRIPTIONGROUP: self.delete_group,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self.get_all_groups,
            RequestCode.GET_ALL_CONSUMER_OFFSET: self.get_all_offsets,
            RequestCode.GET_CONSUME_STATS: self.get_consume_stats,
            RequestCode.GET_BROKER_CONSUME_STATS: self.get_broker_consume_stats,
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: self.query_topic_groups,
            RequestCode.QUERY_CONSUME_TIME_SPAN: self.query_time_span,
            RequestCode.CLONE_GROUP_OFFSET: self.clone_offsets,
            RequestCode.QUERY_CORRECTION_OFFSET: self.query_correction,
        }

    async def update_group(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        """Create or change a group; the answer waits until it is on disk."""
        self._update(SubscriptionGroupConfig.decode(request.body), connection)
        return await self._updated(request)

    async def update_groups(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        """Create or change groups; after a refusal those before it in the list are changed."""
        for group in SubscriptionGroupList.decode(request.body).group_config_list:
            self._update(group, connection)
            await asyncio.sleep(0)
        return await self._updated(request)

    async def _updated(self, request: RemotingCommand) -> RemotingCommand:
        await asyncio.gather(self._groups.file.saved(), self._topics.file.saved())
        return request.reply(ResponseCode.SUCCESS)

    def _update(self, wanted: SubscriptionGroupConfig, connection: Connection) -> None:
        """Create or change a group; `wanted` has changes of attributes, with their signs."""
        self._not_on_slave()
        name = wanted.group_name
        fault = group_name_fault(name)
        if fault is None and not 0 <= wanted.retry_queue_nums <= QUEUES_MAX:
            fault = f"retryQueueNums[{wanted.retry_queue_nums}] is not from 0 to {QUEUES_MAX}"
        if fault is None and len(fastjson.dumps(wanted.further)) > FURTHER_MAX:
            fault = f"the settings of group[{name}] are longer than {FURTHER_MAX} characters"
        if fault is not None:
            raise RefusedError(ResponseCode.SYSTEM_ERROR, fault)
        known = self._groups.table.get(name)
        self._groups.update(
            wanted.with_attributes(
                changed(
                    None if known is None else known.attributes, wanted.attributes, GROUP_ATTRIBUTES
                )
            )
        )
        retry = retry_topic(name)
        if retry in self._topics.table and retries_fault(name) is None:
            self._topics.create_internal(retry, wanted.retry_queue_nums)
        logger.info("group %s updated by %s:%d", name, *connection.peer)

    def get_group(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        """The settings of one group, which is created if autoCreateSubscriptionGroup allows it."""
        name = GetSubscriptionGroupConfigRequestHeader.read(request).group
        group = self._groups.find(name)
        if group is None:
            raise RefusedError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "No group in this broker")
        return request.reply(ResponseCode.SUCCESS, body=group.encode())

    async def delete_group(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        """Delete a group, and on request its offsets, with what it was to pop again; the answer
        waits until that is on disk."""
        self._not_on_slave()
        header = DeleteSubscriptionGroupRequestHeader.read(request)
        group = header.group_name
        with_offsets = header.remove_offset or header.clean_offset
        retries = self._pop_retries(group) if with_offsets else ()
        self._groups.delete(group)
        self._modes.drop_group(group)
        if with_offsets:
            self._offsets.remove_group(group)
        logger.info("group %s deleted by %s:%d", group, *connection.peer)
        await asyncio.gather(self._groups.file.saved(), self._offsets.journal.write())
        for retry in retries:
            await self._delete_topic(retry)
        return request.reply(ResponseCode.SUCCESS)

    def _pop_retries(self, group: str) -> list[str]:
        """The topics from which only this group pops again."""
        names = {
            named(group, popped_topic(group, topic))
            for topic in self._offsets.topics_of(group)
            for named in (stored_pop_retry_topic, pop_retry_topic_v2)
        }
        known = sorted(names & self._topics.table.keys())
        return [topic for topic in known if not set(self._offsets.groups_of(topic)) - {group}]

    def _not_on_slave(self) -> None:
        if self._config.is_slave:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                "Can't modify topic or subscription group from slave broker, use its master",
            )

    async def get_all_groups(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        """The settings of all groups, or a page of them."""
        return await self._all_groups.answer(request)

    async def get_all_offsets(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        """The offsets of all groups, or a page of them."""
        return await self._all_offsets.answer(request)

    async def get_consume_stats(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        """A group's offset and lag on each queue."""
        header = GetConsumeStatsRequestHeader.read(request)
        group = header.consumer_group
        named = (header.topic or "").strip()
        topics = [named] if named else self._offsets.topics_of(group)
        steps = self._consume_stats.steps(group, topics, write_queues=False, with_pops=True)
        stats = await self._pieces.run(steps)
        if request.version > VERSION:  # RocketMQ 5 shows the difference as what is in flight
            for offsets in stats.offset_table.values():
                offsets.pull_offset = max(offsets.pull_offset or 0, offsets.consumer_offset)
        body = await self._pieces.run(stats.encode_steps())
        return request.reply(ResponseCode.SUCCESS, body=body)

    async def get_broker_consume_stats(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        """Offsets and lag of all groups."""
        only_ordered = GetConsumeStatsInBrokerHeader.read(request).is_order
        body = await self._all_consume_stats.get(only_ordered=only_ordered)
        return request.reply(ResponseCode.SUCCESS, body=body)

    def query_topic_groups(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        """The groups that consume a topic."""
        topic = QueryTopicConsumeByWhoRequestHeader.read(request).topic
        names = set(self._consumers.groups_of(topic)) | set(self._offsets.groups_of(topic))
        body = GroupList(group_list=sorted(names))
        return request.reply(ResponseCode.SUCCESS, body=body.encode())

    async def query_time_span(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        """A group's oldest and newest messages and delay on each queue of a topic."""
        header = QueryConsumeTimeSpanRequestHeader.read(request)
        config = self._topics.get(header.topic)
        if config is None:
            raise RefusedError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist")
        steps = self._time_spans(header.group, header.topic, config.write_queue_nums)
        return request.reply(ResponseCode.SUCCESS, body=await self._pieces.run(steps))

    def _time_spans(self, group: str, topic: str, queues: int) -> Generator[None, None, bytes]:
        spans = []
        for queue_id in range(queues):
            spans.append(self._time_span(group, topic, queue_id))
            yield
        return (yield from QueryConsumeTimeSpanBody(consume_time_span_set=spans).encode_steps())

    def _time_span(self, group: str, topic: str, queue_id: int) -> QueueTimeSpan:
        store = self._store
        newest = store.max_offset(topic, queue_id)
        consumed = self._offsets.query(group, topic, queue_id)
        earliest = store.earliest_store_time(topic, queue_id)
        consume_time = store.store_time(topic, queue_id, consumed - 1) if consumed > 0 else earliest
        latest = store.store_time(topic, queue_id, newest - 1)
        delay = 0
        if consumed < newest:
            waiting_since = store.store_time(topic, queue_id, max(consumed, 0))
            delay = self._clock.now() - waiting_since if waiting_since > 0 else 0
        return QueueTimeSpan(
            message_queue=MessageQueue(
                topic=topic, broker_name=self._config.broker_name, queue_id=queue_id
            ),
            min_time_stamp=earliest,
            max_time_stamp=latest,
            consume_time_stamp=consume_time,
            delay_time=delay,
        )

    async def clone_offsets(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        """Copy the offsets of one group to another; the answer waits until they are on disk."""
        await self._pieces.run(self._clone(CloneGroupOffsetRequestHeader.read(request)))
        await self._offsets.journal.write()
        return request.reply(ResponseCode.SUCCESS)

    def _clone(self, header: CloneGroupOffsetRequestHeader) -> Generator[None, None, None]:
        named = (header.topic or "").strip()
        online = self._consumers.groups.get(header.src_group)
        for topic in [named] if named else self._offsets.topics_of(header.src_group):
            left = online is not None and online.subscriptions and topic not in online.subscriptions
            if topic in self._topics.table and (header.offline or not left):
                queues = self._offsets.queues(header.src_group, topic)
                self._offsets.check(header.dest_group, topic, queues)
                self._offsets.clone(header.src_group, header.dest_group, topic)
            yield

    async def query_correction(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        """How far the slowest other group is on each queue that the compared group has passed.

        A queue on which the compared group itself is the slowest gets Long.MAX_VALUE.
        """
        header = QueryCorrectionOffsetHeader.read(request)
        body = QueryCorrectionOffsetBody(
            correction_offsets=await self._pieces.run(self._slowest(header))
        )
        return request.reply(ResponseCode.SUCCESS, body=await self._pieces.run(body.encode_steps()))

    def _slowest(
        self, header: QueryCorrectionOffsetHeader
    ) -> Generator[None, None, dict[int, int]]:
        left_out = {name.strip() for name in (header.filter_groups or "").split(",")}
        slowest: dict[int, int] = {}
        for group in self._offsets.groups_of(header.topic):
            if group in left_out:
                continue
            for queue_id, offset in self._offsets.queues(group, header.topic).items():
                if offset >= self._store.min_offset(header.topic, queue_id):
                    slowest[queue_id] = min(slowest.get(queue_id, offset), offset)
                yield
        for queue_id, offset in self._offsets.queues(header.compare_group, header.topic).items():
            if slowest.get(queue_id, offset + 1) > offset:
                slowest[queue_id] = NOTHING_TO_CORRECT
            yield
        return slowest
