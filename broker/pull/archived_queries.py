"""Queries of messages that only an archive has (RocketMQ: QueryMessageProcessor)."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from inspect import isawaitable

from congreve.broker.errors import RefusedError
from congreve.broker.pull.archive import MessageArchive
from congreve.broker.pull.archived_pulls import ArchivedPulls
from congreve.broker.pull.query_processor import QueryMessageProcessor
from congreve.engine.index.index_files import ANSWER_MAX
from congreve.engine.store import MessageStore
from congreve.records.record import decode_record
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

OfQueue = Callable[[MessageArchive], int | None]
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
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self._search_offset,
            RequestCode.GET_MIN_OFFSET: self._min_offset,
            RequestCode.GET_EARLIEST_MSG_STORETIME: self._first_time,
        }
        return {
            **self._handlers,
            **{code: partial(self._answer, code, own) for code, own in archived.items()},
            RequestCode.VIEW_MESSAGE_BY_ID: self._view,
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

    async def _view(self, request: RemotingCommand, connection: Connection) -> Answer:
        offset = ViewMessageRequestHeader.read(request).offset
        try:
            return await self._of_log(RequestCode.VIEW_MESSAGE_BY_ID, request, connection)
        except RefusedError:
            # Checked after the log was read, as retention may remove a segment at any moment.
            if not 0 <= offset < self._store.log.min_offset:
                raise
            found = await self._messages.call(lambda archive: archive.record_at(offset))
            if found is None:
                raise
            return request.reply(ResponseCode.SUCCESS, body=found)

    async def _search_offset(self, request: RemotingCommand) -> RemotingCommand | None:
        header = SearchOffsetRequestHeader.read(request)
        topic, queue_id, time = header.topic, header.queue_id, header.timestamp
        if 0 <= self._store.earliest_store_time(topic, queue_id) <= time:
            return None
        return await self._offset(
            *(request, topic, queue_id),
            lambda archive: archive.offset_at(topic, queue_id, time),
        )

    async def _min_offset(self, request: RemotingCommand) -> RemotingCommand | None:
        header = QueueRequestHeader.read(request)
        topic, queue_id = header.topic, header.queue_id
        return await self._offset(
            *(request, topic, queue_id),
            lambda archive: archive.first_offset(topic, queue_id),
        )

    async def _first_time(self, request: RemotingCommand) -> RemotingCommand | None:
        header = QueueRequestHeader.read(request)
        topic, queue_id = header.topic, header.queue_id
        found = await self._of_queue(
            topic, queue_id, lambda archive: archive.first_time(topic, queue_id)
        )
        if found is None:
            return None
        fields = TimestampResponseHeader(timestamp=found).fields()
        return request.reply(ResponseCode.SUCCESS, ext_fields=fields)

    async def _query(self, request: RemotingCommand, connection: Connection) -> Answer:
        answer = await self._of_log(RequestCode.QUERY_MESSAGE, request, connection)
        header = QueryMessageRequestHeader.read(request)
        # After the log was read: what retention has removed meanwhile is below these offsets.
        begins = {q.queue_id: q.min for q in self._store.queues.queues_of(header.topic)}
        if answer is None or header.topic not in self._topics or not any(begins.values()):
            return answer
        in_log = _from(begins, answer.body) if answer.code == ResponseCode.SUCCESS else []
        config = self._store.config
        wanted = config.default_query_max_num if header.unique_key else header.max_num
        count = min(wanted, config.max_msgs_num_batch) - len(in_log)
        times_ms = header.begin_timestamp, header.end_timestamp
        found = await self._messages.call(
            lambda archive: archive.query(
                *(header.topic, header.key, count),
                *(ANSWER_MAX - sum(map(len, in_log)), times_ms, begins),
            )
        )
        if not found:
            return answer
        # In the order of the log, as its own answers are.
        body = b"".join([*reversed(found), *in_log])
        return request.reply(ResponseCode.SUCCESS, None, answer.ext_fields, body)

    async def _offset(
        self, request: RemotingCommand, topic: str, queue_id: int, read: OfQueue
    ) -> RemotingCommand | None:
        """The answer with the offset that `read` finds, if the log does not have it."""
        found = await self._of_queue(topic, queue_id, read)
        if found is None or found >= self._store.min_offset(topic, queue_id):
            return None
        fields = OffsetResponseHeader(offset=found).fields()
        return request.reply(ResponseCode.SUCCESS, ext_fields=fields)

    async def _of_queue(self, topic: str, queue_id: int, read: OfQueue) -> int | None:
        """What `read` finds, if the log has lost messages of the queue that the archive may
        have."""
        if topic not in self._topics or self._store.min_offset(topic, queue_id) <= 0:
            return None
        return await self._offsets.call(read)


def _from(begins: Mapping[int, int], body: bytes) -> list[bytes]:
    """The records of an answer that are at or after the first offsets of their queues."""
    found: list[bytes] = []
    at = 0
    while at < len(body):
        record = decode_record(body, at, verify_crc=False)
        if record.queue_offset >= begins.get(record.queue_id, 0):
            found.append(body[at : at + record.size])
        at += record.size
    return found
