"""The due times of timed messages: sorted runs on disk, and the newest entries in memory.

The timer topic's consume queue is the journal: an entry has the time to process its message (its
tags code) and the message's position. The index reads entries into memory. When there are many, it
writes them as one sorted run, so that memory does not grow with the pending messages. It merges the
runs as they become due, and can rebuild everything from the queue.
"""

import logging
import os
from collections.abc import Callable

import msgspec
import numpy
from numpy import int64
from numpy.typing import NDArray

from congreve.engine.config import StoreConfig
from congreve.engine.errors import StoreError
from congreve.engine.file_sizes import FILLER_SIZE
from congreve.engine.log.commit_log import CommitLog
from congreve.engine.queue.queue_table import QueueTable
from congreve.engine.recovery.repair import QueueRepair
from congreve.engine.state.state_file import StateFile
from congreve.engine.timer.cursor import TimerCursor
from congreve.engine.timer.deliveries import DeliveryScan
from congreve.engine.timer.run import Merge, Run, RunReader, merged_blocks, write_run
from congreve.io_backends.errors import BackendError
from congreve.io_backends.files.file_system import DISK, FileSystem
from congreve.records.message.topics import TIMER_QUEUE_ID, TIMER_TOPIC

MEMORY_MAX = 1 << 18  # entries in memory before a run is written
INGEST_MAX = 1 << 10  # entries of the queue to read at once, which blocks the event loop
RUNS_MAX = 48  # a larger number of runs is merged
READ_MAX = 256 << 20  # bytes of the log that a start may have to read, before the state is saved
DURABLE_LIMIT_S = 60.0
SUFFIX = ".run"

Publish = Callable[[], None]
logger = logging.getLogger(__name__)


class TimerState(msgspec.Struct, kw_only=True, rename="camel"):
    """`ROOT/congreve/timer.json`: queue entries before `inserted` are in the runs.

    `cursor` has the handled entries; the log after `log_end` shows later ones. `log_end` is -1 in
    files of versions that did not use the log.
    """

    log_end: int = -1
    inserted: int
    runs: list[tuple[str, int]]  # name, number of pairs
    cursor: list[tuple[int, int, int]]


