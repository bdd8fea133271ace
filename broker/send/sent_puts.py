"""How the record of a send is stored: as it is, parked, as a half message or a batch."""

from collections.abc import Callable

import msgspec

from congreve.base.clock import Clock
from congreve.broker.config import BrokerConfig
from congreve.broker.delay.parking import park
from congreve.broker.errors import RefusedError
from congreve.broker.figures.message_counts import TopicCounts
from congreve.broker.send.batch import batch_fault
from congreve.broker.send.reserved_properties import ReservedProperties
from congreve.broker.transaction.service import TransactionService
from congreve.engine.results import PutResult
from congreve.engine.store import MessageStore
from congreve.records.errors import RecordError
from congreve.records.message import half_messages, properties
from congreve.records.message.fitting import fitting
from congreve.records.message.flags import SysFlag
from congreve.records.message.message import Record
from congreve.records.message.recall_handle import RecallHandle
from congreve.records.message.topics import TIMER_TOPIC, TRANS_HALF_TOPIC, TRANS_QUEUE_ID
from congreve.remoting.messages.codes import ResponseCode
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.messages.headers import SendMessageRequestHeader
from congreve.remoting.transport.connection import Connection

RECALL_ID_MAX = 128
"""Bytes of a message's id, beyond which its send gets no recall handle."""


class SentPuts:
    """Stores the records of sends, and counts them. (RocketMQ: CommitLog.asyncPutMessage.)"""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        transactions: TransactionService,
        clock: Clock,
        counts: Callable[[str], TopicCounts],
        reserved: ReservedProperties,
    ) -> None:
        self._config = config
        self._store = store
        self._transactions = transactions
        self._clock = clock
        self._counts = counts
        self._reserved = reserved

    def queue_of(self, record: Record, header: SendMessageRequestHeader) -> tuple[str, int]:
        """Topic and id of the queue that gets the message's entry."""
        if header.batch:
            return record.topic, record.queue_id
        if half_messages.is_half(record):
            return TRANS_HALF_TOPIC, TRANS_QUEUE_ID
        parked = park(record, self._store.config, self._clock.now())
        return parked.topic, parked.queue_id

    def put(
        self,
        record: Record,
        header: SendMessageRequestHeader,
        request: RemotingCommand,
        connection: Connection,
    ) -> tuple[PutResult, Record]:
        """Store the message; returns also the record that it has become. Raises RefusedError."""
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

    def count(self, put: PutResult, record: Record, as_stored: Record) -> None:
        """Count a stored message, for metrics."""
        messages = put.message_ids.count(",") + 1
        kind = message_type(record.properties)
        counts = self._counts(record.topic)
        counts.count_sent(kind, messages, put.end - put.physical_offset)
        if as_stored.topic == TIMER_TOPIC:
            due_ms = int(as_stored.properties[properties.TIMER_OUT_MS])
            counts.count_delay(max(due_ms - record.born_timestamp, 0) // 1000)

    def recall_handle(self, record: Record, as_stored: Record) -> str | None:
        """By which a timed message is taken back, else None (RocketMQ 5: attachRecallHandle)."""
        message_id = record.properties.get(properties.UNIQ_KEY, "")
        if as_stored.topic != TIMER_TOPIC or not 0 < len(message_id.encode()) <= RECALL_ID_MAX:
            return None
        due_ms = int(as_stored.properties[properties.TIMER_OUT_MS]) + 1
        handle = RecallHandle(record.topic, self._config.broker_name, str(due_ms), message_id)
        return handle.encode()


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
