"""The message store: it appends messages to one folder on disk and reads them."""

import logging
from collections.abc import Callable, Collection, Container, Iterable
from types import TracebackType
from typing import Self

from congreve.base.clock import Clock
from congreve.engine.backends import make_backend
from congreve.engine.config import StoreConfig
from congreve.engine.errors import MessageIllegalError, StoreError
from congreve.engine.health import Health
from congreve.engine.housekeeping import Housekeeping
from congreve.engine.index.index import KeyIndex
from congreve.engine.log.append_result import AppendResult
from congreve.engine.log.cold_reads import ColdReads
from congreve.engine.log.commit_log import CommitLog
from congreve.engine.log.flush_policy import FlushTimer
from congreve.engine.queue.consume_queue import ConsumeQueue
from congreve.engine.queue.file_maker import QueueFileMaker
from congreve.engine.queue.queue_table import QueueTable
from congreve.engine.readable_store import ReadableStore
from congreve.engine.recovery.recovery import Recovery, RecoveryReport
from congreve.engine.recovery.repair import LateChecks, QueueRepair
from congreve.engine.recovery.repair_thread import RepairThread
from congreve.engine.results import PutResult, PutStatus, StoreStats
from congreve.engine.state.checkpoint import Checkpointer
from congreve.engine.state.durable_mark import INTERVAL_S, DurableMarkFile, DurableMarks
from congreve.engine.state.identity import IdentityFile
from congreve.engine.state.part_owners import PartOwners
from congreve.engine.state.store_folder import StoreFolder
from congreve.engine.table_retention import TableRetention
from congreve.io_backends.backend import Backend
from congreve.io_backends.disk import used_share
from congreve.io_backends.errors import BackendError
from congreve.io_backends.files.file_system import DISK, FileSystem
from congreve.records.errors import RecordError
from congreve.records.layout import PROPERTIES_MAX
from congreve.records.message.message import Record
from congreve.records.message.property_codec import encode_properties
from congreve.records.message.topics import (
    LIGHT_PREFIX,
    NEVER_UNUSED,
    PARKED,
)
from congreve.records.record import offset_message_id

__all__ = ["Backend", "MessageStore", "PutResult", "PutStatus", "StoreStats"]

logger = logging.getLogger(__name__)


