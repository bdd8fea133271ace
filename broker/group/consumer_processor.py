"""Requests of running consumers (RocketMQ: ConsumerManageProcessor, AdminBrokerProcessor)."""

from collections.abc import Awaitable, Callable, Generator, Mapping

from congreve.broker.errors import RefusedError, check_body_size
from congreve.broker.group.clients import CLIENT_ID_MAX
from congreve.broker.group.members import Members
from congreve.broker.metadata.metadata import Metadata
from congreve.broker.metadata.name_rules import QUEUES_MAX
from congreve.engine.store import MessageStore
from congreve.remoting.loop.pieces import Pieces
from congreve.remoting.messages.bodies import (
    GetConsumerListByGroupResponseBody,
    LockBatchRequestBody,
    LockBatchResponseBody,
)
from congreve.remoting.messages.body import MessageQueue
from congreve.remoting.messages.codes import RequestCode, ResponseCode
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.messages.headers import (
    GetConsumerListByGroupRequestHeader,
    OffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from congreve.remoting.transport.connection import Connection
from congreve.remoting.transport.dispatcher import Handler

LOCK_BODY_MAX = 192 * 1024
"""Bytes of a request for locks: some two thousand queues."""

_LOCKED_AT_ONCE = 200


class ConsumerManageProcessor:
    """Members of a group, committed offsets, and locks for orderly consumption.

    `memory` is the machine's memory in bytes, `broker_name` the name in the queues of clients.
    `beginning` is where a member that pulls a queue begins after pops; None without pops.
    (RocketMQ: ConsumerManageProcessor.)
    """

    def __init__(
        self,
        *,
        metadata: Metadata,
        members: Members,
        store: MessageStore,
        memory: int,
        broker_name: str,
        pieces: Pieces,
        beginning: Callable[[str, str, int], int | None] = lambda *_: None,
    ) -> None:
        self._beginning = beginning
        self._metadata = metadata
        self._topics = metadata.topics
        self._groups = metadata.groups
        self._broker_name = broker_name
        self._consumers = members.consumers
        self._offsets = metadata.offsets
        self._members = members
        self._locks = members.locks
        self._store = store
        self._memory = memory
        self._pieces = pieces

    def handlers(self) -> Mapping[int, Handler]:
        """The handlers by request code."""
        return {
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self.get_consumer_list,
            RequestCode.QUERY_CONSUMER_OFFSET: self.query_offset,
            RequestCode.UPDATE_CONSUMER_OFFSET: self.update_offset,
            RequestCode.LOCK_BATCH_MQ: self.lock,
            RequestCode.UNLOCK_BATCH_MQ: self.unlock,
        }

    async def get_consumer_list(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        """The client ids of the members of a group."""
        name = GetConsumerListByGroupRequestHeader.read(request).consumer_group
        group = self._consumers.groups.get(name)
        if group is None:
            raise RefusedError(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {name}")
        body = GetConsumerListByGroupResponseBody(consumer_id_list=group.client_ids())
        return request.reply(ResponseCode.SUCCESS, body=await self._pieces.run(body.encode_steps()))

    def query_offset(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        """A group's offset on a queue. Raises RefusedError when it has none."""
        header = QueryConsumerOffsetRequestHeader.read(request)
        topic, queue_id = header.topic, header.queue_id
        offset = self._offsets.query(header.consumer_group, topic, queue_id)
        beginning = self._beginning(header.consumer_group, topic, queue_id)
        if beginning is not None:
            offset = max(offset, beginning)
        if offset < 0:
            # If the queue still has its first message, a new group begins there, whatever its
            # settings: otherwise it would miss messages that are sent while it starts.
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
        """Whether a queue's first message was not deleted and is likely in the page cache."""
        queue = self._store.queues.find(topic, queue_id)
        if queue is None or queue.max == 0:
            return True
        if queue.min > 0:
            return False
        ratio = self._store.config.access_message_in_memory_max_ratio
        return self._store.log.max_offset - queue[0][0] <= self._memory * ratio // 100

    def update_offset(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand | Awaitable[RemotingCommand]:
        """Commit an offset; the answer waits until it is on disk.

        The offset of a one-way request is saved later, with those of pulls.
        """
        header = UpdateConsumerOffsetRequestHeader.read(request)
        answer = request.reply(ResponseCode.SUCCESS)
        missing = None if request.is_oneway else self._metadata.missing(topics=(header.topic,))
        if missing is not None:
            return self._update_when_saved(missing, header, answer)
        self._update(header)
        return answer if request.is_oneway else self._when_durable(header, answer)

    def _update(self, header: UpdateConsumerOffsetRequestHeader) -> None:
        if header.topic not in self._topics.table:
            raise RefusedError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist")
        if not 0 <= header.queue_id < QUEUES_MAX or header.commit_offset < 0:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"queueId[{header.queue_id}] or commitOffset[{header.commit_offset}] is illegal",
            )
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        self._offsets.check(group, topic, (queue_id,))
        self._offsets.commit(group, topic, queue_id, header.commit_offset)

    async def _update_when_saved(
        self,
        missing: Awaitable[object],
        header: UpdateConsumerOffsetRequestHeader,
        answer: RemotingCommand,
    ) -> RemotingCommand:
        """Commit an offset once its topic is on disk: no offset may be there without its topic."""
        await missing
        self._update(header)
        return await self._when_durable(header, answer)

    async def _when_durable(
        self, header: UpdateConsumerOffsetRequestHeader, answer: RemotingCommand
    ) -> RemotingCommand:
        self._offsets.acknowledge(header.consumer_group, header.topic, header.queue_id)
        await self._offsets.journal.write()
        return answer

    async def lock(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Lock queues for a client; the answer lists the queues that it holds.

        It cannot hold queues of another broker, of topics or with ids that do not exist.
        """
        body = await self._pieces.run(self._lock(request), connection)
        return request.reply(ResponseCode.SUCCESS, body=body)

    def _lock(self, request: RemotingCommand) -> Generator[None, None, bytes]:
        body, account = _lock_body(request), self._members.account_of(request)
        yield
        held: list[MessageQueue] = []
        for asked in _batches(body.mq_set):
            queues = [queue for queue in asked if self._exists(queue)]
            if queues and self._groups.find(body.consumer_group) is None:
                break
            held += self._locks.lock(body.consumer_group, queues, body.client_id, account)
            yield
        return (yield from LockBatchResponseBody(lock_ok_mq_set=held).encode_steps())

    def _exists(self, queue: MessageQueue) -> bool:
        topic = self._topics.get(queue.topic)
        return (
            topic is not None
            and queue.broker_name == self._broker_name
            and 0 <= queue.queue_id < max(topic.read_queue_nums, topic.write_queue_nums)
        )

    async def unlock(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Unlock queues of a client."""
        await self._pieces.run(self._unlock(request), connection)
        return request.reply(ResponseCode.SUCCESS)

    def _unlock(self, request: RemotingCommand) -> Generator[None, None, None]:
        body, account = _lock_body(request), self._members.account_of(request)
        yield
        for queues in _batches(body.mq_set):
            self._locks.unlock(body.consumer_group, queues, body.client_id, account)
            yield


def _batches(queues: list[MessageQueue]) -> Generator[list[MessageQueue], None, None]:
    for start in range(0, len(queues), _LOCKED_AT_ONCE):
        yield queues[start : start + _LOCKED_AT_ONCE]


def _lock_body(request: RemotingCommand) -> LockBatchRequestBody:
    check_body_size(request, LOCK_BODY_MAX)
    body = LockBatchRequestBody.decode(request.body)
    if len(body.client_id) > CLIENT_ID_MAX:
        raise RefusedError(
            ResponseCode.SYSTEM_ERROR,
            f"a client id of {len(body.client_id)} characters: use at most {CLIENT_ID_MAX}",
        )
    return body
