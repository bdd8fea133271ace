"""Recovery: it brings log, consume queues and checkpoint to one consistent end after a stop.

The log is authoritative. Congreve's checkpoint gives the record up to which the queues are complete
on disk, so recovery reads only the log after it. Without one (in a store of another broker) it
reads the whole log. Damage before the checkpoint or the durable mark loses the damaged records;
damage after both ends the log there.
"""

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from congreve.engine.config import StoreConfig
from congreve.engine.errors import StoreFormatError
from congreve.engine.file_sizes import ENTRY_SIZE, FILLER_SIZE
from congreve.engine.format import CONSUME_QUEUE_ENTRY
from congreve.engine.log.commit_log import CommitLog
from congreve.engine.log.named_record import NamedRecord
from congreve.engine.queue.consume_queue import ConsumeQueue
from congreve.engine.queue.queue_table import QueueTable
from congreve.engine.queue.sums import is_sound, parts
from congreve.engine.recovery import scan
from congreve.engine.recovery.deletions import DeletedTopics
from congreve.engine.recovery.repair import QueueRepair, UncheckedFile
from congreve.engine.recovery.scan import LogScanner
from congreve.engine.state.checkpoint import Checkpoint, QueueCheckpoint, QueuePromise
from congreve.io_backends.backend import Segment
from congreve.records.message.topics import LIGHT_PREFIX

#: Damaged ranges that a report lists.
DAMAGED_MAX = 10_000
#: Queue entries that a start compares with their checksums; a thread checks the others later.
CHECKED_AT_START = 4_000_000

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """The result of recovery; offsets are physical."""

    reason: str
    start: int
    end: int
    records: int
    durable: int  # known to be on disk up to here
    damaged: int  # number of damaged ranges that were skipped
    damaged_at: int  # where the first of them begins, -1 without one
    damaged_places: tuple[int, ...]  # where the first DAMAGED_MAX begin
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
    rebuild: int  # queues that lack entries are filled from here to `start`
    start: int  # all queues are filled from here on
    trusted: int  # damage before this is skipped, damage after it ends the log


