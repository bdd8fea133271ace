"""The message store: it appends messages to one folder on disk and reads them."""

import logging
import os
from collections.abc import Callable, Container, Generator, Iterable
from contextlib import suppress
from types import TracebackType
from typing import Self

from congreve.engine.backends import make_backend
from congreve.engine.clock import Clock
from congreve.engine.config import StoreConfig
from congreve.engine.errors import DamagedEntryError, MessageIllegalError, StoreError
from congreve.engine.format import FILLER_SIZE
from congreve.engine.health import Health
from congreve.engine.housekeeping import Housekeeping
from congreve.engine.index.index import KeyIndex
from congreve.engine.log.cold_reads import ColdReads
from congreve.engine.log.commit_log import AppendResult, CommitLog
from congreve.engine.log.flush_policy import FlushTimer
from congreve.engine.log.segment_files import has_segments
from congreve.engine.queue.consume_queue import ConsumeQueue
from congreve.engine.queue.gather import Limits
from congreve.engine.queue.queue_table import QueueTable
from congreve.engine.queue.reader import GetResult, Reader
from congreve.engine.queue.repair import LateChecks, QueueRepair
from congreve.engine.queue.repair_thread import RepairThread
from congreve.engine.recovery.recovery import Recovery, RecoveryReport
from congreve.engine.results import PutResult, PutStatus, QueryResult, StoreStats
from congreve.engine.state.checkpoint import Checkpointer
from congreve.engine.state.lock import FolderLock, StoreLock
from congreve.io_backends.backend import Backend
from congreve.io_backends.disk import used_share
from congreve.io_backends.errors import BackendError
from congreve.io_backends.files.file_system import DISK, FileSystem
from congreve.records.errors import RecordError
from congreve.records.filter.record_filter import RecordFilter
from congreve.records.layout import PROPERTIES_MAX
from congreve.records.message.message import Record
from congreve.records.message.property_codec import encode_properties
from congreve.records.message.topics import (
    LIGHT_PREFIX,
    NEVER_UNUSED,
    PARKED,
)
from congreve.records.record import decode_record, offset_message_id

__all__ = ["Backend", "MessageStore", "PutResult", "PutStatus", "StoreStats"]

logger = logging.getLogger(__name__)


