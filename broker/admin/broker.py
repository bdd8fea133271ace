"""Administration of the broker itself (RocketMQ: AdminBrokerProcessor)."""

import logging
from collections.abc import Callable, Mapping
from contextlib import ExitStack

from congreve.broker.admin.runtime_info import RuntimeInfo
from congreve.broker.errors import RefusedError
from congreve.broker.figures.stats import BrokerStats
from congreve.broker.metadata.metadata import Metadata
from congreve.broker.metadata.topic_deletion import TopicDeletion
from congreve.engine.store import MessageStore
from congreve.remoting.loop.pieces import EncodedUntilChanged, Pieces
from congreve.remoting.messages.admin_headers import ViewBrokerStatsDataRequestHeader
from congreve.remoting.messages.bodies import DelayOffsetSerializeWrapper
from congreve.remoting.messages.codes import RequestCode, ResponseCode
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.transport.connection import Connection
from congreve.remoting.transport.dispatcher import Handler

logger = logging.getLogger(__name__)


class BrokerAdminProcessor:
    """Runtime info and maintenance (RocketMQ: AdminBrokerProcessor)."""

    def __init__(
        self,
        *,
        metadata: Metadata,
        deletion: TopicDeletion,
        store: MessageStore,
        stats: BrokerStats,
        runtime_info: RuntimeInfo,
        delay_offsets: Callable[[], DelayOffsetSerializeWrapper],
        pieces: Pieces,
    ) -> None:
        self._topics = metadata.topics
        self._store = store
        self._deletion = deletion
        self._stats = stats
        self._runtime_info = EncodedUntilChanged(pieces, runtime_info.version, lambda: runtime_info)
        self._delay_offsets = delay_offsets

    def handlers(self) -> Mapping[int, Handler]:
        """The handlers by request code."""
        return {
            RequestCode.GET_BROKER_RUNTIME_INFO: self.get_runtime_info,
            RequestCode.GET_ALL_DELAY_OFFSET: self.get_delay_offsets,
            RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: self.clean_expired,
            RequestCode.DELETE_EXPIRED_COMMITLOG: self.clean_expired,
            RequestCode.CLEAN_UNUSED_TOPIC: self.clean_unused_topics,
            RequestCode.VIEW_BROKER_STATS_DATA: self.view_stats,
        }

    async def get_runtime_info(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        """The table of `mqadmin brokerStatus`."""
        return request.reply(ResponseCode.SUCCESS, body=await self._runtime_info.get())

    def get_delay_offsets(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        """The next offset of each delay level's queue."""
        return request.reply(ResponseCode.SUCCESS, body=self._delay_offsets().encode())

    def clean_expired(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Delete segments and queue files that have expired."""
        self._store.clean_expired()
        return request.reply(ResponseCode.SUCCESS)

    async def clean_unused_topics(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        """Remove the queues of topics that the table does not have."""
        unused = self._store.unused_topics(self._topics.table)
        if unused:
            with ExitStack() as stack:
                for topic in unused:
                    stack.enter_context(self._topics.deleting(topic))
                await self._deletion.begin(unused)
                await self._deletion.finish(unused)
        logger.info("queues of %d unused topics removed for %s:%d", len(unused), *connection.peer)
        return request.reply(ResponseCode.SUCCESS)

    def view_stats(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        """One counter of BrokerStats. Raises RefusedError when it does not exist."""
        header = ViewBrokerStatsDataRequestHeader.read(request)
        body = self._stats.view(header.stats_name, header.stats_key)
        if body is None:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"The stats <{header.stats_name}> <{header.stats_key}> not exist",
            )
        return request.reply(ResponseCode.SUCCESS, body=body.encode())
