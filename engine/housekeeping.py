"""Background work of a store: checkpoints, deletion of expired files, checks of the disk space."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise

from congreve.base.clock import Clock
from congreve.engine.config import StoreConfig
from congreve.engine.errors import StoreError
from congreve.engine.health import Health
from congreve.engine.index.index import KeyIndex
from congreve.engine.log.commit_log import CommitLog
from congreve.engine.queue.queue_table import QueueTable
from congreve.engine.recovery.scan import LogScanner
from congreve.engine.retention import DISK_SPACE_WARNING_LEVEL_RATIO, Retention, SegmentAge
from congreve.engine.rounds import Rounds, StoreThread
from congreve.engine.state.checkpoint import Checkpointer
from congreve.engine.table_retention import TableRetention
from congreve.io_backends.backend import Segment
from congreve.io_backends.errors import BackendError

#: A start after a crash reads the log from the last checkpoint on. Flushing thousands of queues
#: more often would cost sends more than it saves starts.
CHECKPOINT_BYTES = 1 << 30

#: The name of this part of the store in Health.
PART = "housekeeping"

#: Most queues of removed topics to unlink in one round.
UNLINKED_A_ROUND = 1000

#: Bytes at the log's end that stay mapped, because they are read most.
KEPT_BYTES = 32 << 20

logger = logging.getLogger(__name__)


class Housekeeping(StoreThread):
    """The thread of periodic work (RocketMQ: FlushConsumeQueueService, CleanCommitLogService).

    It holds `maintenance` while it creates or removes files; other code that removes queues also
    takes that lock.
    """

    def __init__(
        self,
        config: StoreConfig,
        *,
        commit_log: CommitLog,
        queues: QueueTable,
        index: KeyIndex | None,
        checkpointer: Checkpointer,
        health: Health,
        clock: Clock,
        disk_use: Callable[[str], float],
        tables: TableRetention | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__("housekeeping")
        self._config = config
        self._log = commit_log
        self._queues = queues
        self._index = index
        self._checkpointer = checkpointer
        self._health = health
        self._clock = clock
        self._disk_use = disk_use
        self._tables = tables
        self._monotonic = monotonic
        self._retention = Retention(config)
        self._next_checkpoint = self._next_clean = 0.0
        self._unlinking: Iterator[None] | None = None
        self._begins: dict[int, int] = {}  # store times of the segments' first records
        self._has_removed = True  # files of removed topics, also from the last run
        self._follows = True  # queues and index point only into the log
        self.maintenance = threading.RLock()

    def start(self) -> None:
        """Start the thread. After stop() the caller writes the last checkpoint."""
        now = self._monotonic()
        self._next_checkpoint = now + self._config.flush_consume_queue_thorough_interval / 1000
        self._next_clean = now + self._config.clean_resource_interval / 1000
        self.watch_disk()
        self._woken.set()
        super().start()

    def clean_soon(self) -> None:
        """Delete expired segments now, at any hour (RocketMQ: executeDeleteFilesManually)."""
        self._retention.request_manually()
        self._next_clean = 0.0
        self._woken.set()

    def remove_topic(self, topic: str) -> int:
        """Remove a topic's queues; returns their number. A later round unlinks the files."""
        with self.maintenance:
            self._checkpointer.note_newest(self._queues.of_topic(topic))
            removed = self._queues.remove_topic(topic)
            self._unlink_soon()
        return removed

    def try_remove_topic(self, topic: str) -> bool:
        """remove_topic(), but return False at once while another thread has `maintenance`."""
        return self._try(lambda: self.remove_topic(topic))

    def drop_queues_before(self, topic: str, log_end: int) -> int:
        """Empty a topic's queues with records only before `log_end`; returns their number."""
        with self.maintenance:
            queues = [
                queue
                for queue in self._queues.queues_of(topic)
                if 0 < queue.max_physical_offset <= log_end
            ]
            self._checkpointer.note_newest(queues)
            for queue in queues:
                queue.destroy()
        return len(queues)

    def try_drop_queues_before(self, topic: str, log_end: int) -> bool:
        """drop_queues_before(), but return False at once while another thread has `maintenance`."""
        return self._try(lambda: self.drop_queues_before(topic, log_end))

    def _try(self, work: Callable[[], int]) -> bool:
        if not self.maintenance.acquire(blocking=False):
            return False
        try:
            work()
        finally:
            self.maintenance.release()
        return True

    def _unlink_soon(self) -> None:
        self._has_removed = True
        self._woken.set()

    def _run(self) -> None:
        pause = self._config.flush_interval_consume_queue / 1000
        round_of_work = Rounds("housekeeping", self.round)
        while not self._stopping.is_set():
            self._woken.wait(pause)
            self._woken.clear()
            if not self._stopping.is_set():
                round_of_work()

    def round(self) -> None:
        """Do the work that is due; failed work stays due.

        A failure that may have lost bytes makes the store read-only, a shortage does not.
        """
        now = self._monotonic()
        try:
            if self._checkpoint_due(now):
                self.checkpoint()
                thorough = self._config.flush_consume_queue_thorough_interval / 1000
                self._next_checkpoint = now + thorough
            if now >= self._next_clean:
                self.watch_disk()
                self.clean()
                self.forget_pages()
                self._next_clean = now + self._config.clean_resource_interval / 1000
            self._unlink_removed()
        except (BackendError, StoreError, OSError, MemoryError) as error:
            self._health.note_error(PART, error)
        else:
            self._health.works(PART)

    def _unlink_removed(self) -> None:
        """Unlink some queues of removed topics; later rounds, or the next start, do the rest."""
        if not self._has_removed:
            return
        self._has_removed = False
        work, self._unlinking = self._unlinking or self._queues.unlink_steps(), None
        try:
            for done, _ in enumerate(work, 1):
                if self._stopping.is_set() or done >= UNLINKED_A_ROUND:
                    self._unlinking = work
                    self._unlink_soon()
                    return
        except (BackendError, StoreError, OSError):
            self._has_removed = True
            raise

    def _checkpoint_due(self, now: float) -> bool:
        behind = self._log.max_offset - self._checkpointer.log_end
        return behind >= CHECKPOINT_BYTES or (behind > 0 and now >= self._next_checkpoint)

    def checkpoint(self) -> bool:
        """Flush log and queues, then write the checkpoint; returns whether it was written.

        Raises BackendError, StoreError.
        """
        with self.maintenance:
            return not self._health.failed and self._checkpointer.write()

    def watch_disk(self) -> float:
        """Refuse or allow puts by the fuller of the two partitions; its used share (D26)."""
        folders = (self._config.commit_log_dir, self._config.root_dir)
        uses = [self._disk_use(folder) for folder in folders]
        use = -1.0 if min(uses) < 0 else max(uses)
        full = self._retention.disk_full(use, self._health.disk_full)
        if full != self._health.disk_full:
            limit = DISK_SPACE_WARNING_LEVEL_RATIO
            self._health.set_disk_full(
                f"the disk is {use:.0%} full, over the limit of {limit:.0%}: free some space"
                if full
                else None
            )
        return use

    def clean(self) -> int:
        """Delete expired segments and the queue and index files for them; returns their number."""
        use = self.watch_disk()
        chosen = self._retention.expired(self._ages(), self._clock.now(), use)
        removed = 0
        with self.maintenance:
            for base_offset in chosen:
                if removed and self._stopping.wait(
                    self._config.delete_commit_log_files_interval / 1000
                ):
                    break
                logger.info("deleting the log's segment at %d", base_offset)
                self._follows = False  # even if the removal fails half-way
                if self._tables is not None:
                    self._tables.begin_at(base_offset + self._log.segment_size)
                self._log.delete_oldest()
                removed += 1
            if not self._follows:
                self._follow_the_log()
                self._follows = True
        return removed

    def forget_pages(self) -> None:
        """Remove all but the log's newest pages from this process's resident memory.

        The pages stay in the kernel's page cache. Otherwise the broker's resident memory would grow
        with everything that it reads and writes.
        """
        segments = self._log.segments
        for segment in segments[:-1]:
            segment.forget_pages(segment.size)
        if segments:
            segments[-1].forget_pages(max(segments[-1].written - KEPT_BYTES, 0))
        if self._index is not None:
            self._index.forget_pages()

    def _ages(self) -> list[SegmentAge]:
        """All segments but the open one, oldest first.

        The time of a segment is that of the next segment's first record, which is easy to find and
        not older than its own last record. If that one is damaged, the segment is as old as the
        next one.
        """
        segments = self._log.segments
        tables = self._tables
        if tables is not None:
            tables.refresh(self._log.max_offset)
        ages: list[SegmentAge] = []
        begins: dict[int, int] = {}
        written = None
        for segment, following in reversed(list(pairwise(segments))):
            base = following.base_offset
            begin = self._begin_time(following)
            if begin is not None:
                written = begins[base] = begin
            if written is None:
                continue  # the open segment has no record yet
            exported = tables is not None and base <= tables.only_exported_to
            needed = tables is not None and base > tables.exported_to
            ages.append(SegmentAge(segment.base_offset, written, exported, needed))
        self._begins = begins
        return ages[::-1]

    def _begin_time(self, segment: Segment) -> int | None:
        base = segment.base_offset
        known = self._begins.get(base)
        if known is not None:
            return known
        probe = LogScanner(verify_crc=False)
        probe.scan(segment, base, base, base + 1)
        return probe.last_store_timestamp if probe.records else None

    def _follow_the_log(self) -> None:
        begin = self._log.min_offset
        for queue in self._queues:
            queue.delete_expired(begin)
        if self._index is not None:
            self._index.delete_expired(begin)
        self._checkpointer.write()