class MessageStore(ReadableStore):
    """One store folder (RocketMQ: DefaultMessageStore).

    One thread makes all appends (put, put_batch, delete_topic, direct use of `log`); any thread may
    call everything else. put() calls `on_arrival` with a watched queue that got an entry, and for
    every parked message; code that appends to `log` directly checks `queue.watched` itself.
    """

    found_clean = False
    """Whether the last user of the folder closed it cleanly, from start() on."""
    left_clean = False
    """Whether close() has made everything durable."""
    _open = False

    def __init__(
        self,
        config: StoreConfig,
        *,
        clock: Clock | None = None,
        backend: Backend | None = None,
        files: FileSystem = DISK,
        on_arrival: Callable[[ConsumeQueue], None] | None = None,
        disk_use: Callable[[str], float] = used_share,
        exported_topics: Collection[str] | None = None,
        mark_interval_s: float = INTERVAL_S,
    ) -> None:
        """Read and write nothing on disk before start().

        `disk_use(folder)` returns the used share of the folder's partition, 0 to 1. Messages of
        `exported_topics` stay until `exported.json` says that tables have them. A durable mark is
        written about every `mark_interval_s`.
        """
        self.config = config
        self.clock = Clock() if clock is None else clock
        self.files = files
        """The file layer of all files but the log's segments, which `backend` has."""
        self.backend = make_backend(config, files) if backend is None else backend
        self.on_arrival = on_arrival
        queues = _queue_table(config, files)
        segment_size = config.mapped_file_size_commit_log
        log = CommitLog(config.commit_log_dir, segment_size, self.backend, self.clock, files)
        self.health = Health(self.backend)
        index = KeyIndex(config, log, self.health, files) if config.message_index_enable else None
        self.recovery: RecoveryReport | None = None
        self.identity = ""
        """The store's id, from start() on: 32 hexadecimal digits."""
        self.cold_reads = ColdReads(log)
        self._disk_use = disk_use
        self._folder = StoreFolder(config, files)
        self._parts = PartOwners(config, files)
        self._checkpointer = Checkpointer(
            config,
            self.backend,
            queues,
            log_begin=lambda: log.min_offset,
            store_time=self._store_time_of,
            written=self._parts.advance,
            files=files,
        )
        repair = QueueRepair(log, self._checkpointer.parking)
        super().__init__(config, log, queues, index, repair)
        self.repairs = RepairThread(repair)
        self._late_checks = LateChecks(repair, [])
        self._housekeeping = Housekeeping(
            config,
            commit_log=log,
            queues=queues,
            index=index,
            checkpointer=self._checkpointer,
            health=self.health,
            clock=self.clock,
            disk_use=disk_use,
            tables=TableRetention.of(exported_topics, queues, config.own_dir, files),
        )
        self.first_files = QueueFileMaker(queues, self._housekeeping.maintenance)
        self.flush_timer = FlushTimer(
            config,
            written=lambda: log.max_offset,
            durable=lambda: self.backend.durable_offset,
            request=self.backend.request,
        )
        mark = DurableMarkFile(config.own_dir, files)
        self._marks = DurableMarks(mark, log, self.backend, self.health, interval_s=mark_interval_s)
        self._no_space: tuple[str, int] | None = None  # why a message found no space, at which end

    # --- life

    def start(self, cut_at: int | None = None) -> None:
        """Lock, load, recover, then serve; with `cut_at`, without the log behind that offset.

        Raises StoreLockedError, without a change, if another broker uses the folder (D11),
        StoreError if there are queues but no log (its folder is not mounted, or was moved), and
        StoreError or BackendError if a file or the disk fails.
        """
        self._folder.acquire()
        try:
            self._load(cut_at)
            self._folder.mark_running()
        except (StoreError, BackendError):
            self._retreat()
            raise
        except OSError as error:
            self._retreat()
            raise StoreError(f"cannot open {self.config.root_dir}: {error}") from error
        self.flush_timer.start()
        self._housekeeping.start()
        self._late_checks.start()
        self._marks.start()
        self._open = True
        logger.info("store %s is open: %s", self.config.root_dir, self.recovery)

    def _load(self, cut_at: int | None) -> None:
        self.found_clean, self.left_clean = self._folder.clean, False
        clean = self.found_clean and cut_at is None
        self._folder.acquire_log(self.queues)
        identity = IdentityFile(self.config.own_dir, files=self.files)
        self._parts.check(identity.load())
        self.identity = identity.load_or_make()
        self._parts.claim(self.identity)
        self.log.load()
        known = self._checkpointer.load()
        if known is None:
            self.queues.load()
        else:
            self.queues.load(known.end_of)
        mark = self._marks.file.load()
        if mark is not None and cut_at is not None and cut_at < mark.end:
            self._marks.file.clear()  # before the log loses what the mark names
        recovery = Recovery(
            self.config,
            self.log,
            self.queues,
            times=self._checkpointer.times,
            known=known,
            mark=mark,
            clean=clean,
            repair=self.repair,
        )
        self.recovery = recovery.run(cut_at)
        if self.queues.light_topics:
            logger.warning(
                "ignoring %d light message queues (%s): this broker does not serve them",
                *(self.queues.light_topics, LIGHT_PREFIX),
            )
        self._late_checks = LateChecks(self.repair, recovery.unchecked)
        last = self.log.read(self.recovery.last_record)
        if last is not None:
            self._checkpointer.resume(self.recovery.last_record, len(last))
        elif cut_at is not None:
            self._checkpointer.resume(-1, 0)
        is_marked = recovery.marked <= self.recovery.end
        self._marks.resume(recovery.marked if is_marked else 0, self.recovery.last_record)
        self.backend.start(self.recovery.durable)
        if not self.log.segments:
            self.log.next_segment()  # a full disk fails the start, not the first message
        if self.index is not None:
            self.index.start(clean=clean)
        self._housekeeping.watch_disk()
        if known is None or self.recovery.records or cut_at is not None:
            self._housekeeping.checkpoint()

    def _retreat(self) -> None:
        """Undo a failed start: stop the threads, release the lock, remove new files."""
        if self.index is not None:
            self.index.stop()
        try:
            self.log.close()
        except BackendError as error:
            logger.warning("%s: the next start removes it", error)
        self.backend.stop()
        self._folder.undo()

    def close(self) -> None:
        """Make everything durable, write the checkpoints, release the lock; idempotent.

        If the store has failed, the marker of an unclean stop stays (RocketMQ: abort).
        """
        if not self._open:
            return
        self._open = False
        self._late_checks.stop()
        self.repairs.stop()
        self.first_files.stop()
        self._housekeeping.stop()
        self._marks.stop()
        self.flush_timer.stop()
        self.cold_reads.stop()
        if self.index is not None:
            self.index.stop()
        healthy = False
        try:
            healthy = self._housekeeping.checkpoint()
            self._marks.round()
            self.queues.close()
            self.log.close()
        except (StoreError, BackendError, OSError, MemoryError) as error:
            logger.error("the store did not stop cleanly: %s", error)
            healthy = False
        self.backend.stop()
        self.left_clean = healthy and not self.health.failed
        if self.left_clean:
            self._folder.mark_stopped()
        self._folder.release()

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

    # --- topics, cleaning, figures

    def delete_topic(self, topic: str) -> int:
        """Remove a topic's queues; returns their number. Records expire with their segments."""
        removed = self.remove_topic(topic)
        self.checkpoint()
        return removed

    def remove_topic(self, topic: str) -> int:
        """delete_topic() without the checkpoint, which the caller writes afterwards."""
        return self._housekeeping.remove_topic(topic)

    def try_remove_topic(self, topic: str) -> bool:
        """remove_topic(), but return False at once while wait_for_files() would wait."""
        return self._housekeeping.try_remove_topic(topic)

    def wait_for_files(self) -> None:
        """Wait until no thread flushes or removes files; for any thread."""
        with self._housekeeping.maintenance:
            pass

    def drop_queues_before(self, topic: str, log_end: int) -> int:
        """Empty a topic's queues with records only before `log_end`; returns their number.

        The caller writes a checkpoint afterwards.
        """
        return self._housekeeping.drop_queues_before(topic, log_end)

    def try_drop_queues_before(self, topic: str, log_end: int) -> bool:
        """drop_queues_before(), but return False at once while wait_for_files() would wait."""
        return self._housekeeping.try_drop_queues_before(topic, log_end)

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


def _queue_table(config: StoreConfig, files: FileSystem) -> QueueTable:
    return QueueTable(
        config.consume_queue_dir,
        config.mapped_file_size_consume_queue,
        writable_limit=config.max_mapped_queues,
        removed_folder=config.removed_queues_dir,
        files=files,
    )