class _LostQueues:
    """Only the queues that lack entries: the scan must not restore a deleted topic."""

    def __init__(self, queues: Iterable[ConsumeQueue]) -> None:
        self._queues = {(queue.topic, queue.queue_id): queue for queue in queues}

    def get(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue; None for one to skip."""
        return self._queues.get((topic, queue_id))


class _FoundQueues:
    """The queues of the records that a walk finds.

    It has no queue that `is_deleted`. Without `trusted`, recovery does not trust the queues' files:
    a queue is emptied when it is found.
    """

    def __init__(self, queues: QueueTable, emptied: set[ConsumeQueue], *, trusted: bool) -> None:
        self.is_deleted: Callable[[str], bool] = lambda topic: False
        """Whether a queue of this topic was deleted, if it has no files."""
        self._queues = queues
        self._emptied = emptied
        self._trusted = trusted

    def get(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue; None for one to skip. A scan calls this once, at the queue's first record."""
        queue = self._queues.find(topic, queue_id)
        if queue is None and self.is_deleted(topic):
            return None
        queue = self._queues.get(topic, queue_id)
        if not self._trusted and queue not in self._emptied:
            queue.destroy()
            self._emptied.add(queue)
        return queue


class Recovery:
    """Recovers the log and the queues (RocketMQ: CommitLog.recoverNormally, recoverAbnormally).

    `known` is Congreve's checkpoint, or None, `mark` the durable mark, or None; `clean` says
    whether the last stop was clean, `deleted` what another broker has deleted since.
    It avoids the defects D5 to D9, D12 and D14.
    """

    def __init__(
        self,
        config: StoreConfig,
        commit_log: CommitLog,
        queues: QueueTable,
        *,
        times: Checkpoint,
        known: QueueCheckpoint | None,
        mark: NamedRecord | None,
        clean: bool,
        repair: QueueRepair,
        deleted: DeletedTopics,
        follows: bool = False,
    ) -> None:
        """`follows`: a master sends again what the log lost at its end."""
        self.unchecked: list[UncheckedFile] = []
        """Files that are not checked yet: queue, start, stop, CRC-32 (queue/sums.py)."""
        self.marked = 0
        """Everything before it was durable, by the mark of this log; 0 without such a mark."""
        self._config = config
        self._log = commit_log
        self._queues = queues
        self._times = times
        self._known = known
        self._mark = mark
        self._clean = clean
        self._deleted = deleted
        self._repair = repair
        self._lost: dict[ConsumeQueue, QueuePromise] = {}
        self._spans: dict[ConsumeQueue, tuple[int, int]] = {}
        self._emptied: set[ConsumeQueue] = set()  # the walk adds all their entries again
        self._was_durable = 0  # the log once had records up to here
        if not follows:
            ends = (0 if mark is None else mark.end, 0 if known is None else known.log_end)
            self._was_durable = max(ends)
        self._added_to = 0
        self._to_check = CHECKED_AT_START
        self._damaged, self._damaged_at = 0, -1
        self._damaged_places: list[int] = []

    def run(self, cut_at: int | None = None) -> RecoveryReport:
        """Recover log and queues. Raises StoreError or BackendError.

        With `cut_at`, the log ends there at the latest: what follows is removed, on disk too.
        """
        began = time.monotonic()
        segments = self._log.segments
        if not segments:
            return RecoveryReport("empty log", 0, 0, 0, 0, 0, -1, (), -1, 0.0)
        self._check_mark()
        plan = self._plan()
        records = 0
        if self._lost:
            some = self._scanner(_LostQueues(self._lost))
            self._walk(some, plan.rebuild, max(plan.trusted, self.marked), plan.start)
            self._check_rebuilt()
            records = some.records
        scanner, end = self._walk_new(plan)
        if self._damaged or end < self._was_durable:
            self._keep_ends()
        last_record = scanner.last_record
        if not scanner.records and self._known is not None:
            last_record = self._known.last_record
        if cut_at is not None and cut_at < end:
            end, last_record = cut_at, self._cut(cut_at)
        durable = min(plan.start, end)
        self._log.set_end(end, durable)
        for queue in self._queues:
            if queue.max_physical_offset > end:
                queue.truncate_from(end)
            if self._known is None or self._log.min_offset > self._known.log_begin:
                queue.correct_min_offset(self._log.min_offset)
        return RecoveryReport(
            reason=plan.reason,
            start=plan.rebuild,
            end=end,
            records=records + scanner.records,
            durable=durable,
            damaged=self._damaged,
            damaged_at=self._damaged_at,
            damaged_places=tuple(self._damaged_places),
            last_record=last_record,
            seconds=time.monotonic() - began,
        )

    def _walk_new(self, plan: _Plan) -> tuple[LogScanner, int]:
        """Fill the queues from the plan's start; returns the scanner, and the log's end.

        Another broker has added all entries before the last one that any queue has, as RocketMQ
        assumes, too: a queue without files was deleted.
        """
        queues = _FoundQueues(self._queues, self._emptied, trusted=self._known is not None)
        trusted = max(plan.trusted, self.marked)
        scanner, start = self._scanner(queues), plan.start
        if self._deleted.is_newer:
            if start < self._added_to:
                queues.is_deleted = self._deleted.has_queue
                start = self._walk(scanner, start, trusted, self._added_to)
                if start < self._added_to:
                    return scanner, start
                scanner.forget_queues()
            queues.is_deleted = self._deleted.lacks_row
        return scanner, self._walk(scanner, start, trusted)

    def _scanner(self, queues: _LostQueues | _FoundQueues) -> LogScanner:
        # Delay levels are known before the first record is dispatched (D5).
        return LogScanner(
            queues,
            verify_crc=self._config.check_crc_on_recover,
            parking=self._repair.parking,
        )

    def _check_mark(self) -> None:
        mark = self._mark
        if mark is None:
            return
        if mark.is_same(self._log.named_record(mark.record)):
            self.marked = mark.end
        else:
            logger.warning(
                "the log does not have the record at %d that was on disk: another program has used"
                " it, or it lost its end; if it is damaged at its end, it is cut there",
                mark.record,
            )

    def _plan(self) -> _Plan:
        if self._known is not None:
            if self._names_this_log(self._known):
                self._note_ends()
                return self._from_checkpoint(self._known)
            logger.warning("ignoring the queue checkpoint: it is of another state of the log")
            self._known = None
            self._queues.load()
        self._note_ends()
        first = self._log.segments[0].base_offset
        if self._clean:
            # All queues were complete, so the last record of any queue was in the log.
            seen = max(
                (
                    queue.max_physical_offset
                    for queue in self._queues
                    if self._repair.is_valid(queue, queue.max - 1)
                ),
                default=0,
            )
            trusted = max(seen, self._newest_segment_begun_by(None))
            return _Plan("first opening of a store", first, first, trusted)
        trusted = self._newest_segment_begun_by(self._times.min_timestamp)
        return _Plan("abnormal stop of another broker", first, first, trusted)

    def _names_this_log(self, known: QueueCheckpoint) -> bool:
        if known.queue_file_size != self._queues.file_size:
            return False
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
        made_again: set[ConsumeQueue] = set()
        for topic, promised in known.queues.items():
            if topic.startswith(LIGHT_PREFIX):
                continue
            if topic not in self._queues and topic in self._deleted:
                continue
            found = {number: self._queues.find(topic, number) for number in promised}
            new = {
                queue
                for number, queue in found.items()
                if queue is not None and self._is_made_again(queue, promised[number], known)
            }
            made_again |= new
            is_deleted = bool(new) or self._deleted.has_queue(topic)
            for number, promise in promised.items():
                if found[number] is None and is_deleted and promise.min < promise.max:
                    continue
                queue = self._queues.get(topic, number)
                if queue not in new:
                    resume = min(resume, self._complete_up_to(queue, promise, known))
        for queue in self._queues:
            if queue in made_again or queue.queue_id not in known.queues.get(queue.topic, {}):
                queue.destroy()  # created after the checkpoint; its records create it again
                self._emptied.add(queue)
            elif not self._clean or queue.has_more:
                # After the checkpoint only some of a queue's pages may be on disk.
                queue.truncate_to(queue.max)
        reason = "queues are incomplete" if self._lost else "from the checkpoint"
        return _Plan(reason, resume, known.log_end, known.log_end)

    def _is_made_again(
        self, queue: ConsumeQueue, promise: QueuePromise, known: QueueCheckpoint
    ) -> bool:
        """Whether another broker has deleted the queue since the checkpoint, and made it again.

        Then its first message is behind the checkpoint, with an offset before the promised end.
        """
        first = queue.min
        return (
            first < min(queue.max, promise.max)
            and queue[first][0] >= known.log_end
            and self._repair.is_valid(queue, first)
        )

    def _complete_up_to(
        self, queue: ConsumeQueue, promise: QueuePromise, known: QueueCheckpoint
    ) -> int:
        """The physical offset up to which this queue has its promised entries (D14)."""
        begin = self._log.segments[0].base_offset
        # Segments may have expired since; then the start of a queue has moved.
        expired = begin > known.log_begin
        if promise.min == promise.max == 0:
            return known.log_end
        if queue.min > promise.min and not expired:
            self._lose(queue, promise, promise.min, queue.min)
            queue.destroy()
            return begin
        if queue.max < promise.max:
            queue.begin_at(promise.min)
            end = self._repair.sound_end(queue)
            self._lose(queue, promise, end, promise.max)
            if end > queue.min:
                queue.truncate_to(end)
            else:
                queue.destroy()
            return max(queue.max_physical_offset, begin)
        queue.begin_at(promise.min)
        self._check_sums(queue, promise)
        return known.log_end

    def _lose(self, queue: ConsumeQueue, promise: QueuePromise, start: int, end: int) -> None:
        self._lost[queue] = promise
        self._tell_lost(queue, start, end)

    def _check_sums(self, queue: ConsumeQueue, promise: QueuePromise) -> None:
        """Repair files that differ from the checkpoint; large ones are checked later."""
        queue.sums, queue.summed = list(promise.sums), promise.max
        sound = queue.max_physical_offset == promise.max_physical
        for start, stop, crc in parts(queue, promise.sums, promise.max):
            if sound and self._to_check <= 0:
                self.unchecked.append((queue, start, stop, crc))
            elif not is_sound(queue, start, stop, crc):
                self._repair.repair(queue, start, stop)
                if not is_sound(queue, start, stop, crc):
                    queue.sums = None
                queue.truncate_to(queue.max)
            self._to_check -= stop - start
        if not sound and not promise.sums:
            self._repair.repair(queue, promise.max - 1, promise.max)
            queue.truncate_to(queue.max)

    def _check_rebuilt(self) -> None:
        """Fill queues to their promised end: a queue offset is never assigned twice."""
        for queue, promise in self._lost.items():
            if queue.max < promise.max:
                self._fill(queue, promise.max, promise.max)

    def _fill(self, queue: ConsumeQueue, begin: int, end: int) -> None:
        logger.error(
            "the log has no records for %d to %d of queue %d of %s",
            *(queue.max, end - 1, queue.queue_id, queue.topic),
        )
        if not queue.files:
            queue.start_at(max(begin, end - queue.file_size // ENTRY_SIZE))
        queue.fill_to(end)

    def _tell_lost(self, queue: ConsumeQueue, start: int, end: int) -> None:
        logger.warning(
            "queue %d of %s lost its entries %d to %d: rebuilt from the log",
            queue.queue_id,
            queue.topic,
            start,
            end,
        )

    def _newest_segment_begun_by(self, time_ms: int | None) -> int:
        """Base of the newest segment whose first record was stored at `time_ms` or before."""
        for segment in reversed(self._log.segments):
            probe, _ = _first_record(segment)
            if probe.records and (time_ms is None or probe.last_store_timestamp <= time_ms):
                return segment.base_offset
        return self._log.segments[0].base_offset

    def _walk(self, scanner: LogScanner, start: int, trusted: int, end: int | None = None) -> int:
        """Dispatch all records from `start` to `end` or the log's end; returns that offset."""
        position = start
        last = self._log.segments[-1]
        for segment in self._log.segments:
            segment_end = segment.base_offset + segment.size
            if position >= segment_end:
                continue
            why = scanner.scan(segment, segment.base_offset, position, end)
            while scanner.position < trusted and _hides_records(scanner, segment, why, trusted):
                found = self._pass_damage(scanner, segment)
                if found is None and scanner.position < self.marked < segment_end:
                    return self.marked
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

    def _pass_damage(self, scanner: LogScanner, segment: Segment) -> int | None:
        """Where the scan goes on behind damage; None if the segment has no further record.

        A record with an intact header keeps its entry, which readers pass.
        """
        bad, base = scanner.position, segment.base_offset
        self._damaged += 1
        if self._damaged_at < 0 or bad < self._damaged_at:
            self._damaged_at = bad
        if len(self._damaged_places) < DAMAGED_MAX:
            self._damaged_places.append(bad)
        if scanner.pass_body(segment, base, bad):
            logger.error("the record at %d in %s is damaged", bad, segment.path)
            return scanner.position
        found = scanner.resync(segment, base, bad + 1)
        logger.error(
            "the log is damaged at %d in %s; the next valid record is at %s",
            *(bad, segment.path, "the next segment" if found is None else found),
        )
        return found

    def _note_ends(self) -> None:
        """Note which entries the queues have on disk: of records that were durable, and of all.

        If the log has lost the last record of a queue, only its entry says which offset it had.
        """
        last = self._log.segments[-1]
        durable = max(self.marked, self._was_durable)
        for queue in self._queues:
            if durable:
                end, _ = self._end_on_disk(queue, durable)
                self._spans[queue] = queue.min, end
            if self._deleted.is_newer:
                _, physical = self._end_on_disk(queue, last.base_offset + last.size)
                self._added_to = max(self._added_to, physical)

    def _end_on_disk(self, queue: ConsumeQueue, stop: int) -> tuple[int, int]:
        """The offset after a queue's last entry of a record before `stop`; where that one ends."""
        each = self._queues.file_size // ENTRY_SIZE
        end, physical = queue.first_after(stop), queue.max_physical_offset
        data = queue.stored(end, (end // each + 1) * each) if queue.has_more else None
        while data is not None:
            count, physical = _plausible(data, physical, stop)
            end += count
            more = count and end % each == 0
            data = queue.stored(end, end + each) if more else None
        return end, physical

    def _keep_ends(self) -> None:
        for queue, (begin, end) in self._spans.items():
            if queue in self._emptied:
                queue.extend_down_to(begin)
            if queue.max < end:
                self._fill(queue, begin, end)

    def _cut(self, at: int) -> int:
        """Remove the entries of records behind `at`; returns the last record before it, or -1.

        Raises StoreFormatError if no record ends there.
        """
        for queue in self._queues:
            if queue.max_physical_offset > at:
                queue.truncate_from(at)
            # Filler of records that damage took: a slave gets them again, with new entries.
            kept = queue.max
            while kept > queue.min and queue[kept - 1][1] == FILLER_SIZE:
                kept -= 1
            if kept < queue.max:
                queue.truncate_to(kept)
        position, last_record = self._log.min_offset, -1
        for queue in self._queues:
            if queue.max > queue.min and queue.max_physical_offset >= position:
                position, last_record = queue.max_physical_offset, queue[queue.max - 1][0]
        # Records without an entry may follow: half of a transaction that RocketMQ stored.
        scanner = self._scanner(_LostQueues(()))
        end = self._walk(scanner, position, at, at)  # damage that all members have stays
        last = self._log.segment_at(max(end - 1, self._log.min_offset))
        ends_segment = last is not None and last.base_offset + last.size == at
        if scanner.position > at or (end != at and not ends_segment):
            raise StoreFormatError(f"the log cannot end at {at}: no record ends there")
        return scanner.last_record if scanner.records else last_record

    def _tell_cut(self, end: int, why: int) -> None:
        last = self._log.segments[-1]
        later = [segment for segment in self._log.segments if segment.base_offset > end]
        # Removing a segment that was prepared and never written loses nothing.
        if why == scan.BAD or any(_first_record(segment)[1] != scan.END for segment in later):
            logger.warning(
                "the log ends at %d: the torn bytes after it are removed (up to %d bytes)",
                end,
                last.base_offset + last.size - end,
            )


def _plausible(data: memoryview, physical: int, stop: int) -> tuple[int, int]:
    """How many entries follow each other in the log from `physical` to `stop`; the end of those."""
    entries: npt.NDArray[np.void] = np.frombuffer(data, CONSUME_QUEUE_ENTRY)
    begins = entries["physical_offset"].astype(np.int64)
    sizes = entries["size"].astype(np.int64)
    ends = begins + sizes
    earlier = np.concatenate(([physical], ends[:-1]))
    right = (sizes > 0) & (begins >= earlier) & (ends <= stop)
    count = len(right) if right.all() else int(right.argmin())
    return count, int(ends[count - 1]) if count else physical


def _hides_records(scanner: LogScanner, segment: Segment, why: int, trusted: int) -> bool:
    """Whether the log before `trusted` goes on behind where the scan has stopped, and why.

    A blank covers the rest of its segment, and none was written before a record.
    """
    if why != scan.BLANK:
        return why in (scan.BAD, scan.END)
    at, segment_end = scanner.position, segment.base_offset + segment.size
    head = memoryview(segment)[at - segment.base_offset :]
    is_whole = scanner.claimed_size(head, segment_end - at) == segment_end - at
    return not is_whole or trusted < segment_end


def _first_record(segment: Segment) -> tuple[LogScanner, int]:
    """A scanner after the segment's first record, if there is one, and why it stopped."""
    base = segment.base_offset
    probe = LogScanner(verify_crc=False)
    return probe, probe.scan(segment, base, base, base + 1)
