"""Administration of topics (RocketMQ: AdminBrokerProcessor)."""

import logging
from collections.abc import Awaitable, Callable, Mapping

from congreve.broker.config import BrokerConfig
from congreve.broker.errors import RefusedError
from congreve.broker.offsets import ConsumerOffsetManager
from congreve.broker.stats import BrokerStats
from congreve.broker.topics import QUEUES_MAX, TopicConfigManager, topic_name_fault
from congreve.engine.store import MessageStore
from congreve.remoting.bodies import (
    MessageQueue,
    TopicConfig,
    TopicList,
    TopicOffset,
    TopicStatsTable,
)
from congreve.remoting.codes import RequestCode, ResponseCode
from congreve.remoting.command import RemotingCommand
from congreve.remoting.connection import Connection, Handler
from congreve.remoting.headers import (
    CreateTopicRequestHeader,
    DeleteTopicRequestHeader,
    GetTopicStatsInfoRequestHeader,
)

logger = logging.getLogger(__name__)


class TopicAdminProcessor:
    """Make, change, delete and list topics.

    `saved` waits until topics.json is on disk, `announced` until name servers know the topics.
    """

    def __init__(
        self,
        *,
        config: BrokerConfig,
        topics: TopicConfigManager,
        offsets: ConsumerOffsetManager,
        store: MessageStore,
        stats: BrokerStats,
        saved: Callable[[], Awaitable[None]],
        announced: Callable[[], Awaitable[None]],
    ) -> None:
        self._config = config
        self._topics = topics
        self._offsets = offsets
        self._store = store
        self._stats = stats
        self._saved = saved
        self._announced = announced

    def handlers(self) -> Mapping[int, Handler]:
        return {
            RequestCode.UPDATE_AND_CREATE_TOPIC: self.update_topic,
            RequestCode.DELETE_TOPIC_IN_BROKER: self.delete_topic,
            RequestCode.GET_ALL_TOPIC_CONFIG: self.get_all_topics,
            RequestCode.GET_TOPIC_STATS_INFO: self.get_topic_stats,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: self.get_system_topics,
        }

    async def update_topic(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        header = CreateTopicRequestHeader.read(request)
        self._check_name(header.topic)
        for name, number in (
            ("readQueueNums", header.read_queue_nums),
            ("writeQueueNums", header.write_queue_nums),
        ):
            if not 0 <= number <= QUEUES_MAX:
                raise RefusedError(
                    ResponseCode.SYSTEM_ERROR, f"{name}[{number}] is not from 0 to {QUEUES_MAX}"
                )
        known = self._topics.get(header.topic)
        self._topics.update(
            TopicConfig(
                topic_name=header.topic,
                read_queue_nums=header.read_queue_nums,
                write_queue_nums=header.write_queue_nums,
                perm=header.perm,
                topic_filter_type=header.topic_filter_type,
                topic_sys_flag=header.topic_sys_flag or 0,
                # The name servers say which topics are ordered, not this request.
                order=known is not None and known.order,
            )
        )
        logger.info("topic %s updated by %s:%d", header.topic, *connection.peer)
        await self._saved()
        await self._announced()
        return request.reply(ResponseCode.SUCCESS)

    async def delete_topic(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        topic = DeleteTopicRequestHeader.read(request).topic
        self._check_name(topic)
        self._topics.delete(topic)
        self._offsets.remove_topic(topic)
        self._store.delete_topic(topic)
        self._stats.forget_topic(topic)
        logger.info("topic %s deleted by %s:%d", topic, *connection.peer)
        await self._saved()
        return request.reply(ResponseCode.SUCCESS)

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

    def get_all_topics(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        return request.reply(ResponseCode.SUCCESS, body=self._topics.wrapper().encode())

    def get_topic_stats(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        topic = GetTopicStatsInfoRequestHeader.read(request).topic
        config = self._topics.get(topic)
        if config is None:
            raise RefusedError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
        table = {
            MessageQueue(
                topic=topic, broker_name=self._config.broker_name, queue_id=queue_id
            ): self._topic_offset(topic, queue_id)
            for queue_id in range(config.write_queue_nums)
        }
        body = TopicStatsTable(offset_table=table)
        return request.reply(ResponseCode.SUCCESS, body=body.encode())

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
        body = TopicList(topic_list=sorted(self._topics.system_topics()))
        return request.reply(ResponseCode.SUCCESS, body=body.encode())
