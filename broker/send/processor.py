"""Sends, with every check (RocketMQ: SendMessageProcessor).

The fast path serves ordinary sends; all others come here. This module has all rules.
"""

import random
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from congreve.base.clock import Clock
from congreve.broker.commit.group_commit import GroupCommit
from congreve.broker.config import BrokerConfig
from congreve.broker.errors import RefusedError
from congreve.broker.figures.message_counts import TopicCounts
from congreve.broker.metadata.metadata import Metadata
from congreve.broker.requests.checks import (
    SendChecks,
    put_code,
    read_send_header,
    region_fields,
)
from congreve.broker.requests.new_queues import put_in_turn
from congreve.broker.send.reserved_properties import MayWrite, ReservedProperties
from congreve.broker.send.sent_puts import SentPuts
from congreve.broker.send.sent_records import SentRecords
from congreve.broker.transaction.service import TransactionService
from congreve.engine.errors import StoreError
from congreve.engine.results import PutResult, PutStatus
from congreve.engine.store import MessageStore
from congreve.records.layout import PROPERTIES_MAX
from congreve.records.message import properties
from congreve.records.message.message import Host, Record
from congreve.records.message.topics import (
    RETRY_PREFIX,
)
from congreve.remoting.errors import HeaderError
from congreve.remoting.messages.codes import RequestCode, ResponseCode
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.messages.headers import SendMessageRequestHeader, SendMessageResponseHeader
from congreve.remoting.transport.connection import Connection
from congreve.remoting.transport.dispatcher import Handler

Answering = RemotingCommand | Awaitable[RemotingCommand | None] | None

MayHave = Callable[[str, str], bool]
"""Whether a topic may have a message of a lite topic."""
TakeBack = Callable[[str, str, Host], Awaitable[PutResult]]
"""Takes back the delayed message of a topic with that id, for the client at that address."""