class MessageStore:
    """One store folder (RocketMQ: DefaultMessageStore).

    One thread makes all appends (put, put_batch, delete_topic, direct use of `log`); any thread may
    call everything else. put() calls `on_arrival` with a watched queue that got an entry, and for
    every parked message; code that appends to `log` directly checks `queue.watched` itself.
    """

    def __init__(
        self,
        config: StoreConfig,
        *,
        clock: Clock | None = None,
        backend: Backend | None = None,
        files: FileSystem = DISK,
        on_arrival: Callable[[ConsumeQueue], None] | None = None,
        disk_use: Callable[[str], float] = used_share,
    ) -> None:
        """Read and write nothing on disk before start().

        `disk_use(folder)` returns the used share of the folder's partition, 0 to 1.
        """
        self.config = config
        self.clock = Clock() if clock is None else clock
        self.files = files
        """The file layer of all files but the log's segments, which `backend` has."""
        self.backend = make_backend(config, files) if backend is None else backend
        self.on_arrival = on_arrival
        self.queues = QueueTable(
            config.consume_queue_dir,
            config.mapped_file_size_consume_queue,
            writable_limit=config.max_mapped_queues,
            removed_folder=config.removed_queues_dir,
            files=files,
        )
        self.log = CommitLog(
            config.commit_log_dir,
            config.mapped_file_size_commit_log,
            self.backend,
            self.clock,
            files,
        )
        self.health = Health(self.backend)
        self.index = (
            KeyIndex(config, self.log, self.health, files) if config.message_index_enable else None
        )
        self.recovery: RecoveryReport | None = None
        self.cold_reads = ColdReads(self.log)
        self._disk_use = disk_use
        self._lock = StoreLock(config.lock_path, files)
        self._log_lock = FolderLock(config.commit_log_dir, files)
        self._checkpointer = Checkpointer(
            config,
            self.backend,
            self.queues,
            log_begin=lambda: self.log.min_offset,
            store_time=self._store_time_of,
            files=files,
        )
        self.repair = QueueRepair(self.log, self._checkpointer.parking)
        self.repairs = RepairThread(self.repair)
        self._late_checks = LateChecks(self.repair, [])
        self._reader = Reader(config, self.log, self.repair.repair)
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
        self.flush_timer = FlushTimer(
            config,
            written=lambda: self.log.max_offset,
            durable=lambda: self.backend.durable_offset,
            request=self.backend.request,
        )
        self._open = False
        self._no_room: tuple[str, int] | None = None  # why a message found no space, at which end

    # --- life

    def start(self) -> None:
        """Lock, load, recover, then serve.

        Raises StoreLockedError, without a change, if another broker uses the folder (D11),
        StoreError if there are queues but no log (its folder is not mounted, or was moved), and
        StoreError or BackendError if a file or the disk fails.
        """
        self._lock.acquire()
        try:
            self._load()
            self._mark_running()
        except (StoreError, BackendError):
            self._retreat()
            raise
        except OSError as error:
            self._retreat()
            raise StoreError(f"cannot open {self.config.root_dir}: {error}") from error
        self.flush_timer.start()
        self._housekeeping.start()
        self._late_checks.start()
        self._open = True
        logger.info("store %s is open: %s", self.config.root_dir, self.recovery)

    def _load(self) -> None:
        clean = not self.files.exists(self.config.abort_path)
        self._demand_log()
        self._log_lock.acquire()
        self.log.load()
        known = self._checkpointer.load()
        if known is None:
            self.queues.load()
        else:
            self.queues.load(known.end_of)
        recovery = Recovery(
            self.config,
            self.log,
            self.queues,
            times=self._checkpointer.times,
            known=known,
            clean=clean,
            repair=self.repair,
        )
        self.recovery = recovery.run()
        if self.queues.light_topics:
            logger.warning(
                "ignoring %d light message queues (%s): this broker does not serve them",
                *(self.queues.light_topics, LIGHT_PREFIX),
            )
        self._late_checks = LateChecks(self.repair, recovery.unchecked)
        last = self.log.read(self.recovery.last_record)
        if last is not None:
            self._checkpointer.resume(self.recovery.last_record, len(last))
        self.backend.start(self.recovery.durable)
        if not self.log.segments:
            self.log.next_segment()  # a full disk fails the start, not the first message
        if self.index is not None:
            self.index.start(clean=clean)
        self._housekeeping.watch_disk()
        if known is None or self.recovery.records:
            self._housekeeping.checkpoint()

    def _demand_log(self) -> None:
        folder, queues = self.config.commit_log_dir, self.queues.folder
        try:
            without_log = not has_segments(self.files, folder) and self.queues.has_files()
        except OSError as error:
            raise StoreError(f"cannot list {error.filename}: {error.strerror}") from error
        if without_log:
            raise StoreError(
                f"{folder} holds no log, but {queues} holds its queues: restore the log's "
                f"folder, or remove {queues} to start with an empty store"
            )

    def _mark_running(self) -> None:
        try:
            self.files.open(self.config.abort_path, os.O_WRONLY | os.O_CREAT).close()
            self.files.sync_folder(self.config.root_dir)
        except OSError as error:
            raise StoreError(f"cannot write {self.config.abort_path}: {error.strerror}") from error

    def _retreat(self) -> None:
        """Undo a failed start: stop the threads, release the lock, remove new files."""
        if self.index is not None:
            self.index.stop()
        try:
            self.log.close()
        except BackendError as error:
            logger.warning("%s: the next start removes it", error)
        self.backend.stop()
        self._log_lock.release()
        if not self._lock.is_new:
            self._lock.release()
            return
        for folder in (self.config.commit_log_dir, self.config.own_dir):
            with suppress(OSError):
                self.files.remove_folder(folder)
        self._lock.remove()

    def close(self) -> None:
        """Make everything durable, write the checkpoints, release the lock; idempotent.

        If the store has failed, the marker of an unclean stop stays (RocketMQ: abort).
        """
        if not self._open:
            return
        self._open = False
        self._late_checks.stop()
        self.repairs.stop()
        self._housekeeping.stop()
        self.flush_timer.stop()
        self.cold_reads.stop()
        if self.index is not None:
            self.index.stop()
        healthy = False
        try:
            healthy = self._housekeeping.checkpoint()
            self.queues.close()
            self.log.close()
        except (StoreError, BackendError, OSError, MemoryError) as error:
            logger.error("the store did not stop cleanly: %s", error)
            healthy = False
        self.backend.stop()
        if healthy and not self.health.failed:
            try:
                self.files.remove(self.config.abort_path)
            except OSError as error:
                logger.warning("the next start recovers the log: %s", error)
        self._log_lock.release()
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

    # --- puts

    @property
    def writable(self) -> bool:
        """Whether the store accepts messages now."""
        return self.check_writable() is None

    def check_writable(self) -> str | None:
        """Why the store would refuse a message now; None while it accepts messages."""
        return self.health.reason() if self._open else "the store is not open"

    def trouble(self) -> str | None:
        """Why the store refuses messages or refused the last one; None while it accepts them."""
        why, log_end = self._no_room or (None, -1)
        return self.check_writable() or (why if log_end == self.log.max_offset else None)

    def after_append(
        self, upto: int, arrived: Iterable[ConsumeQueue] = (), *, flush: bool = True
    ) -> None:
        """Wake the index and the flush after direct appends to `log`; call it once for a chunk.

        `upto` is the physical offset behind the last record, `arrived` the watched queues that got
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

    def put(self, record: Record) -> PutResult:
        """Append one message; it is durable once wait_durable(result.end) returns True."""
        queue = self.queues.get(record.topic, record.queue_id)
        return self._put(
            record, queue, lambda: self.log.append_record(record, queue, self._tags_code(record))
        )

    def put_batch(self, record: Record, batch: bytes) -> PutResult:
        """Append a batch body (docs/formats/record.md); `record` has the members' common fields."""
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
            if len(encode_properties(record.properties)) > PROPERTIES_MAX:
                return PutResult(PutStatus.PROPERTIES_SIZE_EXCEEDED)
            done = append()
        except (MessageIllegalError, RecordError) as error:
            logger.warning("a message to %s was refused: %s", record.topic, error)
            return PutResult(PutStatus.MESSAGE_ILLEGAL)
        except (BackendError, MemoryError) as error:
            if self._no_room is None or self._no_room[1] != self.log.max_offset:
                logger.error("no space for a message: %s", error)
            self._no_room = str(error) or "out of memory", self.log.max_offset
            return PutResult(PutStatus.CREATE_MAPEDFILE_FAILED, why=self._no_room[0])
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
        """The due time of a parked message in ms (computeDeliverTimestamp); None for others."""
        if record.topic not in PARKED:
            return None
        return self.config.parking.entry_time(record.topic, record.properties, self.clock.now())

    @property
    def limits(self) -> Limits:
        """The limits of one get()."""
        return self._reader.limits

    def wait_durable(self, upto: int, timeout_s: float) -> bool:
        """Wait until `upto` is durable; False after a timeout or failure."""
        return self.backend.wait_durable(upto, timeout_s)

    # --- reads

    def get(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_count: int,
        tag_codes: frozenset[int] | None = None,
        records: RecordFilter | None = None,
        *,
        repair: bool = True,
    ) -> GetResult:
        """Messages of a queue from `offset` on (RocketMQ: getMessage).

        It repairs a damaged entry, which may take a second; without `repair` it returns the status
        DAMAGED, and the caller passes the entry at `next_offset` to `repairs`.
        """
        queue = self.queues.get(topic, queue_id)
        return self._reader.get(queue, offset, max_count, tag_codes, records, repair)

    def read(self, physical_offset: int) -> memoryview | None:
        """The record that begins at this offset; None if there is no valid one."""
        return self.log.read(physical_offset)

    def record_at(self, physical_offset: int, *, repair: bool = True) -> memoryview | None:
        """read(), but only for a record that its consume queue leads to.

        For offsets from a client: a message's body may hold bytes that look like a record.
        A damaged entry is treated as in place_of().
        """
        found = self.log.read(physical_offset)
        if found is None:
            return None
        record = decode_record(found, verify_crc=False)
        queue = self.queues.find(record.topic, record.queue_id)
        if queue is None:
            return None
        place = self.place_of(queue, record.queue_offset, repair=repair)
        return found if place == physical_offset else None

    def place_of(self, queue: ConsumeQueue, offset: int, *, repair: bool = True) -> int | None:
        """The physical offset of the record of a queue's entry; None without one.

        It repairs a damaged entry, which may take a second; without `repair` it raises
        DamagedEntryError, and the caller passes that entry to `repairs`.
        """
        if not queue.min <= offset < queue.max:
            return None
        if queue[offset][1] == FILLER_SIZE:
            return None  # a repair has found no record for it
        if not self.repair.leads(queue, offset):
            if not repair:
                raise DamagedEntryError(queue, offset)
            self.repair.repair(queue, offset, offset + 1)
        place, size, _ = queue[offset]
        return None if size == FILLER_SIZE else place

    def query(
        self, topic: str, key: str, max_count: int, begin_ms: int, end_ms: int
    ) -> QueryResult:
        """Records with this key, stored in [begin, end] (RocketMQ: queryMessage)."""
        if self.index is None:
            return QueryResult()
        return self.index.query(topic, key, max_count, begin_ms, end_ms)

    def query_steps(
        self, topic: str, key: str, max_count: int, begin_ms: int, end_ms: int
    ) -> Generator[None, None, QueryResult]:
        """query() as a generator: its caller may do other work between two steps."""
        if self.index is None:
            return QueryResult()
        found: QueryResult = yield from self.index.query_steps(
            topic, key, max_count, begin_ms, end_ms
        )
        return found

    def min_offset(self, topic: str, queue_id: int) -> int:
        """First readable offset; -1 if the queue does not exist (getMinOffsetInQueue)."""
        queue = self.queues.find(topic, queue_id)
        return -1 if queue is None else queue.min

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Offset of the next message; 0 if the queue does not exist (getMaxOffsetInQueue)."""
        queue = self.queues.find(topic, queue_id)
        return 0 if queue is None else queue.max

    def offset_at(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """The offset stored at a time (RocketMQ: getOffsetInQueueByTime)."""
        queue = self.queues.find(topic, queue_id)
        return 0 if queue is None else queue.offset_at_time(timestamp_ms, self._store_time_of)

    def store_time(self, topic: str, queue_id: int, offset: int) -> int:
        """Store time of one message in ms; -1 without one."""
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
        """Remove a topic's queues; returns their number. Records expire with their segments."""
        removed = self.remove_topic(topic)
        self.checkpoint()
        return removed

    def remove_topic(self, topic: str) -> int:
        """delete_topic() without the checkpoint, which the caller writes afterwards."""
        with self._housekeeping.maintenance:
            return self._remove_topic(topic)

    def try_remove_topic(self, topic: str) -> bool:
        """remove_topic(), but return False at once while wait_for_files() would wait."""
        if not self._housekeeping.maintenance.acquire(blocking=False):
            return False
        try:
            self._remove_topic(topic)
        finally:
            self._housekeeping.maintenance.release()
        return True

    def wait_for_files(self) -> None:
        """Wait until no thread flushes or removes files; for any thread."""
        with self._housekeeping.maintenance:
            pass

    def _remove_topic(self, topic: str) -> int:
        self._checkpointer.note_newest(self.queues.of_topic(topic))
        removed = self.queues.remove_topic(topic)
        self._housekeeping.unlink_soon()
        return removed

    def drop_queues_before(self, topic: str, log_end: int) -> int:
        """Empty a topic's queues with records only before `log_end`; returns their number.

        The caller writes a checkpoint afterwards.
        """
        with self._housekeeping.maintenance:
            queues = [
                queue
                for queue in self.queues.queues_of(topic)
                if 0 < queue.max_physical_offset <= log_end
            ]
            self._checkpointer.note_newest(queues)
            for queue in queues:
                queue.destroy()
        return len(queues)

    def checkpoint(self) -> None:
        """Flush and write the checkpoint; for any thread. Raises BackendError, StoreError."""
        self._housekeeping.checkpoint()

    def unused_topics(self, used: Container[str]) -> list[str]:
        """Topics with queues that are not in `used` (cleanUnusedTopic)."""
        topics = self.queues.topics()
        return [topic for topic in topics if topic not in used and topic not in NEVER_UNUSED]

    def clean_expired(self) -> None:
        """Delete expired segments soon, at any hour."""
        self._housekeeping.clean_soon()

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
