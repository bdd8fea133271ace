"""The message store: it appends messages to one folder on disk and reads them."""

import logging
from collections.abc import Callable, Collection
from types import TracebackType
from typing import Self

from congreve.base.clock import Clock
from congreve.engine.backends import make_backend
from congreve.engine.config import StoreConfig
from congreve.engine.errors import StoreError
from congreve.engine.health import Health
from congreve.engine.housekeeping import Housekeeping
from congreve.engine.index.index import KeyIndex
from congreve.engine.log.cold_reads import ColdReads
from congreve.engine.log.commit_log import CommitLog
from congreve.engine.queue.consume_queue import ConsumeQueue
from congreve.engine.queue.file_maker import QueueFileMaker
from congreve.engine.queue.queue_table import QueueTable
from congreve.engine.recovery.deletions import DeletedTopics
from congreve.engine.recovery.recovery import Recovery, RecoveryReport
from congreve.engine.recovery.repair import LateChecks, QueueRepair
from congreve.engine.scrub.scrub import LogScrub
from congreve.engine.state.checkpoint import Checkpointer
from congreve.engine.state.durable_mark import INTERVAL_S, DurableMarkFile, DurableMarks
from congreve.engine.state.store_folder import StoreFolder
from congreve.engine.table_retention import TableRetention
from congreve.engine.writable_store import WritableStore
from congreve.io_backends.backend import Backend
from congreve.io_backends.disk import space_of, used_share
from congreve.io_backends.errors import BackendError
from congreve.io_backends.files.file_system import DISK, FileSystem

__all__ = ["Backend", "MessageStore"]

logger = logging.getLogger(__name__)


