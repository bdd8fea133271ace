"""Ends and resumes transactions (RocketMQ: EndTransactionProcessor)."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from congreve.base.clock import Clock
from congreve.broker.after_repair import after_repair
from congreve.broker.commit.group_commit import GroupCommit
from congreve.broker.config import BrokerConfig
from congreve.broker.errors import RefusedError
from congreve.broker.figures.message_counts import TopicCounts
from congreve.broker.requests.checks import put_code
from congreve.broker.requests.new_queues import put_in_turn
from congreve.broker.transaction.service import TransactionService
from congreve.engine.results import PutResult, PutStatus
from congreve.engine.store import MessageStore
from congreve.records.errors import RecordError
from congreve.records.message import properties
from congreve.records.message.flags import SysFlag
from congreve.records.message.message import Record
from congreve.records.message.topics import TRANS_CHECK_MAX_TIME_TOPIC
from congreve.records.record import decode_record, parse_offset_message_id
from congreve.remoting.messages.admin_headers import ResumeCheckHalfMessageRequestHeader
from congreve.remoting.messages.codes import RequestCode, ResponseCode
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.messages.headers import EndTransactionRequestHeader
from congreve.remoting.transport.connection import Connection
from congreve.remoting.transport.dispatcher import Handler

logger = logging.getLogger(__name__)


class EndTransactionProcessor:
    """END_TRANSACTION and RESUME_CHECK_HALF_MESSAGE (RocketMQ: EndTransactionProcessor)."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        store: MessageStore,
        group_commit: GroupCommit,
        service: TransactionService,
        counts: Callable[[str], TopicCounts],
        clock: Clock,
    ) -> None:
        self._config = config
        self._store = store
        self._group_commit = group_commit
        self._service = service
        self._counts = counts
        self._clock = clock

    def handlers(self) -> Mapping[int, Handler]:
        """The handlers by request code."""
        repairs = self._store.repairs
        return {
            RequestCode.END_TRANSACTION: after_repair(repairs, self.end),
            RequestCode.RESUME_CHECK_HALF_MESSAGE: after_repair(repairs, self.resume),
        }

    def end(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand | Awaitable[RemotingCommand | None] | None:
        """Commit or roll back one half message; "unknown" changes nothing and gets no answer."""
        header = EndTransactionRequestHeader.read(request)
        if self._config.is_slave:
            raise RefusedError(
                ResponseCode.SLAVE_NOT_AVAILABLE, "this broker is a slave: end it at its master"
            )
        commits = header.commit_or_rollback == SysFlag.TRANSACTION_COMMIT
        if not commits and header.commit_or_rollback != SysFlag.TRANSACTION_ROLLBACK:
            logger.info(
                "group %s does not know yet how %s ends: %s",
                header.producer_group,
                header.msg_id,
                request.remark,
            )
            return None
        half, _ = self._open_half(header)
        queues = self._service.queues_of(half, commits=commits)
        return put_in_turn(partial(self._end, header, request, connection), self._store, *queues)

    def _end(
        self,
        header: EndTransactionRequestHeader,
        request: RemotingCommand,
        connection: Connection,
    ) -> RemotingCommand | None:
        commits = header.commit_or_rollback == SysFlag.TRANSACTION_COMMIT
        half, offset = self._open_half(header)
        if commits:
            when_asked = bool(header.from_transaction_check)
            put = self._service.commit(half, offset, when_asked=when_asked)
        else:
            put = self._service.rollback(half, offset)
        if put is None:
            raise _ended_before(half)
        answer = self._answer(request, connection, put)
        counts = self._counts(half.properties.get(properties.REAL_TOPIC, half.topic))
        if commits:
            counts.count_commit(max(self._clock.now() - half.born_timestamp, 0) // 1000)
        else:
            counts.count_rollback()
        return answer

    def resume(self, request: RemotingCommand, connection: Connection) -> RemotingCommand | None:
        """Store a given-up message as a half message again, so that its checks restart."""
        header = ResumeCheckHalfMessageRequestHeader.read(request)
        try:
            _, physical_offset = parse_offset_message_id(header.msg_id or "")
        except RecordError as error:
            raise RefusedError(ResponseCode.SYSTEM_ERROR, str(error)) from error
        found = self._store.record_at(physical_offset, repair=False)
        record = None if found is None else decode_record(found, physical_offset=physical_offset)
        if record is None or record.topic != TRANS_CHECK_MAX_TIME_TOPIC:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"{header.msg_id} is not the id of a message in {TRANS_CHECK_MAX_TIME_TOPIC}",
            )
        return self._answer(request, connection, self._service.resume(record))

    def _open_half(self, header: EndTransactionRequestHeader) -> tuple[Record, int]:
        """The half message of a request, and the offset at which its transaction is open."""
        half = self._service.find(header.commit_log_offset, repair=False)
        if half is None:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                "Find prepared transaction message failed: no half message at commitLogOffset"
                f" {header.commit_log_offset}",
            )
        group = half.properties.get(properties.PRODUCER_GROUP)
        if group != header.producer_group:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"The producer group wrong: {header.producer_group}, the message is of {group}",
            )
        if half.queue_offset != header.tran_state_table_offset:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"The transaction state table offset wrong: {header.tran_state_table_offset},"
                f" the message is at {half.queue_offset}",
            )
        offset = self._service.open_offset(half)
        if offset is None:
            raise _ended_before(half)
        return half, offset

    def _answer(
        self, request: RemotingCommand, connection: Connection, put: PutResult
    ) -> RemotingCommand | None:
        if put.status is not PutStatus.PUT_OK:
            raise RefusedError(put_code(put.status), put.refusal)
        answer = request.reply(ResponseCode.SUCCESS)
        return self._group_commit.answer(request, connection, answer, put.end)


def _ended_before(half: Record) -> RefusedError:
    return RefusedError(
        ResponseCode.SYSTEM_ERROR,
        f"The transaction of half message {half.queue_offset} was ended before",
    )
