"""Queries of stored messages (RocketMQ: QueryMessageProcessor, parts of AdminBrokerProcessor)."""

import asyncio
from collections.abc import Mapping

from congreve.broker.after_repair import after_repair
from congreve.broker.errors import RefusedError
from congreve.broker.group.consumers import ConsumerManager
from congreve.broker.metadata.filters import ConsumerFilterManager
from congreve.engine.store import MessageStore
from congreve.remoting.loop.pieces import Pieces
from congreve.remoting.messages import fastjson
from congreve.remoting.messages.admin_bodies import ConsumeQueueData, QueryConsumeQueueResponseBody
from congreve.remoting.messages.admin_headers import QueryConsumeQueueRequestHeader
from congreve.remoting.messages.codes import RequestCode, ResponseCode
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.messages.headers import (
    OffsetResponseHeader,
    QueryMessageRequestHeader,
    QueryMessageResponseHeader,
    QueueRequestHeader,
    SearchOffsetRequestHeader,
    TimestampResponseHeader,
    ViewMessageRequestHeader,
)
from congreve.remoting.transport.connection import Connection
from congreve.remoting.transport.dispatcher import Handler

ENTRIES_MAX = 2_000  # of one answer
QUERIES_AT_ONCE = 4
"""Queries that hold the messages that they found, some MiB each."""


class QueryMessageProcessor:
    """Messages by key and id, offsets by time, ends and entries of queues.

    RocketMQ: QueryMessageProcessor, AdminBrokerProcessor.
    """

    def __init__(
        self,
        store: MessageStore,
        consumers: ConsumerManager,
        filters: ConsumerFilterManager,
        pieces: Pieces,
    ) -> None:
        self._store = store
        self._consumers = consumers
        self._filters = filters
        self._pieces = pieces
        self._at_once = asyncio.Semaphore(QUERIES_AT_ONCE)

    def handlers(self) -> Mapping[int, Handler]:
        """The handlers by request code."""
        return {
            RequestCode.QUERY_MESSAGE: self.query_message,
            RequestCode.VIEW_MESSAGE_BY_ID: after_repair(self._store.repairs, self.view_message),
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self.search_offset,
            RequestCode.GET_MAX_OFFSET: self.get_max_offset,
            RequestCode.GET_MIN_OFFSET: self.get_min_offset,
            RequestCode.GET_EARLIEST_MSG_STORETIME: self.get_earliest_time,
            RequestCode.QUERY_CONSUME_QUEUE: self.query_consume_queue,
        }

    async def query_message(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        """Messages by key, when the client has read earlier answers."""
        while True:
            await connection.until_read()
            async with self._at_once:
                if connection.is_writable or connection.closed:
                    return await self._query(request)

    async def _query(self, request: RemotingCommand) -> RemotingCommand:
        header = QueryMessageRequestHeader.read(request)
        wanted = header.max_num
        if header.unique_key:
            wanted = self._store.config.default_query_max_num
        found = await self._pieces.run(
            self._store.query_steps(
                header.topic, header.key, wanted, header.begin_timestamp, header.end_timestamp
            )
        )
        fields = QueryMessageResponseHeader(
            index_last_update_timestamp=found.index_last_update_timestamp,
            index_last_update_phyoffset=found.index_last_update_phyoffset,
        ).fields()
        if not found.buffers:
            remark = (
                f"can not find message, topic[{header.topic}] key[{header.key}],"
                f" time {header.begin_timestamp} to {header.end_timestamp}"
            )
            return request.reply(ResponseCode.QUERY_NOT_FOUND, remark, fields)
        return request.reply(ResponseCode.SUCCESS, None, fields, b"".join(found.buffers))

    def view_message(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        """One message by its physical offset."""
        offset = ViewMessageRequestHeader.read(request).offset
        found = self._store.shown_record_at(offset)
        if found is None:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}"
            )
        return request.reply(ResponseCode.SUCCESS, body=bytes(found))

    def search_offset(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        """The first offset of a queue stored at or after a time."""
        header = SearchOffsetRequestHeader.read(request)
        offset = self._store.offset_at(header.topic, header.queue_id, header.timestamp)
        fields = OffsetResponseHeader(offset=offset).fields()
        return request.reply(ResponseCode.SUCCESS, ext_fields=fields)

    def get_max_offset(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        """The end of a queue."""
        header = QueueRequestHeader.read(request)
        offset = self._store.max_offset(header.topic, header.queue_id)
        fields = OffsetResponseHeader(offset=offset).fields()
        return request.reply(ResponseCode.SUCCESS, ext_fields=fields)

    def get_min_offset(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        """The first offset of a queue."""
        header = QueueRequestHeader.read(request)
        offset = max(self._store.min_offset(header.topic, header.queue_id), 0)
        fields = OffsetResponseHeader(offset=offset).fields()
        return request.reply(ResponseCode.SUCCESS, ext_fields=fields)

    def get_earliest_time(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        """The store time of a queue's first message, ms since 1970."""
        header = QueueRequestHeader.read(request)
        timestamp = self._store.earliest_store_time(header.topic, header.queue_id)
        fields = TimestampResponseHeader(timestamp=timestamp).fields()
        return request.reply(ResponseCode.SUCCESS, ext_fields=fields)

    async def query_consume_queue(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        """Entries of a queue as stored."""
        header = QueryConsumeQueueRequestHeader.read(request)
        topic, queue_id = header.topic or "", header.queue_id
        queue = self._store.queues.find(topic, queue_id)
        if queue is None:
            raise RefusedError(ResponseCode.SYSTEM_ERROR, f"{queue_id}@{topic} is not exist!")
        end = self._store.log.end_of(queue)
        if not queue.min <= header.index < end:
            remark = f"Index {header.index} of {queue_id}@{topic} is not exist!"
            return request.reply(ResponseCode.SUCCESS, remark)
        count = min(max(header.count, 0), ENTRIES_MAX)
        entries = queue.entries(header.index, min(header.index + count, end)).tolist()
        body = QueryConsumeQueueResponseBody(
            min_queue_index=queue.min,
            max_queue_index=end,
            queue_data=[
                ConsumeQueueData(physic_offset=offset, physic_size=size, tags_code=tags_code)
                for offset, size, tags_code in entries
            ],
        )
        if header.consumer_group is not None:
            self._add_subscription(body, header.consumer_group, topic)
        return request.reply(ResponseCode.SUCCESS, body=await self._pieces.run(body.encode_steps()))

    def _add_subscription(
        self, body: QueryConsumeQueueResponseBody, group: str, topic: str
    ) -> None:
        body.subscription_data = self._consumers.find_subscription(group, topic)
        if body.subscription_data is None:
            body.filter_data = f"{group}@{topic} is not online!"
        else:
            body.filter_data = fastjson.dumps_pretty(self._filters.find(topic, group))
