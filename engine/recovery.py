"""After a stop of any kind: log, consume queues and checkpoint brought to one consistent end.

The log is the truth. Our own checkpoint says up to which record the queues are complete on disk,
so that only what was written behind it is read again. Without one (a store that another broker
wrote) the whole log is read once. Damage in the part that is known to have been complete costs
the damaged records; damage behind it ends the log there.
"""

import logging
import time
from dataclasses import dataclass

from congreve.engine import scan
from congreve.engine.checkpoint import Checkpoint, QueueCheckpoint
from congreve.engine.commitlog import CommitLog
from congreve.engine.config import StoreConfig
from congreve.engine.consumequeue import ConsumeQueue
from congreve.engine.queuetable import QueueTable
from congreve.engine.scan import LogScanner
from congreve.io_backends.backend import Segment

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """What recovery read and decided; offsets are physical."""

    reason: str
    start: int
    end: int
    records: int
    durable: int  # known to be on disk up to here
    damaged: int  # stretches that were passed over
    last_record: int  # -1 without one
    seconds: float

    def __str__(self) -> str:
        return (
            f"{self.reason}: read {self.records} records from {self.start} to {self.end} "
            f"in {self.seconds:.2f} s"
        )


@dataclass(frozen=True, slots=True)
class _Plan:
    reason: str
    rebuild: int  # queues that lack entries get them from here to `start`
    start: int  # all queues get theirs from here on
    trusted: int  # damage before this is passed over, damage behind it ends the log