class SendMessageProcessor:
    """SEND_MESSAGE, SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE (RocketMQ: SendMessageProcessor)."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        metadata: Metadata,
        store: MessageStore,
        group_commit: GroupCommit,
        transactions: TransactionService,
        clock: Clock,
        take_back: TakeBack,
        counts: Callable[[str], TopicCounts],
        may_have: MayHave = lambda topic, lite: True,
        may_write: MayWrite | None = None,
        pick: Callable[[int], int] = random.randrange,
    ) -> None:
        self._config = config
        self._store = store
        self._group_commit = group_commit
        self._metadata = metadata
        self._take_back = take_back
        self._may_have = may_have
        self._checks = SendChecks(config, metadata.topics, store.config, clock)
        reserved = ReservedProperties(may_write)
        self._records = SentRecords(config, metadata, store.config, reserved, pick)
        self._puts = SentPuts(config, store, transactions, clock, counts, reserved)

    def handlers(self) -> Mapping[int, Handler]:
        """The handlers by request code."""
        return {
            RequestCode.SEND_MESSAGE: self.send,
            RequestCode.SEND_MESSAGE_V2: self.send,
            RequestCode.SEND_BATCH_MESSAGE: self.send,
        }

    def send(self, request: RemotingCommand, connection: Connection) -> Answering:
        """Store one message or a batch. None when the answer waits for the disk."""
        try:
            header = read_send_header(request)
            self._checks.check(header, request, connection)
            record, wait = self._records.record(header, request, connection)
            if properties.TIMER_DEL_UNIQUE_KEY in record.properties and not header.batch:
                return self._recall(record, wait, request, connection)
            self._check_lite(record)
            queue = self._puts.queue_of(record, header)
        except RefusedError as refused:
            return self._answer(request, refused.code, str(refused), {})
        except HeaderError as error:
            return self._answer(request, ResponseCode.SYSTEM_ERROR, str(error), {})
        is_retry = header.topic.startswith(RETRY_PREFIX)
        saved = self._metadata.missing(
            topics=(header.topic, record.topic),
            group=header.topic.removeprefix(RETRY_PREFIX) if is_retry else None,
        )
        put = partial(self._store_one, record, wait, header, request, connection)
        answer = put_in_turn(put, self._store, queue, saved=saved)
        return self._later(answer, request) if isinstance(answer, Awaitable) else answer

    def _check_lite(self, record: Record) -> None:
        lite = record.properties.get(properties.LITE_TOPIC)
        if lite is not None and not self._may_have(record.topic, lite):
            most = self._config.limits.max_lmq_consume_queue_num
            raise RefusedError(
                ResponseCode.LMQ_QUOTA_EXCEEDED,
                f"lite topic {lite} of {record.topic} is not created: there are {most} of"
                " maxLmqConsumeQueueNum",
            )

    async def _recall(
        self, record: Record, wait: bool, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand | None:
        """Take back the message that the property names as ``topic+id``, or as an id alone."""
        named = record.properties[properties.TIMER_DEL_UNIQUE_KEY]
        topic, _, message_id = named.rpartition("+")
        try:
            if topic not in ("", record.topic):
                raise RefusedError(
                    ResponseCode.MESSAGE_ILLEGAL,
                    f"{properties.TIMER_DEL_UNIQUE_KEY}={named} is not of topic {record.topic}",
                )
            put = await self._take_back(record.topic, message_id, connection.peer)
        except RefusedError as refused:
            return self._answer(request, refused.code, str(refused), {})
        return self._stored(put, record, wait, request, connection)

    async def _later(
        self, answer: Awaitable[RemotingCommand | None], request: RemotingCommand
    ) -> RemotingCommand | None:
        """The answer once its topic is on disk; a kill would hide the message otherwise."""
        try:
            return await answer
        except StoreError as error:
            return self._answer(request, ResponseCode.SYSTEM_ERROR, str(error), {})

    def _store_one(
        self,
        record: Record,
        wait: bool,
        header: SendMessageRequestHeader,
        request: RemotingCommand,
        connection: Connection,
    ) -> RemotingCommand | None:
        try:
            put, as_stored = self._puts.put(record, header, request, connection)
            if put.status is not PutStatus.PUT_OK:
                raise RefusedError(put_code(put.status), self._why(put, request, record))
        except RefusedError as refused:
            return self._answer(request, refused.code, str(refused), {})
        self._puts.count(put, record, as_stored)
        return self._stored(
            put, record, wait, request, connection, self._puts.recall_handle(record, as_stored)
        )

    def _stored(
        self,
        put: PutResult,
        record: Record,
        wait: bool,
        request: RemotingCommand,
        connection: Connection,
        recall_handle: str | None = None,
    ) -> RemotingCommand | None:
        answered = SendMessageResponseHeader(
            msg_id=put.message_ids,
            queue_id=record.queue_id,
            queue_offset=put.queue_offset,
            recall_handle=recall_handle,
        )
        answer = self._answer(request, ResponseCode.SUCCESS, None, answered.fields())
        if not wait:
            return answer
        return self._group_commit.answer(request, connection, answer, put.end)

    def _answer(
        self, request: RemotingCommand, code: int, remark: str | None, fields: dict[str, str]
    ) -> RemotingCommand:
        return request.reply(code, remark, fields | region_fields(self._config))

    def _why(self, put: PutResult, request: RemotingCommand, record: Record) -> str:
        if put.status is PutStatus.SERVICE_NOT_AVAILABLE:
            return f"service not available now: {put.why}"
        if put_code(put.status) is ResponseCode.MESSAGE_ILLEGAL:
            return (
                f"the message is illegal ({put.status.name}): body of {len(request.body)} bytes"
                f" (limit {self._store.config.max_message_size}), {len(record.properties)}"
                f" properties (limit {PROPERTIES_MAX} bytes)"
            )
        return put.refusal