class MessageStore(WritableStore):
    """One store folder (RocketMQ: DefaultMessageStore).

    One thread makes all appends (put, put_batch, delete_topic, direct use of `log`); any thread may
    call everything else. put() calls `on_arrival` with a watched queue that got an entry, and for
    every parked message; code that appends to `log` directly checks `queue.watched` itself.
    """

    found_clean = False
    """Whether the last user of the folder closed it cleanly, from start() on."""
    changes: Collection[str] = ()
    """What is not as the last clean stop left it, from start() on: sentences."""
    left_clean = False
    """Whether close() has made everything durable."""

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
        threads: bool = True,
    ) -> None:
        """Read and write nothing on disk before start().

        `disk_use(folder)` returns the used share of the folder's partition, 0 to 1. Messages of
        `exported_topics` stay until `exported.json` says that tables have them. A durable mark is
        written about every `mark_interval_s`. Without `threads` nothing runs beside the caller, as
        simulations need it: no flush of ASYNC_FLUSH, housekeeping, mark or scrub before close().
        """
        clock = Clock() if clock is None else clock
        self._threads = threads
        backend = make_backend(config, files) if backend is None else backend
        self.files = files
        """The file layer of all files but the log's segments, which `backend` has."""
        queues = _queue_table(config, files)
        segment_size = config.mapped_file_size_commit_log
        log = CommitLog(config.commit_log_dir, segment_size, backend, clock, files)
        health = Health(backend)
        index = KeyIndex(config, log, health, files) if config.message_index_enable else None
        self.recovery: RecoveryReport | None = None
        self.identity = ""
        """The store's id, from start() on: 32 hexadecimal digits."""
        self.cold_reads = ColdReads(log)
        self._folder = StoreFolder(config, files)
        self._checkpointer = Checkpointer(
            config,
            backend,
            queues,
            log_begin=lambda: log.min_offset,
            store_time=self._store_time_of,
            written=self._folder.parts.advance,
            files=files,
        )
        repair = QueueRepair(log, self._checkpointer.parking)
        super().__init__(
            *(config, log, queues, index, repair),
            backend=backend,
            health=health,
            clock=clock,
            on_arrival=on_arrival,
            disk_use=disk_use,
        )
        self.scrub = LogScrub(config, log, queues, repair, files)
        self._late_checks = LateChecks(repair, [])
        self._housekeeping = Housekeeping(
            config,
            commit_log=log,
            queues=queues,
            index=index,
            checkpointer=self._checkpointer,
            health=health,
            clock=clock,
            disk_use=disk_use,
            tables=TableRetention.of(exported_topics, queues, config.own_dir, files),
        )
        self.first_files = QueueFileMaker(queues, self._housekeeping.maintenance)
        mark = DurableMarkFile(config.own_dir, files)
        self._marks = DurableMarks(mark, log, backend, health, interval_s=mark_interval_s)

    # --- life

    def start(self, cut_at: int | None = None, *, follows: bool = False) -> None:
        """Lock, load, recover, then serve; with `cut_at`, without the log behind that offset.

        Offsets of messages that the log lost at its end are never given again, unless the store
        `follows` a master, which sends the messages again.

        Raises StoreLockedError, without a change, if another broker uses the folder (D11),
        StoreError if there are queues but no log (its folder is not mounted, or was moved), and
        StoreError or BackendError if a file or the disk fails.
        """
        self._folder.acquire()
        try:
            self._load(cut_at, follows)
            self._folder.mark_running()
        except (StoreError, BackendError):
            self._retreat()
            raise
        except OSError as error:
            self._retreat()
            raise StoreError(f"cannot open {self.config.root_dir}: {error}") from error
        if self.recovery is not None:
            self.scrub.begin_with(self.recovery)
        if self._threads:
            self.flush_timer.start()
            self._housekeeping.start()
            self._late_checks.start()
            self._marks.start()
            self.scrub.start()
        self._open = True
        logger.info("store %s is open: %s", self.config.root_dir, self.recovery)

    def _load(self, cut_at: int | None, follows: bool) -> None:
        self.found_clean, self.left_clean = self._folder.clean, False
        clean = self.found_clean and cut_at is None
        self._folder.acquire_log(self.queues)
        self.identity = self._folder.identify()
        self._folder.sizes.check(self.config)
        self.log.load()
        self._folder.sizes.keep(self.config)
        known = self._checkpointer.load()
        if known is None:
            self.queues.load()
        else:
            self.queues.load(known.end_of)
        mark = self._marks.file.load()
        if mark is not None and cut_at is not None and cut_at < mark.end:
            self._marks.file.clear()  # before the log loses what the mark names
        deleted = DeletedTopics(self.config, self.files, clean=clean)
        recovery = Recovery(
            self.config,
            self.log,
            self.queues,
            times=self._checkpointer.times,
            known=known,
            mark=mark,
            clean=clean,
            repair=self.repair,
            deleted=deleted,
            follows=follows,
        )
        self.recovery = recovery.run(cut_at)
        self.changes = self._changes(self.recovery.end) if cut_at is None else []
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
        # After a kill what another broker has deleted looks like lost queues.
        if known is None or self.recovery.records or cut_at is not None or deleted.is_newer:
            self._housekeeping.checkpoint()

    def _changes(self, log_end: int) -> list[str]:
        try:
            found = self._folder.changes(log_end)
        except StoreError as error:
            logger.warning("%s", error)  # the file's own reader handles that
            return []
        for change in found:
            logger.warning("%s", change)
        return found

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
        self.scrub.stop()
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
        log_end = self.log.max_offset
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
            self._folder.mark_stopped(log_end)
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

    def clean_expired(self) -> None:
        """Delete expired segments soon, at any hour."""
        self._housekeeping.clean_soon()

    def disk_space(self) -> tuple[int, int]:
        """Bytes of the store's disk, used and free ones, and the free ones. Raises OSError."""
        return space_of(self.config.root_dir)


def _queue_table(config: StoreConfig, files: FileSystem) -> QueueTable:
    return QueueTable(
        config.consume_queue_dir,
        config.mapped_file_size_consume_queue,
        writable_limit=config.max_mapped_queues,
        removed_folder=config.removed_queues_dir,
        files=files,
    )