class _PromisedQueues:
    """The queues of the checkpoint: a topic that was deleted is not rebuilt with them."""

    def __init__(self, queues: QueueTable, known: QueueCheckpoint) -> None:
        self._queues = queues
        self._known = known

    def get(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """None for a queue to be passed over."""
        promised = queue_id in self._known.queues.get(topic, {})
        return self._queues.get(topic, queue_id) if promised else None


class Recovery:
    """RocketMQ: CommitLog.recoverNormally and recoverAbnormally, with defects D5 to D9, D12, D14.

    `known` is our checkpoint, None without one; `clean` says that the last stop was one.
    """

    def __init__(
        self,
        config: StoreConfig,
        commit_log: CommitLog,
        queues: QueueTable,
        *,
        times: Checkpoint,
        known: QueueCheckpoint | None,
        clean: bool,
    ) -> None:
        self._config = config
        self._log = commit_log
        self._queues = queues
        self._times = times
        self._known = known
        self._clean = clean
        self._damaged = 0

    def run(self) -> RecoveryReport:
        """StoreError or BackendError where the disk does not let it."""
        began = time.monotonic()
        segments = self._log.segments
        if not segments:
            if len(self._queues):
                log.warning(
                    "%s holds no segment: what %d queues knew of the log is removed with it",
                    self._config.commit_log_dir,
                    len(self._queues),
                )
            for queue in self._queues:
                queue.destroy()
            return RecoveryReport("empty log", 0, 0, 0, 0, 0, -1, 0.0)
        plan = self._plan()
        records = 0
        if self._known is not None and plan.rebuild < plan.start:
            some = self._scanner(_PromisedQueues(self._queues, self._known))
            self._walk(some, plan.rebuild, plan.trusted, plan.start)
            records = some.records
        scanner = self._scanner(self._queues)
        end = self._walk(scanner, plan.start, plan.trusted)
        self._log.set_end(end, plan.start)
        for queue in self._queues:
            if queue.max_physical_offset > end:
                queue.truncate_from(end)
            queue.correct_min_offset(self._log.min_offset)
        last_record = scanner.last_record
        if not scanner.records and self._known is not None:
            last_record = self._known.last_record
        return RecoveryReport(
            reason=plan.reason,
            start=plan.rebuild,
            end=end,
            records=records + scanner.records,
            durable=plan.start,
            damaged=self._damaged,
            last_record=last_record,
            seconds=time.monotonic() - began,
        )

    def _scanner(self, queues: QueueTable | _PromisedQueues) -> LogScanner:
        # Delay levels are at hand before the first record is dispatched (D5).
        return LogScanner(
            queues,
            verify_crc=self._config.check_crc_on_recover,
            delay_levels_ms=self._config.delay_levels_ms,
            timer_roll_ms=self._config.timer_roll_ms,
        )

    def _plan(self) -> _Plan:
        if self._known is not None:
            if self._names_this_log(self._known):
                return self._from_checkpoint(self._known)
            log.warning("the checkpoint of the queues is of another state of the log: not used")
            self._known = None
        first = self._log.segments[0].base_offset
        if self._clean:
            # Every queue was complete: the last record that any of them knows was in the log.
            seen = max((queue.max_physical_offset for queue in self._queues), default=0)
            trusted = max(seen, self._newest_segment_begun_by(None))
            return _Plan("first opening of a store", first, first, trusted)
        trusted = self._newest_segment_begun_by(self._times.min_timestamp)
        # Pages of the queues may be missing anywhere: nothing of them is believed.
        for queue in self._queues:
            queue.destroy()
        return _Plan("abnormal stop of another broker", first, first, trusted)

    def _names_this_log(self, known: QueueCheckpoint) -> bool:
        if known.last_record < 0:
            return known.log_begin == self._log.segments[0].base_offset
        segment = self._log.segment_at(known.last_record)
        if segment is None:
            return False
        probe = LogScanner(verify_crc=False)
        probe.scan(segment, segment.base_offset, known.last_record, known.last_record + 1)
        if probe.records != 1 or probe.last_store_timestamp != known.last_store_timestamp:
            return False
        return probe.position == known.log_end

    def _from_checkpoint(self, known: QueueCheckpoint) -> _Plan:
        resume = known.log_end
        for topic, promised in known.queues.items():
            for queue_id, (low, high) in promised.items():
                complete = self._complete_up_to(topic, queue_id, low, high, known)
                resume = min(resume, complete)
        for queue in self._queues:
            # Behind the checkpoint some of a queue's pages may be on disk and others not.
            if queue.max_physical_offset > known.log_end:
                queue.truncate_from(known.log_end)
        reason = "from the checkpoint" if resume == known.log_end else "queues are incomplete"
        return _Plan(reason, resume, known.log_end, known.log_end)

    def _complete_up_to(
        self, topic: str, queue_id: int, low: int, high: int, known: QueueCheckpoint
    ) -> int:
        """Up to where in the log this queue has its promised entries [low, high) (D14)."""
        if low == high:
            return known.log_end
        # Segments may have gone since; then a queue's begin has moved with them.
        expired = self._log.min_offset > known.log_begin
        queue = self._queues.get(topic, queue_id)
        queue.correct_min_offset(self._log.min_offset)
        if queue.max > 0 and queue.min > low and not expired:
            self._tell_lost(queue, low, queue.min)
            queue.destroy()
        elif queue.max < high:
            self._tell_lost(queue, queue.max, high)
        else:
            return known.log_end
        return max(queue.max_physical_offset, self._log.segments[0].base_offset)

    def _tell_lost(self, queue: ConsumeQueue, start: int, end: int) -> None:
        log.warning(
            "queue %d of %s lost its entries %d to %d: rebuilt from the log",
            queue.queue_id,
            queue.topic,
            start,
            end,
        )

    def _newest_segment_begun_by(self, time_ms: int | None) -> int:
        """Base of the newest segment with a record, stored at `time_ms` at the latest."""
        for segment in reversed(self._log.segments):
            probe, _ = _first_record(segment)
            if probe.records and (time_ms is None or probe.last_store_timestamp <= time_ms):
                return segment.base_offset
        return self._log.segments[0].base_offset

    def _walk(self, scanner: LogScanner, start: int, trusted: int, end: int | None = None) -> int:
        """Dispatch all records from `start`, up to `end` or the end of the log; where that is."""
        position = start
        last = self._log.segments[-1]
        for segment in self._log.segments:
            segment_end = segment.base_offset + segment.size
            if position >= segment_end:
                continue
            why = scanner.scan(segment, segment.base_offset, position, end)
            while why in (scan.BAD, scan.END) and scanner.position < trusted:
                found = scanner.resync(segment, segment.base_offset, scanner.position + 1)
                self._damaged += 1
                log.error(
                    "the log is damaged at %d in %s; the next good record is at %s",
                    scanner.position,
                    segment.path,
                    "the next segment" if found is None else found,
                )
                if found is None:
                    break
                why = scanner.scan(segment, segment.base_offset, found, end)
            if end is not None and scanner.position >= end:
                return end
            cut_here = why in (scan.BAD, scan.END) and scanner.position >= trusted
            if cut_here or segment is last:
                self._tell_cut(scanner.position, why)
                return scanner.position
            position = segment_end
        return position

    def _tell_cut(self, end: int, why: int) -> None:
        last = self._log.segments[-1]
        behind = [segment for segment in self._log.segments if segment.base_offset > end]
        # One that was made ahead, and never written to, is no loss.
        if why == scan.BAD or any(_first_record(segment)[1] != scan.END for segment in behind):
            log.warning(
                "the log ends at %d: what stood behind it was torn and is cut off (up to %d bytes)",
                end,
                last.base_offset + last.size - end,
            )


def _first_record(segment: Segment) -> tuple[LogScanner, int]:
    """A scanner that has passed the segment's first record, if there is one, and why it stopped."""
    base = segment.base_offset
    probe = LogScanner(verify_crc=False)
    return probe, probe.scan(segment, base, base, base + 1)
