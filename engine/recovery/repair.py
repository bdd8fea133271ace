"""Comparison of consume queue entries with their records, and repair of wrong entries."""

import logging
import threading
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from congreve.engine.file_sizes import ENTRY_SIZE, FILLER_SIZE
from congreve.engine.format import CONSUME_QUEUE_ENTRY
from congreve.engine.log.commit_log import CommitLog
from congreve.engine.queue.consume_queue import ConsumeQueue
from congreve.engine.queue.sums import is_sound
from congreve.engine.recovery import scan
from congreve.engine.recovery.scan import LogScanner
from congreve.engine.rounds import StoreThread
from congreve.io_backends.errors import BackendError
from congreve.records.message.parked import ParkingRule

#: Pause between two files, so that sends and pulls have precedence.
CHECK_PAUSE_S = 0.01

logger = logging.getLogger(__name__)


#: Queue, first entry, entry after the last one, CRC-32: entries of one file.
UncheckedFile = tuple[ConsumeQueue, int, int, int]


class _OneQueue:
    """A queue table of one queue, for a walk over its records alone."""

    def __init__(self, queue: ConsumeQueue) -> None:
        self._queue = queue

    def get(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue; None for all others."""
        queue = self._queue
        return queue if (topic, queue_id) == (queue.topic, queue.queue_id) else None


class QueueRepair:
    """Repairs queue entries. An entry is valid if it leads to a record of its queue and offset.

    It searches the log between the valid neighbours of a damaged entry for the record. Any thread
    may call it: two threads that repair the same entry write the same bytes.
    """

    def __init__(self, commit_log: CommitLog, parking: Sequence[ParkingRule]) -> None:
        """`parking`: the rules of parked messages' entries, the current one first."""
        self._log = commit_log
        self.parking = parking
        self._unchecked: dict[tuple[ConsumeQueue, int], tuple[int, int, int]] = {}
        self._checking = threading.Lock()
        self.rewritten = 0
        """How often entries were rewritten since the start."""

    def is_valid(self, queue: ConsumeQueue, offset: int) -> bool:
        """Whether an entry is valid."""
        try:
            physical_offset, _, _ = queue[offset]
        except IndexError:
            return False
        segment = self._log.segment_at(physical_offset)
        if segment is None or physical_offset >= self._log.max_offset:
            return False
        scanner = LogScanner(verify_crc=False, parking=self.parking)
        return scanner.agrees(segment, segment.base_offset, queue, offset)

    def sound_end(self, queue: ConsumeQueue) -> int:
        """The offset after the last valid entry that a quick search finds, or `min`."""
        end, step = queue.max, 1
        while end > queue.min and not self.is_valid(queue, end - 1):
            end, step = max(end - step, queue.min), step * 2
        return end

    def check_later(self, files: Sequence[UncheckedFile]) -> None:
        """Mark files as not compared with their checksums; readers by tags wait for check()."""
        for queue, start, stop, crc in files:
            number = start // (queue.file_size // ENTRY_SIZE)
            self._unchecked[queue, number] = start, stop, crc
            queue.unchecked = {number} if queue.unchecked is None else queue.unchecked | {number}

    def check(self, queue: ConsumeQueue, offset: int) -> int:
        """Repair the file with this entry if its checksum is wrong; the number of wrong entries.

        Returns 0 for a file that was checked before. Raises BackendError.
        """
        if queue.unchecked is None:
            return 0
        number = offset // (queue.file_size // ENTRY_SIZE)
        with self._checking:
            known = self._unchecked.get((queue, number))
            if known is None:
                return 0
            start, stop, crc = known
            changed = 0
            if not is_sound(queue, start, stop, crc):
                changed = self._repair_file(queue, max(start, queue.min), min(stop, queue.max))
            del self._unchecked[queue, number]
            queue.unchecked = queue.unchecked - {number} or None
        return changed

    def repair(self, queue: ConsumeQueue, start: int, stop: int) -> int:
        """Repair the entries of [start, stop); the number of wrong ones.

        An entry without a record in the log becomes filler: its offset is never used again. Raises
        BackendError.
        """
        each = queue.file_size // ENTRY_SIZE
        start, stop = max(start, queue.min), min(stop, queue.max)
        changed = 0
        while start < stop:
            end = min((start // each + 1) * each, stop)
            changed += self.check(queue, start) + self._repair_file(queue, start, end)
            start = end
        return changed

    def _repair_file(self, queue: ConsumeQueue, start: int, stop: int) -> int:
        stretches = list(self._wrong(queue, start, stop))
        return sum(self._restore(queue, low, high) for low, high in stretches)

    def _wrong(self, queue: ConsumeQueue, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Ranges of damaged entries."""
        low = None
        each = queue.file_size // ENTRY_SIZE
        # The last range extends to the next valid entry, so that one search of the log is enough.
        end = min((start // each + 1) * each, queue.max)
        for offset in range(start, end):
            if offset >= stop and low is None:
                return
            valid = self.is_valid(queue, offset)
            if valid and low is not None:
                yield low, offset
                low = None
            elif not valid and low is None:
                low = offset
        if low is not None:
            yield low, end

    def _restore(self, queue: ConsumeQueue, low: int, high: int) -> int:
        data = queue.stored(low, high)
        if data is None:
            return 0
        before: npt.NDArray[np.void] = np.frombuffer(data, CONSUME_QUEUE_ENTRY)
        entries = before.copy()
        found = self._collect(queue, self._behind(queue, low), self._before(queue, high))
        lost = 0
        for row, offset in enumerate(range(low, high)):
            lost += offset not in found
            entries[row] = found.get(offset, (0, FILLER_SIZE, 0))
        changed = int(np.count_nonzero(entries != before))
        if changed:
            queue.rewrite(low, entries)
            self.rewritten += 1
            logger.warning(
                "entries %d to %d of queue %d of %s were damaged: rebuilt from the log",
                *(low, high - 1, queue.queue_id, queue.topic),
            )
        if lost and changed:
            logger.error("the log has no record for %d of them: readers skip them", lost)
        return changed

    def _behind(self, queue: ConsumeQueue, offset: int) -> int:
        """The start of the search in the log for a record at `offset`."""
        step = 1
        while offset - step >= queue.min:
            if self.is_valid(queue, offset - step):
                physical_offset, size, _ = queue[offset - step]
                return physical_offset + size
            step *= 2
        return self._log.min_offset

    def _before(self, queue: ConsumeQueue, offset: int) -> int:
        """The end of the search in the log for records before `offset`."""
        step = 0
        while offset + step < queue.max:
            if self.is_valid(queue, offset + step):
                return queue[offset + step][0]
            step = step * 2 + 1
        return self._log.max_offset

    def _collect(
        self, queue: ConsumeQueue, start: int, stop: int
    ) -> dict[int, tuple[int, int, int]]:
        """Entries of the queue's records in [start, stop) of the log, by their offsets."""
        scanner = LogScanner(_OneQueue(queue), collect=True, verify_crc=False, parking=self.parking)
        for segment in self._log.segments:
            base = segment.base_offset
            end = min(base + segment.size, stop)
            position: int | None = max(start, base)
            while position is not None and position < end:
                why = scanner.scan(segment, base, position, end)
                if why not in (scan.BAD, scan.END):
                    break
                position = scanner.resync(segment, base, scanner.position + 1)
        return {offset: (place, size, code) for offset, place, size, code in scanner.found}


class LateChecks(StoreThread):
    """A thread that compares queue files with their checksums after a start, and repairs them.

    The next start checks the files that stop() leaves.
    """

    def __init__(self, repair: QueueRepair, files: Sequence[UncheckedFile]) -> None:
        super().__init__("queuecheck")
        repair.check_later(files)
        self._repair = repair
        self._files = files

    def start(self) -> None:
        """Start the thread if there are files to check."""
        if self._files:
            super().start()

    def _run(self) -> None:
        for queue, start, _, _ in self._files:
            if self._stopping.wait(CHECK_PAUSE_S):
                return
            try:
                self._repair.check(queue, start)
            except BackendError as error:
                logger.error("queue %d of %s: %s", queue.queue_id, queue.topic, error)
            except Exception:
                logger.exception("queue %d of %s is not checked", queue.queue_id, queue.topic)
