"""The store as its users see it: messages in, messages out, one folder on disk."""

import logging
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from types import TracebackType
from typing import Self

from congreve.engine.backends import make_backend
from congreve.engine.checkpoint import Checkpointer
from congreve.engine.clock import Clock
from congreve.engine.coldreads import ColdReads
from congreve.engine.commitlog import AppendResult, CommitLog
from congreve.engine.config import StoreConfig
from congreve.engine.consumequeue import ConsumeQueue
from congreve.engine.errors import MessageIllegalError, StoreError
from congreve.engine.flushpolicy import FlushTimer
from congreve.engine.health import Health
from congreve.engine.housekeeping import Housekeeping
from congreve.engine.index import KeyIndex
from congreve.engine.lock import StoreLock
from congreve.engine.queuetable import QueueTable
from congreve.engine.reader import GetResult, Limits, Reader
from congreve.engine.recovery import Recovery, RecoveryReport
from congreve.engine.results import PutResult, PutStatus, QueryResult, StoreStats
from congreve.engine.retention import disk_use as partition_use
from congreve.engine.statefile import sync_folder
from congreve.io_backends.backend import Backend
from congreve.io_backends.errors import BackendError
from congreve.records.errors import RecordError
from congreve.records.message import Record
from congreve.records.properties import DELAY, TIMER_OUT_MS
from congreve.records.record import decode_record, encode_properties, offset_message_id
from congreve.records.recordfilter import RecordFilter

__all__ = ["Backend", "MessageStore", "PutResult", "PutStatus", "StoreStats"]

#: RocketMQ: TopicValidator.RMQ_SYS_SCHEDULE_TOPIC, and the topics that are never unused.
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
#: RocketMQ 5: TimerMessageStore.TIMER_TOPIC.
TIMER_TOPIC = "rmq_sys_wheel_timer"
SYSTEM_TOPICS = frozenset({SCHEDULE_TOPIC, TIMER_TOPIC, "RMQ_SYS_TRANS_OP_HALF_TOPIC"})
PARKED = frozenset({SCHEDULE_TOPIC, TIMER_TOPIC})

_PROPERTIES_MAX = 32_767

log = logging.getLogger(__name__)


