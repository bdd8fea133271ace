"""The answers to pulls that the event loop gives (RocketMQ: PullMessageProcessor)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from congreve.base.clock import Clock
from congreve.broker.config import BrokerConfig
from congreve.broker.figures.stats import BrokerStats
from congreve.broker.metadata.metadata import Metadata
from congreve.broker.pull.offset_moved import OffsetMovedEvents
from congreve.broker.pull.pull_quota import PullQuota
from congreve.broker.pull.response_codes import pull_code
from congreve.engine.read.reader import GetResult, GetStatus
from congreve.engine.store import MessageStore
from congreve.remoting.messages.bodies import SubscriptionGroupConfig
from congreve.remoting.messages.codes import ResponseCode
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.messages.headers import PullMessageRequestHeader, PullMessageResponseHeader
from congreve.remoting.transport.connection import Connection

if TYPE_CHECKING:
    from congreve.broker.pull.archived_pulls import ArchivedMessages

FLAG_COMMIT_OFFSET = 1


class PullAnswers:
    """Makes the answer to a pull, commits its offset, and counts it.

    (RocketMQ: PullMessageProcessor.)
    """

    def __init__(
        self,
        config: BrokerConfig,
        metadata: Metadata,
        store: MessageStore,
        stats: BrokerStats,
        clock: Clock,
        quota: PullQuota,
    ) -> None:
        self._config = config
        self._offsets = metadata.offsets
        self._store = store
        self._stats = stats
        self._quota = quota
        self._offset_moved = OffsetMovedEvents(config, store, clock)

    def found(
        self,
        request: RemotingCommand,
        connection: Connection,
        header: PullMessageRequestHeader,
        group: SubscriptionGroupConfig,
        found: GetResult | ArchivedMessages,
    ) -> RemotingCommand:
        """The answer with any result of a search."""
        self._commit(header)
        code = pull_code(found.status, header.queue_offset)
        suggested = 0
        if self._config.slave_read_enable:
            slow = found.suggest_slave
            suggested = group.which_broker_when_consume_slowly if slow else group.broker_id
        if code is ResponseCode.PULL_OFFSET_MOVED:
            self._offset_moved.store(header, found)
        elif code is ResponseCode.SUCCESS:
            counter = self._stats.pull_counter(header.consumer_group, header.topic)
            counter.add(found.count, found.size)
            self._quota.charge(request, connection, found.count, found.size)
        else:
            self._stats.missed()
        fields = PullMessageResponseHeader(
            suggest_which_broker_id=suggested,
            next_begin_offset=found.next_offset,
            min_offset=found.min_offset,
            max_offset=found.max_offset,
        ).fields()
        body = b"".join(found.buffers) if code is ResponseCode.SUCCESS else b""
        return request.reply(code, found.status.name, fields, body)

    def ask_again(
        self, request: RemotingCommand, header: PullMessageRequestHeader
    ) -> RemotingCommand:
        """The answer when the filter changed meanwhile: the next pull compiles the new one."""
        code, remark = ResponseCode.PULL_RETRY_IMMEDIATELY, GetStatus.NO_MATCHED_MESSAGE.name
        return self._without_messages(request, header, header.queue_offset, code, remark)

    def begin_again(
        self, request: RemotingCommand, header: PullMessageRequestHeader, first: int
    ) -> RemotingCommand:
        """The answer to a consumer of a deleted topic, which reads the next one from `first` on."""
        code, remark = ResponseCode.PULL_OFFSET_MOVED, "was deleted and created again"
        return self._without_messages(
            request, header, first, code, f"topic[{header.topic}] {remark}"
        )

    def stopping(self, request: RemotingCommand) -> RemotingCommand:
        """The error when the broker stops: clients wait before they retry."""
        return request.reply(ResponseCode.SERVICE_NOT_AVAILABLE, self.stopping_remark)

    @property
    def stopping_remark(self) -> str:
        """The remark in the answers to waiting pulls when the broker stops."""
        return f"the broker[{self._config.broker_name}] is stopping"

    def _commit(self, header: PullMessageRequestHeader) -> None:
        if header.sys_flag & FLAG_COMMIT_OFFSET and not self._config.is_slave:
            self._offsets.commit(
                header.consumer_group, header.topic, header.queue_id, header.commit_offset
            )

    def _without_messages(
        self,
        request: RemotingCommand,
        header: PullMessageRequestHeader,
        begin: int,
        code: ResponseCode,
        remark: str,
    ) -> RemotingCommand:
        topic, queue_id = header.topic, header.queue_id
        fields = PullMessageResponseHeader(
            suggest_which_broker_id=0,
            next_begin_offset=begin,
            min_offset=max(self._store.min_offset(topic, queue_id), 0),
            max_offset=self._store.max_offset(topic, queue_id),
        ).fields()
        return request.reply(code, remark, fields)
