"""What running consumers ask (RocketMQ: ConsumerManageProcessor; locks: AdminBrokerProcessor)."""

from collections.abc import Mapping

from congreve.broker.consumers import ConsumerManager
from congreve.broker.errors import RefusedError
from congreve.broker.locks import RebalanceLockManager
from congreve.broker.offsets import ConsumerOffsetManager
from congreve.broker.topics import QUEUES_MAX, TopicConfigManager
from congreve.engine.store import MessageStore
from congreve.remoting.bodies import (
    GetConsumerListByGroupResponseBody,
    LockBatchRequestBody,
    LockBatchResponseBody,
)
from congreve.remoting.codes import RequestCode, ResponseCode
from congreve.remoting.command import RemotingCommand
from congreve.remoting.connection import Connection, Handler
from congreve.remoting.headers import (
    GetConsumerListByGroupRequestHeader,
    OffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)


class ConsumerManageProcessor:
    """Members of a group, committed offsets, and locks for orderly consumption.

    `memory` is the machine's, in bytes.
    """

    def __init__(
        self,
        *,
        topics: TopicConfigManager,
        consumers: ConsumerManager,
        offsets: ConsumerOffsetManager,
        locks: RebalanceLockManager,
        store: MessageStore,
        memory: int,
    ) -> None:
        self._topics = topics
        self._consumers = consumers
        self._offsets = offsets
        self._locks = locks
        self._store = store
        self._memory = memory

    def handlers(self) -> Mapping[int, Handler]:
        return {
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self.get_consumer_list,
            RequestCode.QUERY_CONSUMER_OFFSET: self.query_offset,
            RequestCode.UPDATE_CONSUMER_OFFSET: self.update_offset,
            RequestCode.LOCK_BATCH_MQ: self.lock,
            RequestCode.UNLOCK_BATCH_MQ: self.unlock,
        }

    def get_consumer_list(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        name = GetConsumerListByGroupRequestHeader.read(request).consumer_group
        group = self._consumers.groups.get(name)
        if group is None:
            raise RefusedError(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {name}")
        body = GetConsumerListByGroupResponseBody(consumer_id_list=group.client_ids())
        return request.reply(ResponseCode.SUCCESS, body=body.encode())

    def query_offset(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        header = QueryConsumerOffsetRequestHeader.read(request)
        topic, queue_id = header.topic, header.queue_id
        offset = self._offsets.query(header.consumer_group, topic, queue_id)
        if offset < 0:
            # On a queue that lost nothing yet a new group begins at its first message, whatever
            # it was configured to do: it would miss messages sent while it started otherwise.
            if not self._keeps_all_in_memory(topic, queue_id):
                raise RefusedError(
                    ResponseCode.QUERY_NOT_FOUND,
                    f"Not found, group[{header.consumer_group}] has no offset on"
                    f" {topic} queue {queue_id}",
                )
            offset = 0
        fields = OffsetResponseHeader(offset=offset).fields()
        return request.reply(ResponseCode.SUCCESS, ext_fields=fields)

    def _keeps_all_in_memory(self, topic: str, queue_id: int) -> bool:
        """True while a queue's first message was not deleted and is likely in the page cache."""
        queue = self._store.queues.find(topic, queue_id)
        if queue is None or queue.max == 0:
            return True
        if queue.min > 0:
            return False
        ratio = self._store.config.access_message_in_memory_max_ratio
        return self._store.log.max_offset - queue[0][0] <= self._memory * ratio // 100

    def update_offset(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        header = UpdateConsumerOffsetRequestHeader.read(request)
        if header.topic not in self._topics.table:
            raise RefusedError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist")
        if not 0 <= header.queue_id < QUEUES_MAX or header.commit_offset < 0:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"queueId[{header.queue_id}] or commitOffset[{header.commit_offset}] is illegal",
            )
        self._offsets.commit(
            header.consumer_group, header.topic, header.queue_id, header.commit_offset
        )
        return request.reply(ResponseCode.SUCCESS)

    def lock(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        body = LockBatchRequestBody.decode(request.body)
        held = self._locks.lock(body.consumer_group, body.mq_set, body.client_id)
        answer = LockBatchResponseBody(lock_ok_mq_set=held)
        return request.reply(ResponseCode.SUCCESS, body=answer.encode())

    def unlock(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        body = LockBatchRequestBody.decode(request.body)
        self._locks.unlock(body.consumer_group, body.mq_set, body.client_id)
        return request.reply(ResponseCode.SUCCESS)
