"""Where a broker's transactions stood when its store was last used."""

import logging

from congreve.broker import transaction
from congreve.broker.offsets import NO_OFFSET, ConsumerOffsetManager
from congreve.broker.topics import TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from congreve.broker.transaction import QUEUE_ID, TRANS_GROUP
from congreve.broker.transactionscan import settle_by_op_records
from congreve.broker.transactionservice import TransactionService
from congreve.engine.store import MessageStore
from congreve.records.flags import TRANSACTION_MASK, SysFlag
from congreve.records.record import decode_record

logger = logging.getLogger(__name__)


class TransactionRecovery:
    """Brings `service` to what log and offsets say, ours or a Java broker's.

    Op records settle their half messages. Of copies without an op record (the reference writes
    none) the newest counts. A committed message at the very end of the log lost its op record to
    the stop: it gets it now, or it would be checked and delivered again.
    """

    def __init__(
        self, store: MessageStore, offsets: ConsumerOffsetManager, service: TransactionService
    ) -> None:
        self._store = store
        self._offsets = offsets
        self._service = service

    def run(self) -> None:
        """Before the first request; appends op records where some are missing."""
        self._service.window.start_at(self._begin(TRANS_HALF_TOPIC))
        self._read_op_records()
        self._find_copies()
        self._finish_last_commit()
        logger.info("%d transactions are open", len(self._service.open_offsets()))

    def _begin(self, topic: str) -> int:
        least = max(self._store.min_offset(topic, QUEUE_ID), 0)
        offset = self._offsets.query(TRANS_GROUP, topic, QUEUE_ID)
        if offset == NO_OFFSET:
            return least
        end = self._store.max_offset(topic, QUEUE_ID)
        if offset > end:
            # The log lost its tail with the power; new messages get these offsets again.
            self._offsets.commit(TRANS_GROUP, topic, QUEUE_ID, end)
        return min(max(offset, least), end)

    def _read_op_records(self) -> None:
        queue = self._store.queues.find(TRANS_OP_HALF_TOPIC, QUEUE_ID)
        if queue is not None:
            settle_by_op_records(
                self._store.log,
                queue,
                self._begin(TRANS_OP_HALF_TOPIC),
                self._service.window,
                self._store.max_offset(TRANS_HALF_TOPIC, QUEUE_ID),
            )

    def _find_copies(self) -> None:
        service = self._service
        copied = set()
        for offset in reversed(service.open_offsets()):
            half = service.half_at(offset)
            name = "" if half is None else transaction.identity(half)
            if half is None:
                service.settle_lost(offset)
            elif name in copied:
                service.rollback(half, offset)
            elif transaction.is_copy(half):
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
        offset = None if half is None else self._service.open_offset(half)
        if half is not None and offset is not None:
            logger.info("half message %d was committed by the log's last record", offset)
            self._service.rollback(half, offset)
