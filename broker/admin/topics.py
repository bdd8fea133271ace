"""Administration of topics (RocketMQ: AdminBrokerProcessor)."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator, Mapping

import msgspec

from congreve.broker.admin.paged_table import PagedTable
from congreve.broker.config import (
    PERM_INHERIT,
    PERM_PRIORITY,
    PERM_READ,
    PERM_WRITE,
    BrokerConfig,
)
from congreve.broker.errors import RefusedError
from congreve.broker.figures.stats import BrokerStats
from congreve.broker.metadata.attributes import (
    MESSAGE_TYPE,
    MIXED,
    TOPIC_ATTRIBUTES,
    changed,
    parse_changes,
)
from congreve.broker.metadata.metadata import Metadata
from congreve.broker.metadata.name_rules import QUEUES_MAX, topic_name_fault
from congreve.broker.metadata.topic_deletion import TopicDeletion
from congreve.engine.store import MessageStore
from congreve.records.message.topics import pop_retry_topic_v2, stored_pop_retry_topic
from congreve.remoting.loop.pieces import Pieces
from congreve.remoting.messages.admin_bodies import TopicList, TopicOffset, TopicStatsTable
from congreve.remoting.messages.admin_headers import (
    CreateTopicRequestHeader,
    DeleteTopicRequestHeader,
    GetTopicConfigRequestHeader,
    GetTopicStatsInfoRequestHeader,
)
from congreve.remoting.messages.bodies import CreateTopicListRequestBody, TopicConfig
from congreve.remoting.messages.body import MessageQueue
from congreve.remoting.messages.codes import RequestCode, ResponseCode
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.transport.connection import Connection
from congreve.remoting.transport.dispatcher import Handler

"""Priority, reading, writing and inheritance (RocketMQ: PermName)."""

logger = logging.getLogger(__name__)

FILTER_TYPES = ("SINGLE_TAG", "MULTI_TAG")


class TopicAdminProcessor:
    """Creates, changes, deletes and lists topics (RocketMQ: AdminBrokerProcessor).

    `announced` waits until name servers have the topics.
    """

    def __init__(
        self,
        *,
        config: BrokerConfig,
        metadata: Metadata,
        deletion: TopicDeletion,
        store: MessageStore,
        stats: BrokerStats,
        pieces: Pieces,
        announced: Callable[[], Awaitable[None]],
    ) -> None:
        self._config = config
        self._topics = metadata.topics
        self._offsets = metadata.offsets
        self._modes = metadata.request_modes
        self._store = store
        self._stats = stats
        self._deletion = deletion
        self._pieces = pieces
        topics = metadata.topics
        self._all_topics = PagedTable(
            pieces, topics.body(), lambda: topics.data_version, lambda: topics.data_version
        )
        self._announced = announced

    def handlers(self) -> Mapping[int, Handler]:
        """The handlers by request code."""
        return {
            RequestCode.UPDATE_AND_CREATE_TOPIC: self.update_topic,
            RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: self.update_topics,
            RequestCode.GET_TOPIC_CONFIG: self.get_topic,
            RequestCode.DELETE_TOPIC_IN_BROKER: self.delete_topic,
            RequestCode.GET_ALL_TOPIC_CONFIG: self.get_all_topics,
            RequestCode.GET_TOPIC_STATS_INFO: self.get_topic_stats,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: self.get_system_topics,
        }

    async def update_topic(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        """Create or change a topic; the answer waits until it is on disk and announced."""
        header = CreateTopicRequestHeader.read(request)
        changes = parse_changes(header.attributes or "")
        self._update(
            TopicConfig(
                topic_name=header.topic,
                read_queue_nums=header.read_queue_nums,
                write_queue_nums=header.write_queue_nums,
                perm=header.perm,
                topic_filter_type=header.topic_filter_type,
                topic_sys_flag=header.topic_sys_flag or 0,
                attributes=changes,
            ),
            connection,
        )
        return await self._updated(request)

    async def update_topics(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        """Create or change topics; after a refusal those before it in the list are changed."""
        for wanted in CreateTopicListRequestBody.decode(request.body).topic_config_list:
            self._update(wanted, connection)
            await asyncio.sleep(0)
        return await self._updated(request)

    async def _updated(self, request: RemotingCommand) -> RemotingCommand:
        await self._topics.file.saved()
        await self._announced()
        return request.reply(ResponseCode.SUCCESS)

    def _update(self, wanted: TopicConfig, connection: Connection) -> None:
        """Create or change a topic; `wanted` has changes of attributes, with their signs."""
        self._check(wanted)
        known = self._topics.get(wanted.topic_name)
        changes = wanted.attributes or {}
        if changes.get(f"+{MESSAGE_TYPE}") == MIXED and not self._config.enable_mixed_message_type:
            raise RefusedError(
                ResponseCode.INVALID_PARAMETER, "MIXED message type is not supported."
            )
        before = None if known is None else known.attributes or {}
        self._topics.update(
            msgspec.structs.replace(
                wanted,
                attributes=changed(before, changes, TOPIC_ATTRIBUTES) or None,
                # The name servers decide which topics are ordered.
                order=known is not None and known.order,
            )
        )
        logger.info("topic %s updated by %s:%d", wanted.topic_name, *connection.peer)

    def _check(self, wanted: TopicConfig) -> None:
        self._check_name(wanted.topic_name)
        for name, number in (
            ("readQueueNums", wanted.read_queue_nums),
            ("writeQueueNums", wanted.write_queue_nums),
        ):
            if not 0 <= number <= QUEUES_MAX:
                raise RefusedError(
                    ResponseCode.SYSTEM_ERROR, f"{name}[{number}] is not from 0 to {QUEUES_MAX}"
                )
        if not 0 <= wanted.perm <= PERM_PRIORITY | PERM_READ | PERM_WRITE | PERM_INHERIT:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"perm[{wanted.perm}] is not from 0 to 15: 4 to read, 2 to write, 1 for a template",
            )
        if wanted.topic_filter_type not in FILTER_TYPES:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"topicFilterType[{wanted.topic_filter_type[:40]}] is not one of "
                + ", ".join(FILTER_TYPES),
            )

    def get_topic(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        """The settings of one topic."""
        topic = GetTopicConfigRequestHeader.read(request).topic
        config = self._topics.get(topic)
        if config is None:
            raise RefusedError(
                ResponseCode.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {topic}"
            )
        body = msgspec.structs.replace(config, attributes=config.attributes or {}).encode()
        return request.reply(ResponseCode.SUCCESS, body=body)

    async def delete_topic(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        """Delete a topic with its queues and offsets; the answer waits until that is on disk.

        What its groups were to pop again goes with it.
        """
        topic = DeleteTopicRequestHeader.read(request).topic
        self._check_name(topic)
        retries = {
            named(group, topic)
            for group in self._offsets.groups_of(topic)
            for named in (stored_pop_retry_topic, pop_retry_topic_v2)
        }
        for retry in sorted(retries & self._topics.table.keys()):
            await self.delete(retry)
        await self.delete(topic)
        logger.info("topic %s deleted by %s:%d", topic, *connection.peer)
        return request.reply(ResponseCode.SUCCESS)

    async def delete(self, topic: str) -> None:
        """Delete a topic with its queues and offsets, on disk when this returns."""
        with self._topics.deleting(topic):
            # A topic without messages and offsets leaves nothing for recovery to find.
            noted = topic in self._store.queues or bool(self._offsets.groups_of(topic))
            if noted:
                await self._deletion.begin([topic])
            self._topics.delete(topic)
            self._modes.drop_topic(topic)
            await self._topics.file.saved()  # after a kill the next start finishes the deletion
            await self._pieces.run(self._offsets.remove_topic_steps(topic))
            await self._pieces.run(self._stats.forget_topic_steps(topic))
            await self._deletion.finish([topic])
            await self._offsets.journal.write()

    def _check_name(self, topic: str) -> None:
        if self._config.is_slave:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                "Can't modify topic or subscription group from slave broker, use its master",
            )
        fault = topic_name_fault(topic)
        if fault is None and self._topics.is_system_topic(topic):
            fault = f"The topic[{topic}] is conflict with system topic"
        if fault is not None:
            raise RefusedError(ResponseCode.SYSTEM_ERROR, fault)

    async def get_all_topics(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        """The settings of all topics, or a page of them."""
        return await self._all_topics.answer(request)

    async def get_topic_stats(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        """Offsets and last store time of each queue of a topic."""
        topic = GetTopicStatsInfoRequestHeader.read(request).topic
        config = self._topics.get(topic)
        if config is None:
            raise RefusedError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
        body = await self._pieces.run(self._topic_stats(topic, config.write_queue_nums))
        return request.reply(ResponseCode.SUCCESS, body=body)

    def _topic_stats(self, topic: str, queues: int) -> Generator[None, None, bytes]:
        table: dict[MessageQueue, TopicOffset] = {}
        for queue_id in range(queues):
            queue = MessageQueue(
                topic=topic, broker_name=self._config.broker_name, queue_id=queue_id
            )
            table[queue] = self._topic_offset(topic, queue_id)
            yield
        return (yield from TopicStatsTable(offset_table=table).encode_steps())

    def _topic_offset(self, topic: str, queue_id: int) -> TopicOffset:
        newest = self._store.max_offset(topic, queue_id)
        last_time = self._store.store_time(topic, queue_id, newest - 1) if newest > 0 else 0
        return TopicOffset(
            min_offset=max(self._store.min_offset(topic, queue_id), 0),
            max_offset=max(newest, 0),
            last_update_timestamp=last_time,
        )

    def get_system_topics(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        """The names of system topics."""
        body = TopicList(topic_list=sorted(self._topics.system_topics()))
        return request.reply(ResponseCode.SUCCESS, body=body.encode())
