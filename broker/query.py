"""Looking at what is stored (RocketMQ: QueryMessageProcessor, parts of AdminBrokerProcessor)."""

from collections.abc import Mapping

from congreve.broker.errors import RefusedError
from congreve.engine.store import MessageStore
from congreve.remoting.codes import RequestCode, ResponseCode
from congreve.remoting.command import RemotingCommand
from congreve.remoting.connection import Connection
from congreve.remoting.headers import (
    OffsetResponseHeader,
    QueryMessageRequestHeader,
    QueryMessageResponseHeader,
    QueueRequestHeader,
    SearchOffsetRequestHeader,
    TimestampResponseHeader,
    ViewMessageRequestHeader,
)
from congreve.remoting.server import Handler


class QueryMessageProcessor:
    """Messages by key and by id; offsets by time; ends of queues."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    def handlers(self) -> Mapping[int, Handler]:
        return {
            RequestCode.QUERY_MESSAGE: self.query_message,
            RequestCode.VIEW_MESSAGE_BY_ID: self.view_message,
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self.search_offset,
            RequestCode.GET_MAX_OFFSET: self.get_max_offset,
            RequestCode.GET_MIN_OFFSET: self.get_min_offset,
            RequestCode.GET_EARLIEST_MSG_STORETIME: self.get_earliest_time,
        }

    def query_message(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        header = QueryMessageRequestHeader.read(request)
        wanted = header.max_num
        if header.unique_key:
            wanted = self._store.config.default_query_max_num
        found = self._store.query(
            header.topic, header.key, wanted, header.begin_timestamp, header.end_timestamp
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
        offset = ViewMessageRequestHeader.read(request).offset
        found = self._store.read(offset)
        if found is None:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}"
            )
        return request.reply(ResponseCode.SUCCESS, body=bytes(found))

    def search_offset(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        header = SearchOffsetRequestHeader.read(request)
        offset = self._store.offset_at(header.topic, header.queue_id, header.timestamp)
        fields = OffsetResponseHeader(offset=offset).fields()
        return request.reply(ResponseCode.SUCCESS, ext_fields=fields)

    def get_max_offset(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        header = QueueRequestHeader.read(request)
        offset = self._store.max_offset(header.topic, header.queue_id)
        fields = OffsetResponseHeader(offset=offset).fields()
        return request.reply(ResponseCode.SUCCESS, ext_fields=fields)

    def get_min_offset(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        header = QueueRequestHeader.read(request)
        offset = self._store.min_offset(header.topic, header.queue_id)
        fields = OffsetResponseHeader(offset=offset).fields()
        return request.reply(ResponseCode.SUCCESS, ext_fields=fields)

    def get_earliest_time(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        header = QueueRequestHeader.read(request)
        timestamp = self._store.earliest_store_time(header.topic, header.queue_id)
        fields = TimestampResponseHeader(timestamp=timestamp).fields()
        return request.reply(ResponseCode.SUCCESS, ext_fields=fields)
