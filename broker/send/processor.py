"""Sends, with every check (RocketMQ: SendMessageProcessor).

The fast path serves ordinary sends; all others come here. This module has all rules.
"""

import random
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

import msgspec

from congreve.base.clock import Clock
from congreve.broker.config import BrokerConfig
from congreve.broker.delay.parking import park
from congreve.broker.errors import RefusedError
from congreve.broker.figures.message_counts import TopicCounts
from congreve.broker.metadata.metadata import Metadata
from congreve.broker.send.batch import batch_fault
from congreve.broker.send.checks import (
    SendChecks,
    attempts_of,
    put_code,
    read_send_header,
    region_fields,
)
from congreve.broker.send.group_commit import GroupCommit
from congreve.broker.send.new_queues import put_in_turn
from congreve.broker.send.reserved_properties import MayWrite, ReservedProperties
from congreve.broker.send.retries import dead_letter, retry_or_dead_letter
from congreve.broker.transaction.service import TransactionService
from congreve.engine.errors import StoreError
from congreve.engine.results import PutResult, PutStatus
from congreve.engine.store import MessageStore
from congreve.records.errors import RecordError
from congreve.records.layout import PROPERTIES_MAX
from congreve.records.message import half_messages, properties
from congreve.records.message.fitting import fitting
from congreve.records.message.flags import SysFlag
from congreve.records.message.message import Host, Record
from congreve.records.message.property_codec import decode_properties
from congreve.records.message.recall_handle import RecallHandle
from congreve.records.message.topics import (
    RETRY_PREFIX,
    TIMER_TOPIC,
    TRANS_HALF_TOPIC,
    TRANS_QUEUE_ID,
)
from congreve.remoting.errors import HeaderError
from congreve.remoting.messages.bodies import TopicConfig
from congreve.remoting.messages.codes import RequestCode, ResponseCode
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.messages.headers import (
    SendMessageRequestHeader,
    SendMessageResponseHeader,
)
from congreve.remoting.transport.connection import Connection
from congreve.remoting.transport.dispatcher import Handler

Answering = RemotingCommand | Awaitable[RemotingCommand | None] | None