class TimerIndex:
    """The due times of timed messages, sorted (RocketMQ 5: TimerWheel, TimerLog).

    The appending thread owns it; another thread may do the work of a job.
    """

    def __init__(
        self,
        config: StoreConfig,
        queues: QueueTable,
        commit_log: CommitLog,
        *,
        repair: QueueRepair,
        wait_final: Callable[[int, float], bool],
        files: FileSystem = DISK,
        memory_max: int = MEMORY_MAX,
        runs_max: int = RUNS_MAX,
    ) -> None:
        """No file is read before open()."""
        self.damaged: int | None = None
        """Entry of the queue that must be repaired before ingest() can continue."""
        self._repair = repair
        self._folder = os.path.join(config.own_dir, "timer")
        self._files = files
        self._file = StateFile(os.path.join(config.own_dir, "timer.json"), files=files)
        self.queue = queues.get(TIMER_TOPIC, TIMER_QUEUE_ID)
        self._scan = DeliveryScan(commit_log, queues)
        self._log = commit_log
        self._wait_final = wait_final
        self._memory_max = memory_max
        self._runs_max = runs_max
        self._merge = Merge()
        self._cursor = TimerCursor()
        self._runs: list[Run] = []
        self._inserted = 0  # entries of the queue before it are in runs
        self._next = 0  # the next entry of the queue to read
        self._done = numpy.empty(0, int64)  # sorted offsets that the log shows as handled
        self._done_left = 0  # number of them that are still in the index
        self._log_end = 0  # what lies after it in the log is not in the cursor, but in `done`
        self._busy = False
        self._dirty = False

    # --- life

    def open(self) -> None:
        """Load the saved state, or rebuild it from the queue. Raises StoreError."""
        state = self._load_state()
        if state is not None and state.log_end > self._log.max_offset:
            logger.warning("rebuilding the timer index: it is of another state of the log")
            state = None
        if state is not None:
            self._cursor = TimerCursor.from_rows(state.cursor)
            self._runs = [self._run(name, count) for name, count in state.runs]
        if (
            state is None
            or state.inserted > self.queue.max
            or not all(run.whole for run in self._runs)
        ):
            if state is not None:
                logger.warning("rebuilding the timer index: it does not match the store")
            self._runs, self._next = [], self.queue.min
        else:
            self._next = max(state.inserted, self.queue.min)
        self._inserted = self._next
        self._read_deliveries(self._log.min_offset if state is None else state.log_end)
        self._remove_foreign_runs()
        for run in self._runs:
            self._merge.add_run(self._reader(run))
        while self.ingest() or self._repair_damaged():
            self.work_now()
        self._dirty = True

    def _repair_damaged(self) -> bool:
        if self.damaged is None:
            return False
        try:
            self._repair.repair(self.queue, self.damaged, self.damaged + 1)
        except BackendError as error:
            raise StoreError(f"cannot repair the queue of timed messages: {error}") from error
        return True

    def _read_deliveries(self, log_end: int) -> None:
        """Read from the log the entries that were handled after `log_end`."""
        self._log_end = log_end if log_end >= 0 else self._log.max_offset
        if log_end < 0 or self.queue.min >= self.queue.max:
            return
        found = numpy.frombuffer(self._scan.timed(log_end, self.queue), int64).reshape(-1, 2)
        self._done = numpy.unique(found[self._cursor.is_pending(found), 1])
        self._done_left = len(self._done)

    def close(self) -> None:
        """Save the state. Raises StoreError."""
        self._dirty = True
        self.work_now(save=True)

    def work_now(self, *, save: bool = False) -> None:
        """Do the due job on this thread. Raises StoreError."""
        job = self.job(save=save)
        if job is not None:
            try:
                publish = job()
            except BaseException:
                self.abandon()
                raise
            publish()

    # --- entries

    @property
    def next_wake(self) -> int:
        """The due time of the first entry, ms since 1970; 2^63 - 1 without one."""
        return self._merge.heap.next_wake

    @property
    def counts(self) -> tuple[int, int]:
        """Entries in memory, and pairs in run files (including handled ones)."""
        return self._merge.heap.memory_count, sum(run.count for run in self._runs)

    def ingest(self) -> int:
        """Read new entries of the queue into memory, up to a damaged one; returns their number."""
        self.damaged = None
        if self._merge.heap.memory_count >= 4 * self._memory_max:
            return 0  # a run is being written; the entries stay in the queue
        start = max(self._next, self.queue.min)
        stop = min(self._log.end_of(self.queue), start + INGEST_MAX)
        first_damaged = self._scan.first_damaged(self.queue, start, stop, self._repair.is_valid)
        if first_damaged < stop:
            self.damaged = stop = first_damaged
        if start >= stop:
            return 0
        entries = self.queue.entries(start, stop)
        entries = entries[entries["size"] != FILLER_SIZE]
        pairs = numpy.stack(
            [entries["tags_code"].astype(int64), entries["physical_offset"].astype(int64)], axis=1
        )
        pairs = pairs[self._cursor.is_pending(pairs)]  # an earlier process has handled some of them
        self._cursor.note(pairs)
        self._merge.heap.add(*(numpy.ascontiguousarray(column) for column in pairs.T))
        self._next = stop
        if stop - start == INGEST_MAX:
            self.queue.release_before(stop)  # no other code reads these entries
        return stop - start

    def take(self, now_ms: int, limit: int) -> NDArray[int64]:
        """Rows of due entries in order; column 1 is the record's physical offset.

        Raises StoreError.
        """
        while True:
            rows = self._merge.take(now_ms, limit)
            if not self._done_left or not len(rows):
                return rows
            at = self._done.searchsorted(rows[:, 1]) % len(self._done)
            done = self._done[at] == rows[:, 1]
            if not done[0]:
                stop = int(done.argmax()) or len(rows)
                self._merge.heap.give_back(rows[stop:])
                return rows[:stop]
            count = int((~done).argmax()) or len(rows)
            self._done_left -= count
            self.handled(rows, count)

    def handled(self, rows: NDArray[int64], count: int) -> None:
        """Mark the first `count` of the taken rows as handled; take() returns the others again."""
        self._merge.heap.give_back(rows[count:])
        if count:
            self._cursor.move((int(rows[count - 1, 0]), int(rows[count - 1, 1])))
            self._dirty = True

    def pending(self, start: int, stop: int) -> NDArray[int64]:
        """Entries of the queue in [start, stop) that are not handled: wake in ms, physical offset
        and due time in ms, shape (n, 3). An entry whose record is damaged is left out."""
        entries = self.queue.entries(max(start, self.queue.min), min(stop, self.queue.max))
        entries = entries[entries["size"] != FILLER_SIZE]
        rows = numpy.empty((len(entries), 3), int64)
        rows[:, 0], rows[:, 1] = entries["tags_code"], entries["physical_offset"]
        rows = rows[self._cursor.is_pending(rows)]
        if self._done_left:
            rows = rows[~numpy.isin(rows[:, 1], self._done)]
        rows[:, 2] = self._scan.due_times(numpy.ascontiguousarray(rows[:, 1]))
        return rows[rows[:, 2] >= 0]

    # --- jobs

    def job(self, *, save: bool = False) -> Callable[[], Publish] | None:
        """The due write, or None.

        Any thread may call the job; the owner's thread calls its result. Only one job runs at a
        time: after its StoreError, abandon() allows the next one.
        """
        work: Callable[[], Publish] | None = None
        if self._busy:
            return None
        if self._merge.heap.memory_count >= self._memory_max:
            work = self._write_memory()
        elif len(self._runs) > self._runs_max:
            work = self._merge_runs()
        elif save and (self._dirty or self._log.max_offset - self._log_end > READ_MAX):
            work = self._save()
        self._busy = work is not None
        return work

    def abandon(self) -> None:
        """Discard a job that failed; the next one to save writes again."""
        self._busy, self._dirty = False, True

    def _write_memory(self) -> Callable[[], Publish]:
        pairs = self._merge.heap.memory()
        below = int(pairs[:, 1].max()) + 1
        run = self._run(self._new_name(), len(pairs))
        state, log_end = self._state([*self._runs, run], self._next), self._log.max_offset

        def publish() -> None:
            self._merge.heap.forget(-1, below)
            self._publish(state, [], run)

        def work() -> Publish:
            ordered = pairs[numpy.lexsort((pairs[:, 1], pairs[:, 0]))]
            write_run(self._folder, run.name, [ordered], self._files)
            self._replace(state, log_end)
            return publish

        return work

    def _merge_runs(self) -> Callable[[], Publish]:
        """Merge the smaller half of the runs into one, without the handled entries."""
        smallest = sorted(self._runs, key=lambda run: run.count)[: len(self._runs) // 2 + 1]
        kept = [run for run in self._runs if run not in smallest]
        cursor, inserted, name = self._cursor.copy(), self._inserted, self._new_name()
        saved_log_end, log_end = self._saved_log_end(), self._log.max_offset

        def work() -> Publish:
            readers = [
                RunReader(run, run.first_after(*cursor.mark), cursor.is_pending) for run in smallest
            ]
            run = write_run(self._folder, name, merged_blocks(readers), self._files)
            state = TimerState(
                log_end=saved_log_end,
                inserted=inserted,
                runs=[(one.name, one.count) for one in [*kept, run]],
                cursor=cursor.rows(),
            )
            self._replace(state, log_end)
            return lambda: self._publish(state, smallest, run)

        return work

    def _save(self) -> Callable[[], Publish]:
        finished = [run for run in self._runs if not run.count or run.last <= self._cursor.mark]
        kept = [run for run in self._runs if run not in finished]
        state, log_end = self._state(kept, self._inserted), self._log.max_offset
        self._dirty = False

        def work() -> Publish:
            self._replace(state, log_end)
            return lambda: self._publish(state, finished, None)

        return work

    def _publish(self, state: TimerState, gone: list[Run], new: Run | None) -> None:
        self._inserted = state.inserted
        self._merge.drop_runs(gone)
        self._runs = [run for run in self._runs if run not in gone]
        if new is not None:
            self._runs.append(new)
            self._merge.add_run(self._reader(new))
        for run in gone:
            run.remove()
        self._busy = False

    def _state(self, runs: list[Run], inserted: int) -> TimerState:
        return TimerState(
            log_end=self._saved_log_end(),
            inserted=inserted,
            runs=[(run.name, run.count) for run in runs],
            cursor=self._cursor.rows(),
        )

    def _saved_log_end(self) -> int:
        """The physical offset from which a later start reads the log for handled entries."""
        if self._done_left and self._done[-1] < self._log.min_offset:
            self._done_left = 0  # their entries have expired
        if not self._done_left:
            self._log_end = self._log.max_offset
        return self._log_end

    def _replace(self, state: TimerState, log_end: int) -> None:
        # A handled entry's delivery must not be lost with the log's tail.
        if not self._wait_final(log_end, DURABLE_LIMIT_S):
            raise StoreError(
                f"cannot save the timer index: the log up to {log_end} is not on disk, or not"
                " confirmed"
            )
        self._file.replace(msgspec.json.encode(state).decode())

    # --- files

    def _load_state(self) -> TimerState | None:
        try:
            return self._file.load(lambda text: msgspec.json.decode(text, type=TimerState))
        except StoreError as error:
            logger.warning("%s; rebuilding the timer index from the queue", error)
            return None

    def _reader(self, run: Run) -> RunReader:
        start = run.first_after(*self._cursor.mark)
        return RunReader(run, start, self._cursor.is_pending)

    def _run(self, name: str, count: int) -> Run:
        return Run(self._folder, name, count, self._files)

    def _new_name(self) -> str:
        numbers = [int(run.name.removesuffix(SUFFIX)) for run in self._runs]
        return f"{max(numbers, default=0) + 1:020d}{SUFFIX}"

    def _remove_foreign_runs(self) -> None:
        """Remove runs that a crash left incomplete, or that are not in the state."""
        known = {run.name for run in self._runs}
        try:
            names = [entry.name for entry in self._files.entries(self._folder)]
        except FileNotFoundError:
            return
        except OSError as error:
            raise StoreError(f"cannot list {self._folder}: {error.strerror}") from error
        for name in names:
            if name.endswith(SUFFIX) and name not in known:
                self._run(name, 0).remove()