class MessageStore:
    """One store folder (RocketMQ: DefaultMessageStore).

    One thread calls what appends (put, put_batch, delete_topic, and whoever uses `log` directly);
    everything else may be called from any thread. `on_arrival` hears of a watched queue that got
    an entry by put(), and of every parked message; who appends by `log` looks at `queue.watched`
    itself.
    """

    def __init__(
        self,
        config: StoreConfig,
        *,
        clock: Clock | None = None,
        backend: Backend | None = None,
        on_arrival: Callable[[ConsumeQueue], None] | None = None,
        disk_use: Callable[[str], float] = partition_use,
    ) -> None:
        """Touches nothing on disk before start(). `disk_use(folder)` is its partition's use."""
        self.config = config
        self.clock = Clock() if clock is None else clock
        self.backend = make_backend(config) if backend is None else backend
        self.on_arrival = on_arrival
        self.queues = QueueTable(config.consume_queue_dir, config.mapped_file_size_consume_queue)
        self.log = CommitLog(
            config.commit_log_dir, config.mapped_file_size_commit_log, self.backend, self.clock
        )
        self.index = KeyIndex(config, self.log) if config.message_index_enable else None
        self.health = Health(self.backend)
        self.recovery: RecoveryReport | None = None
        self.cold_reads = ColdReads(self.log)
        self._reader = Reader(config, self.log)
        self._disk_use = disk_use
        self._lock = StoreLock(config.lock_path)
        self._checkpointer = Checkpointer(
            config,
            self.backend,
            self.queues,
            log_begin=lambda: self.log.min_offset,
            store_time=self._store_time_of,
        )
        self._housekeeping = Housekeeping(
            config,
            commit_log=self.log,
            queues=self.queues,
            index=self.index,
            checkpointer=self._checkpointer,
            health=self.health,
            clock=self.clock,
            disk_use=disk_use,
        )
        self._flush_timer = FlushTimer(
            config,
            written=lambda: self.log.max_offset,
            durable=lambda: self.backend.durable_offset,
            request=self.backend.request,
        )
        self._open = False
        self._no_room: str | None = None  # why the last message found none

    # --- life

    def start(self) -> None:
        """Lock, load, recover, then serve.

        StoreLockedError where another broker uses the folder, before anything was touched (D11).
        StoreError or BackendError where folder or disk do not let it.
        """
        new = not os.path.exists(self.config.lock_path)
        self._lock.acquire()
        try:
            self._load()
            self._mark_running()
        except (StoreError, BackendError):
            self._retreat(new)
            raise
        self._flush_timer.start()
        self._housekeeping.start()
        self._open = True
        log.info("store %s is open: %s", self.config.root_dir, self.recovery)

    def _load(self) -> None:
        clean = not os.path.exists(self.config.abort_path)
        self.log.load()
        self.queues.load()
        known = self._checkpointer.load()
        self.recovery = Recovery(
            self.config,
            self.log,
            self.queues,
            times=self._checkpointer.times,
            known=known,
            clean=clean,
        ).run()
        self._checkpointer.resume(self.recovery.last_record, self.recovery.end)
        self.backend.start(self.recovery.durable)
        if not self.log.segments:
            self.log.next_segment()  # a disk without room says so now, not at the first message
        if self.index is not None:
            self.index.start(clean=clean)
        self._housekeeping.watch_disk()
        if known is None or self.recovery.records:
            self._housekeeping.checkpoint()

    def _mark_running(self) -> None:
        try:
            with open(self.config.abort_path, "w", encoding="ascii"):
                pass
            sync_folder(self.config.root_dir)
        except OSError as error:
            raise StoreError(f"cannot write {self.config.abort_path}: {error.strerror}") from error

    def _retreat(self, new: bool) -> None:
        """After a failed start: no threads, no lock, and of a new folder nothing is left."""
        if self.index is not None:
            self.index.stop()
        self.log.close()
        self.backend.stop()
        if not new:
            self._lock.release()
            return
        for folder in (self.config.commit_log_dir, self.config.own_dir):
            with suppress(OSError):
                os.rmdir(folder)
        self._lock.remove()

    def close(self) -> None:
        """Everything durable, checkpoints written, lock released; idempotent.

        The mark of an unclean stop stays where the store failed (RocketMQ: abort).
        """
        if not self._open:
            return
        self._open = False
        self._housekeeping.stop()
        self._flush_timer.stop()
        self.cold_reads.stop()
        if self.index is not None:
            self.index.stop()
        healthy = False
        try:
            healthy = self._housekeeping.checkpoint()
            self.queues.close()
            self.log.close()
        except (StoreError, BackendError) as error:
            log.error("the store did not stop cleanly: %s", error)
            healthy = False
        self.backend.stop()
        if healthy and not self.health.failed:
            os.unlink(self.config.abort_path)
        self._lock.release()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # --- in

    @property
    def writable(self) -> bool:
        return self.check_writable() is None

    def check_writable(self) -> str | None:
        """Why a message would be refused now; None while messages are taken."""
        return self.health.reason() if self._open else "the store is not open"

    def trouble(self) -> str | None:
        """What keeps messages out: also a full disk that the next message may find with room."""
        return self.check_writable() or self._no_room

    def after_append(
        self, upto: int, arrived: Iterable[ConsumeQueue] = (), *, flush: bool = True
    ) -> None:
        """Who appended by `log` says so, once for a chunk: index and disk get to work.

        `arrived` are queues that got entries and are watched. Who asks the backend by himself
        (SYNC_FLUSH) gives `flush=False`.
        """
        self._no_room = None
        if flush and self.config.sync_flush:
            self.backend.request(upto)
        elif self._flush_timer.wants_wake:
            self._flush_timer.wake()
        if self.index is not None:
            self.index.wake()
        if self.on_arrival is not None:
            for queue in arrived:
                self.on_arrival(queue)

    def put(self, record: Record) -> PutResult:
        """One message; it is durable once wait_durable(result.end) says so."""
        queue = self.queues.get(record.topic, record.queue_id)
        return self._put(
            record, queue, lambda: self.log.append_record(record, queue, self._tags_code(record))
        )

    def put_batch(self, record: Record, batch: bytes) -> PutResult:
        """A batch body (storage.md 2.7); `record` gives what its members share."""
        queue = self.queues.get(record.topic, record.queue_id)
        return self._put(
            record, queue, lambda: self.log.append_records(record, batch, queue), len(batch)
        )

    def _put(
        self,
        record: Record,
        queue: ConsumeQueue,
        append: Callable[[], AppendResult],
        batch_size: int = 0,
    ) -> PutResult:
        read_only = self.check_writable()
        if read_only is not None:
            return PutResult(PutStatus.SERVICE_NOT_AVAILABLE, why=read_only)
        if max(len(record.body), batch_size) > self.config.max_message_size:
            return PutResult(PutStatus.MESSAGE_ILLEGAL)
        try:
            if len(encode_properties(record.properties)) > _PROPERTIES_MAX:
                return PutResult(PutStatus.PROPERTIES_SIZE_EXCEEDED)
            done = append()
        except (MessageIllegalError, RecordError) as error:
            log.warning("a message to %s was refused: %s", record.topic, error)
            return PutResult(PutStatus.MESSAGE_ILLEGAL)
        except BackendError as error:
            if self._no_room is None:
                log.error("no room for a message: %s", error)
            self._no_room = str(error)
            return PutResult(PutStatus.CREATE_MAPEDFILE_FAILED, why=self._no_room)
        self.after_append(done.end)
        if self.on_arrival is not None and (queue.watched or record.topic in PARKED):
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
        """A parked message's entry says when to look at it (computeDeliverTimestamp)."""
        if record.topic == TIMER_TOPIC:
            wake = int(record.properties.get(TIMER_OUT_MS, "0"))
            return min(wake, self.clock.now() + self.config.timer_roll_ms)
        level = record.properties.get(DELAY, "")
        if record.topic != SCHEDULE_TOPIC or not level.isdecimal() or int(level) == 0:
            return None
        delays = self.config.delay_levels_ms
        return self.clock.now() + delays[min(int(level), len(delays)) - 1]

    @property
    def limits(self) -> Limits:
        """How much one get() returns."""
        return self._reader.limits

    def wait_durable(self, upto: int, timeout_s: float) -> bool:
        """Whether all below `upto` survives a power cut; False when late or the disk failed."""
        return self.backend.wait_durable(upto, timeout_s)

    # --- out

    def get(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_count: int,
        tag_codes: frozenset[int] | None = None,
        records: RecordFilter | None = None,
    ) -> GetResult:
        """Messages of a queue from `offset` on (RocketMQ: getMessage)."""
        queue = self.queues.get(topic, queue_id)
        return self._reader.get(queue, offset, max_count, tag_codes, records)

    def read(self, physical_offset: int) -> memoryview | None:
        """The whole record that begins there; None where no valid one does."""
        return self.log.read(physical_offset)

    def query(
        self, topic: str, key: str, max_count: int, begin_ms: int, end_ms: int
    ) -> QueryResult:
        """Records with this key, stored in [begin, end] (RocketMQ: queryMessage)."""
        if self.index is None:
            return QueryResult()
        return self.index.query(topic, key, max_count, begin_ms, end_ms)

    def min_offset(self, topic: str, queue_id: int) -> int:
        """First offset that can be read; -1 where there is no such queue."""
        queue = self.queues.find(topic, queue_id)
        return -1 if queue is None else queue.min

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Offset of the next message; 0 where there is no such queue."""
        queue = self.queues.find(topic, queue_id)
        return 0 if queue is None else queue.max

    def offset_at(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """The offset stored at a time (RocketMQ: getOffsetInQueueByTime)."""
        queue = self.queues.find(topic, queue_id)
        return 0 if queue is None else queue.offset_at_time(timestamp_ms, self._store_time_of)

    def store_time(self, topic: str, queue_id: int, offset: int) -> int:
        """Store time in ms of one message, -1 where it is not there."""
        queue = self.queues.find(topic, queue_id)
        if queue is None or not queue.min <= offset < queue.max:
            return -1
        physical_offset, size, _ = queue[offset]
        return self._store_time_of(physical_offset, size)

    def earliest_store_time(self, topic: str, queue_id: int) -> int:
        """Store time of a queue's first message, -1 without one."""
        return self.store_time(topic, queue_id, self.min_offset(topic, queue_id))

    def earliest_message_time(self) -> int:
        """Store time of the log's first record, -1 without one."""
        return self._store_time_of(self.log.min_offset, 0)

    def _store_time_of(self, physical_offset: int, _size: int) -> int:
        record = self.log.read(physical_offset)
        return -1 if record is None else decode_record(record, verify_crc=False).store_timestamp

    # --- topics, cleaning, figures

    def delete_topic(self, topic: str) -> int:
        """Remove a topic's queues; its records go with their segments. How many queues it had."""
        with self._housekeeping.maintenance:
            self._checkpointer.note_newest()
            removed = self.queues.delete_topic(topic)
            self._housekeeping.checkpoint()
        return removed

    def clean_unused_topics(self, keep: set[str]) -> int:
        """Remove the queues of topics not in `keep` (cleanUnusedTopic); how many topics."""
        unused = [topic for topic in self.queues.topics() if topic not in keep | SYSTEM_TOPICS]
        for topic in unused:
            self.delete_topic(topic)
        return len(unused)

    def clean_expired(self) -> None:
        """Delete expired segments soon, whatever the hour."""
        self._housekeeping.clean_soon()

    def stats(self) -> StoreStats:
        """What the store holds now."""
        return StoreStats(
            log_begin=self.log.min_offset,
            log_end=self.log.max_offset,
            durable=self.backend.durable_offset,
            queues=len(self.queues),
            topics=len(self.queues.topics()),
            commit_log_disk_use=self._disk_use(self.config.commit_log_dir),
            consume_queue_disk_use=self._disk_use(self.config.root_dir),
        )
