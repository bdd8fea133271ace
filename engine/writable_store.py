"""The appends of a store: what a message must be, and what follows when it is in the log."""

import logging
import time
from collections.abc import Callable, Iterable

from congreve.base.clock import Clock
from congreve.engine.config import StoreConfig
from congreve.engine.errors import MessageIllegalError
from congreve.engine.health import Health
from congreve.engine.index.index import KeyIndex
from congreve.engine.log.append_result import AppendResult
from congreve.engine.log.commit_log import CommitLog
from congreve.engine.log.flush_policy import FlushTimer
from congreve.engine.queue.consume_queue import ConsumeQueue
from congreve.engine.queue.queue_table import QueueTable
from congreve.engine.readable_store import ReadableStore
from congreve.engine.recovery.repair import QueueRepair
from congreve.engine.recovery.repair_thread import RepairThread
from congreve.engine.results import PutResult, PutStatus, StoreStats
from congreve.io_backends.backend import Backend
from congreve.io_backends.errors import BackendError
from congreve.records.errors import RecordError
from congreve.records.layout import PROPERTIES_MAX
from congreve.records.message.message import Record
from congreve.records.message.property_codec import encode_properties
from congreve.records.message.topics import PARKED
from congreve.records.record import offset_message_id

logger = logging.getLogger(__name__)

SHOWN_MAX_S = 0.1
"""A group confirms in milliseconds, or not for long; a change of master does not wait longer."""
SHOWN_STEP_S = 0.02


