"""Queries of messages that only an archive has (RocketMQ: QueryMessageProcessor)."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from inspect import isawaitable

from congreve.broker.pull.archived_pulls import ArchivedPulls
from congreve.broker.pull.query import QueryMessageProcessor
from congreve.engine.store import MessageStore
from congreve.remoting.messages.codes import RequestCode, ResponseCode
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.messages.headers import (
    OffsetResponseHeader,
    QueryMessageRequestHeader,
    QueueRequestHeader,
    SearchOffsetRequestHeader,
    TimestampResponseHeader,
    ViewMessageRequestHeader,
)
from congreve.remoting.transport.connection import Connection
from congreve.remoting.transport.dispatcher import Answer, Handler

Archived = Callable[[RemotingCommand], Awaitable[RemotingCommand | None]]


class ArchivedQueryProcessor:
    """QueryMessageProcessor; what is below the log's beginning comes from an archive.

    RocketMQ: QueryMessageProcessor.
    """

    def __init__(
        self, of_log: QueryMessageProcessor, store: MessageStore, archived: ArchivedPulls
    ) -> None:
        self._handlers = of_log.handlers()
        self._store = store
        self._topics = archived.topics
        self._offsets = archived.thread
        self._messages = archived.queries

    def handlers(self) -> Mapping[int, Handler]:
        """The handlers by request code."""
        archived: dict[int, Archived] = {
            RequestCode.VIEW_MESSAGE_BY_ID: self._view,
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self._search_offset,
            RequestCode.GET_MIN_OFFSET: self._min_offset,
            RequestCode.GET_EARLIEST_MSG_STORETIME: self._first_time,
        }
        return {
            **self._handlers,
            **{code: partial(self._answer, code, own) for code, own in archived.items()},
            RequestCode.QUERY_MESSAGE: self._query,
        }

    async def _answer(
        self, code: int, archived: Archived, request: RemotingCommand, connection: Connection
    ) -> Answer:
        found = await archived(request)
        return await self._of_log(code, request, connection) if found is None else found

    async def _of_log(self, code: int, request: RemotingCommand, connection: Connection) -> Answer:
        answer = self._handlers[code](request, connection)
        return await answer if isawaitable(answer) else answer

    async def _view(self, request: RemotingCommand) -> RemotingCommand | None:
        offset = ViewMessageRequestHeader.read(request).offset
        if not 0 <= offset < self._store.log.min_offset:
            return None
        found = await self._messages.call(lambda archive: archive.record_at(offset))
        return None if found is None else request.reply(ResponseCode.SUCCESS, body=found)

    async def _search_offset(self, request: RemotingCommand) -> RemotingCommand | None:
        header = SearchOffsetRequestHeader.read(request)
        topic, queue_id, time = header.topic, header.queue_id, header.timestamp
        if not self._has_begun(topic, queue_id):
            return None
        earliest = self._store.earliest_store_time(topic, queue_id)
        if 0 <= earliest <= time:
            return None
        found = await self._offsets.call(lambda archive: archive.offset_at(topic, queue_id, time))
        low = self._store.min_offset(topic, queue_id)
        return None if found is None or found >= low else _offset(request, found)

    async def _min_offset(self, request: RemotingCommand) -> RemotingCommand | None:
        header = QueueRequestHeader.read(request)
        topic, queue_id = header.topic, header.queue_id
        if not self._has_begun(topic, queue_id):
            return None
        found = await self._offsets.call(lambda archive: archive.first_offset(topic, queue_id))
        low = self._store.min_offset(topic, queue_id)
        return None if found is None or found >= low else _offset(request, found)

    async def _first_time(self, request: RemotingCommand) -> RemotingCommand | None:
        header = QueueRequestHeader.read(request)
        topic, queue_id = header.topic, header.queue_id
        if not self._has_begun(topic, queue_id):
            return None
        found = await self._offsets.call(lambda archive: archive.first_time(topic, queue_id))
        if found is None:
            return None
        fields = TimestampResponseHeader(timestamp=found).fields()
        return request.reply(ResponseCode.SUCCESS, ext_fields=fields)

    async def _query(self, request: RemotingCommand, connection: Connection) -> Answer:
        answer = await self._of_log(RequestCode.QUERY_MESSAGE, request, connection)
        header = QueryMessageRequestHeader.read(request)
        log_begin = self._store.log.min_offset
        if answer is None or header.topic not in self._topics or log_begin == 0:
            return answer
        wanted = header.max_num
        if header.unique_key:
            wanted = self._store.config.default_query_max_num
        wanted = min(wanted, self._store.config.default_query_max_num)
        found = await self._messages.call(
            lambda archive: archive.query(
                *(header.topic, header.key, wanted, header.begin_timestamp),
                *(header.end_timestamp, log_begin),
            )
        )
        if not found:
            return answer
        body = (answer.body if answer.code == ResponseCode.SUCCESS else b"") + b"".join(found)
        return request.reply(ResponseCode.SUCCESS, None, answer.ext_fields, body)

    def _has_begun(self, topic: str, queue_id: int) -> bool:
        """Whether the log has lost messages of a queue that the archive may have."""
        return topic in self._topics and self._store.min_offset(topic, queue_id) > 0


def _offset(request: RemotingCommand, offset: int) -> RemotingCommand:
    fields = OffsetResponseHeader(offset=offset).fields()
    return request.reply(ResponseCode.SUCCESS, ext_fields=fields)