MULTI_TAG = "MULTI_TAG"
RECALL_ID_MAX = 128
"""Bytes of a message's id, beyond which its send gets no recall handle."""

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
        may_write: MayWrite | None = None,
        pick: Callable[[int], int] = random.randrange,
    ) -> None:
        self._config = config
        self._topics = metadata.topics
        self._groups = metadata.groups
        self._store = store
        self._group_commit = group_commit
        self._transactions = transactions
        self._metadata = metadata
        self._clock = clock
        self._take_back = take_back
        self._counts = counts
        self._checks = SendChecks(config, metadata.topics, store.config, clock)
        self._reserved = ReservedProperties(may_write)
        self._pick = pick

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
            record, wait = self._record(header, request, connection)
            if properties.TIMER_DEL_UNIQUE_KEY in record.properties and not header.batch:
                return self._recall(record, wait, request, connection)
            queue = self._queue_of(record, header)
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

    def _queue_of(self, record: Record, header: SendMessageRequestHeader) -> tuple[str, int]:
        """Topic and id of the queue that gets the message's entry."""
        if header.batch:
            return record.topic, record.queue_id
        if half_messages.is_half(record):
            return TRANS_HALF_TOPIC, TRANS_QUEUE_ID
        parked = park(record, self._store.config, self._clock.now())
        return parked.topic, parked.queue_id

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
            put, as_stored = self._put(record, header, request, connection)
            if put.status is not PutStatus.PUT_OK:
                raise RefusedError(put_code(put.status), self._why(put, request, record))
        except RefusedError as refused:
            return self._answer(request, refused.code, str(refused), {})
        self._count(put, record, as_stored)
        return self._stored(
            put, record, wait, request, connection, self._recall_handle(record, as_stored)
        )

    def _count(self, put: PutResult, record: Record, as_stored: Record) -> None:
        messages = put.message_ids.count(",") + 1
        kind = message_type(record.properties)
        counts = self._counts(record.topic)
        counts.count_sent(kind, messages, put.end - put.physical_offset)
        if as_stored.topic == TIMER_TOPIC:
            due_ms = int(as_stored.properties[properties.TIMER_OUT_MS])
            counts.count_delay(max(due_ms - record.born_timestamp, 0) // 1000)

    def _recall_handle(self, record: Record, as_stored: Record) -> str | None:
        """By which a timed message can be taken back (RocketMQ 5: attachRecallHandle)."""
        message_id = record.properties.get(properties.UNIQ_KEY, "")
        if as_stored.topic != TIMER_TOPIC or not 0 < len(message_id.encode()) <= RECALL_ID_MAX:
            return None
        due_ms = int(as_stored.properties[properties.TIMER_OUT_MS]) + 1
        handle = RecallHandle(record.topic, self._config.broker_name, str(due_ms), message_id)
        return handle.encode()

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

    def _put(
        self,
        record: Record,
        header: SendMessageRequestHeader,
        request: RemotingCommand,
        connection: Connection,
    ) -> tuple[PutResult, Record]:
        """Store the message; returns also the record that it has become."""
        if header.batch:
            fault = batch_fault(record, request.body)
            if fault is not None:
                raise RefusedError(
                    ResponseCode.MESSAGE_ILLEGAL, f"the message is illegal: {fault} is not possible"
                )
            try:
                body = self._reserved.of_batch(header.topic, request, connection)
            except RecordError as error:
                raise RefusedError(ResponseCode.MESSAGE_ILLEGAL, str(error)) from error
            return self._store.put_batch(record, body), record
        now = self._clock.now()
        if half_messages.is_half(record):
            # Rejects a time, or properties, that the commit could not use.
            committed = park(record, self._store.config, now)
            if fitting(committed) is None:
                raise RefusedError(
                    ResponseCode.MESSAGE_ILLEGAL,
                    "the message is illegal, its properties leave no room for its delivery time",
                )
            return self._transactions.prepare(record), record
        if half_messages.says_transaction(record.properties):
            record = half_messages.without_transaction(record)
        if record.sys_flag & SysFlag.TRANSACTION_PREPARED:
            # Neither queued nor delayed, as in the reference (CommitLog.asyncPutMessage); the type
            # of a rollback has this bit, too.
            return self._store.put(_without_wait(record)), record
        parked = park(record, self._store.config, now)
        if parked.topic == record.topic:
            parked = _without_wait(parked)
        return self._store.put(parked), parked

    def _answer(
        self, request: RemotingCommand, code: int, remark: str | None, fields: dict[str, str]
    ) -> RemotingCommand:
        return request.reply(code, remark, fields | region_fields(self._config))

    def _record(
        self, header: SendMessageRequestHeader, request: RemotingCommand, connection: Connection
    ) -> tuple[Record, bool]:
        """The record to store, and whether its sender waits for the disk (WAIT)."""
        stored = self._stored_properties(header, request, connection)
        waits = stored.get(properties.WAIT, "true").lower() == "true"
        topic = self._topics.table[header.topic]
        queue_id = header.queue_id
        if queue_id < 0:
            queue_id = self._random_queue(topic)
        sys_flag = header.sys_flag
        if topic.topic_filter_type == MULTI_TAG:
            sys_flag |= SysFlag.MULTI_TAGS
        record = Record(
            topic=topic.topic_name,
            body=bytes(request.body),
            properties=stored,
            queue_id=queue_id,
            flag=header.flag,
            sys_flag=sys_flag,
            born_timestamp=header.born_timestamp,
            born_host=connection.peer,
            store_host=self._config.store_host,
            reconsume_times=header.reconsume_times or 0,
        )
        if header.topic.startswith(RETRY_PREFIX):
            record = self._retry(record, header, request)
        return record, waits

    def _stored_properties(
        self, header: SendMessageRequestHeader, request: RemotingCommand, connection: Connection
    ) -> dict[str, str]:
        text = (header.properties or "").encode()
        # What a consumer adds to its copy may be left out again.
        if len(text) > PROPERTIES_MAX and not header.topic.startswith(RETRY_PREFIX):
            raise RefusedError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the message is illegal, its properties of {len(text)} bytes are over the limit"
                f" of {PROPERTIES_MAX}",
            )
        try:
            stored = decode_properties(text)
        except RecordError as error:
            raise RefusedError(ResponseCode.MESSAGE_ILLEGAL, str(error)) from error
        if half_messages.says_transaction(stored) and self._config.reject_transaction_message:
            raise RefusedError(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self._config.broker_ip1}] sending transaction message is forbidden"
                " (rejectTransactionMessage)",
            )
        stored = self._reserved.of_message(header.topic, stored, request, connection)
        stored[properties.CLUSTER] = self._config.broker_cluster_name
        return stored

    def _random_queue(self, topic: TopicConfig) -> int:
        if topic.write_queue_nums < 1:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR, f"topic[{topic.topic_name}] has no queue to write to"
            )
        return self._pick(topic.write_queue_nums)

    def _retry(
        self, record: Record, header: SendMessageRequestHeader, request: RemotingCommand
    ) -> Record:
        """The retry as it is stored, or the dead letter after the last attempt."""
        name = header.topic.removeprefix(RETRY_PREFIX)
        group = self._groups.find(name)
        if group is None:
            raise RefusedError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {name}"
            )
        attempts = attempts_of(group, request, header.max_reconsume_times)
        if record.reconsume_times < attempts:
            record = retry_or_dead_letter(record, name, self._store.config)
        else:
            record = dead_letter(record, name)
        if record.topic != header.topic:
            self._topics.create_internal(record.topic, 1)
        return record

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


def _without_wait(record: Record) -> Record:
    # The reference keeps WAIT only where it encodes the properties again: in parked messages.
    if properties.WAIT not in record.properties:
        return record
    kept = {name: text for name, text in record.properties.items() if name != properties.WAIT}
    return msgspec.structs.replace(record, properties=kept)


def message_type(stored: dict[str, str]) -> str:
    """The type of a message, one of message_counts.TYPES, by its properties.

    (RocketMQ 5: BrokerMetricsManager.getMessageType.)
    """
    if half_messages.says_transaction(stored):
        return "transaction"
    if properties.SHARDING_KEY in stored:
        return "fifo"
    times = (properties.TIMER_DELIVER_MS, properties.TIMER_DELAY_MS, properties.TIMER_DELAY_SEC)
    return "normal" if stored.keys().isdisjoint((properties.DELAY, *times)) else "delay"