class WritableStore(ReadableStore):
    """The appends of an open store, for one thread (RocketMQ: the puts of DefaultMessageStore)."""

    def __init__(
        self,
        config: StoreConfig,
        log: CommitLog,
        queues: QueueTable,
        index: KeyIndex | None,
        repair: QueueRepair,
        *,
        backend: Backend,
        health: Health,
        clock: Clock,
        on_arrival: Callable[[ConsumeQueue], None] | None,
        disk_use: Callable[[str], float],
    ) -> None:
        super().__init__(config, log, queues, index, repair)
        self.config = config
        self.clock = clock
        self.backend = backend
        self.on_arrival = on_arrival
        self.health = health
        self.repairs = RepairThread(repair)
        self._disk_use = disk_use
        self.flush_timer = FlushTimer(
            config,
            written=lambda: log.max_offset,
            durable=lambda: backend.durable_offset,
            request=backend.request,
        )
        self._open = False
        self._no_space: tuple[str, int] | None = None  # why a message found no space, at which end

    @property
    def writable(self) -> bool:
        """Whether the store accepts messages now."""
        return self.check_writable() is None

    def check_writable(self) -> str | None:
        """Why the store would refuse a message now; None while it accepts messages."""
        return self.health.reason() if self._open else "the store is not open"

    def trouble(self) -> str | None:
        """Why the store refuses messages or refused the last one; None while it accepts them."""
        why, log_end = self._no_space or (None, -1)
        return self.check_writable() or (why if log_end == self.log.max_offset else None)

    def after_append(
        self, upto: int, arrived: Iterable[ConsumeQueue] = (), *, flush: bool = True
    ) -> None:
        """Wake the index and the flush after direct appends to `log`; call it once for a chunk.

        `upto` is the physical offset after the last record, `arrived` the watched queues that got
        entries. A caller that requests durability itself (SYNC_FLUSH) passes `flush=False`.
        """
        if flush and self.config.sync_flush:
            self.backend.request(upto)
        elif self.flush_timer.wants_wake:
            self.flush_timer.wake()
        if self.index is not None:
            self.index.wake()
        if self.on_arrival is not None:
            for queue in arrived:
                self.on_arrival(queue)

    def put(self, record: Record, *, is_copy: bool = False) -> PutResult:
        """Append one message; it is durable once wait_durable(result.end) returns True.

        The body of a copy of a stored message (`is_copy`) may exceed maxMessageSize, which may have
        been larger when the message was sent.
        """
        queue = self.queues.get(record.topic, record.queue_id)
        return self._put(
            record,
            queue,
            0 if is_copy else len(record.body),
            lambda: self.log.append_record(record, queue, self._tags_code(record)),
        )

    def put_batch(self, record: Record, batch: bytes) -> PutResult:
        """Append a batch body (docs/formats/record.md); `record` has the members' common fields."""
        queue = self.queues.get(record.topic, record.queue_id)
        return self._put(
            record,
            queue,
            max(len(record.body), len(batch)),
            lambda: self.log.append_records(record, batch, queue),
        )

    def _put(
        self,
        record: Record,
        queue: ConsumeQueue,
        limited_size: int,
        append: Callable[[], AppendResult],
    ) -> PutResult:
        read_only = self.check_writable()
        if read_only is not None:
            return PutResult(PutStatus.SERVICE_NOT_AVAILABLE, why=read_only)
        if limited_size > self.config.max_message_size:
            return PutResult(PutStatus.MESSAGE_ILLEGAL)
        try:
            if len(encode_properties(record.properties)) > PROPERTIES_MAX:
                return PutResult(PutStatus.PROPERTIES_SIZE_EXCEEDED)
            done = append()
        except (MessageIllegalError, RecordError) as error:
            logger.warning("a message to %s was refused: %s", record.topic, error)
            return PutResult(PutStatus.MESSAGE_ILLEGAL)
        except (BackendError, MemoryError) as error:
            if self._no_space is None or self._no_space[1] != self.log.max_offset:
                logger.error("no space for a message: %s", error)
            self._no_space = str(error) or "out of memory", self.log.max_offset
            return PutResult(PutStatus.CREATE_MAPEDFILE_FAILED, why=self._no_space[0])
        self.after_append(done.end)
        if self.on_arrival is not None and (queue.watchers or record.topic in PARKED):
            self.on_arrival(queue)
        return PutResult(
            PutStatus.PUT_OK,
            physical_offset=done.physical_offset,
            end=done.end,
            queue_offset=done.queue_offset,
            store_timestamp=done.store_timestamp,
            message_ids=self._message_ids(record, queue, done),
        )

    def _message_ids(self, record: Record, queue: ConsumeQueue, done: AppendResult) -> str:
        if done.records == 1:
            return offset_message_id(record.store_host, done.physical_offset)
        entries = queue.entries(done.queue_offset, done.queue_offset + done.records)
        return ",".join(
            offset_message_id(record.store_host, offset)
            for offset in entries["physical_offset"].tolist()
        )

    def _tags_code(self, record: Record) -> int | None:
        """The due time of a parked message in ms (computeDeliverTimestamp); None for others."""
        if record.topic not in PARKED:
            return None
        return self.config.parking.entry_time(record.topic, record.properties, self.clock.now())

    def wait_durable(self, upto: int, timeout_s: float) -> bool:
        """Wait until `upto` is durable; False after a timeout or failure."""
        return self.backend.wait_durable(upto, timeout_s)

    def wait_final(self, upto: int, timeout_s: float) -> bool:
        """wait_durable(), then a moment until readers see all before `upto`.

        No other log can replace that: what the log says may be written elsewhere.
        """
        if not self.wait_durable(upto, timeout_s):
            return False
        until = time.monotonic() + min(timeout_s, SHOWN_MAX_S)
        while self.log.shown_end < upto and time.monotonic() < until:
            time.sleep(SHOWN_STEP_S)
        return self.log.shown_end >= upto

    def stats(self) -> StoreStats:
        """The store's offsets, counts and disk use now."""
        return StoreStats(
            log_begin=self.log.min_offset,
            log_end=self.log.max_offset,
            durable=self.backend.durable_offset,
            queues=len(self.queues),
            topics=len(self.queues.topics()),
            commit_log_disk_use=self._disk_use(self.config.commit_log_dir),
            consume_queue_disk_use=self._disk_use(self.config.root_dir),
        )
