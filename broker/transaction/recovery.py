"""Recovery of transactions: which half messages are open in a store."""

import logging

from congreve.broker.metadata.offsets import NO_OFFSET, ConsumerOffsetManager
from congreve.broker.transaction.scan import settle_by_op_records
from congreve.broker.transaction.service import TransactionService
from congreve.engine.store import MessageStore
from congreve.records.message import half_messages
from congreve.records.message.flags import TRANSACTION_MASK, SysFlag
from congreve.records.message.topics import (
    TRANS_GROUP,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
    TRANS_QUEUE_ID,
)
from congreve.records.record import decode_record

logger = logging.getLogger(__name__)


class TransactionRecovery:
    """Sets `service` by the log and the offsets, of this broker or a Java broker.

    Op records settle their half messages. The newest of several copies counts when they have no op
    records (the reference writes none). A committed message at the end of the log lost its op
    record when the broker stopped: it is written now, or the message would be delivered again.
    """

    def __init__(
        self, store: MessageStore, offsets: ConsumerOffsetManager, service: TransactionService
    ) -> None:
        self._store = store
        self._offsets = offsets
        self._service = service

    def run(self) -> None:
        """Recover, before the first request; appends missing op records."""
        self._service.window.start_at(self._begin(TRANS_HALF_TOPIC))
        self._read_op_records()
        self._find_copies()
        self._finish_last_commit()
        logger.info("%d transactions are open", len(self._service.open_offsets()))

    def _begin(self, topic: str) -> int:
        least = max(self._store.min_offset(topic, TRANS_QUEUE_ID), 0)
        offset = self._offsets.query(TRANS_GROUP, topic, TRANS_QUEUE_ID)
        if offset == NO_OFFSET:
            return least
        end = self._service.end_of(topic)
        if offset > end:
            # The log lost its tail with the power; new messages get these offsets again.
            self._offsets.note(TRANS_GROUP, topic, TRANS_QUEUE_ID, end)
        return min(max(offset, least), end)

    def _read_op_records(self) -> None:
        queue = self._store.queues.find(TRANS_OP_HALF_TOPIC, TRANS_QUEUE_ID)
        if queue is not None:
            settle_by_op_records(
                self._store.log,
                queue,
                self._begin(TRANS_OP_HALF_TOPIC),
                self._service.window,
                self._service.end_of(TRANS_HALF_TOPIC),
            )

    def _find_copies(self) -> None:
        service = self._service
        copied = set()
        for offset in reversed(service.open_offsets()):
            half = service.half_at(offset)
            name = "" if half is None else half_messages.identity(half)
            if half is None:
                service.settle_lost(offset)
            elif name in copied:
                service.rollback(half, offset)
            elif half_messages.is_copy(half):
                copied.add(name)
                service.copy_counts(half)

    def _finish_last_commit(self) -> None:
        recovery = self._store.recovery
        if recovery is None or recovery.last_record < 0:
            return
        found = self._store.read(recovery.last_record)
        if found is None:
            return
        last = decode_record(found)
        if last.sys_flag & TRANSACTION_MASK != SysFlag.TRANSACTION_COMMIT:
            return
        half = self._service.find(last.prepared_offset)
        if half is None or not half_messages.is_commit_of(last, half):
            return
        offset = self._service.open_offset(half)
        if offset is not None:
            logger.info("half message %d was committed by the log's last record", offset)
            self._service.rollback(half, offset)
