"""When which timed message is due: sorted runs on disk, the newest entries in memory.

The timer topic's consume queue is the journal: an entry of it says when its message is to be looked
at (its tags code) and where it lies. Entries are taken into memory; when those are many they are
written as one sorted run, so that memory does not grow with what is pending, and the runs are
merged as their times come. Everything here can be made anew from the queue.
"""

import logging
import os
from collections.abc import Callable

import msgspec
import numpy
from numpy import int64
from numpy.typing import NDArray

from congreve.engine.commitlog import CommitLog
from congreve.engine.config import StoreConfig
from congreve.engine.consumequeue import ConsumeQueue
from congreve.engine.errors import StoreError
from congreve.engine.progress import Progress
from congreve.engine.statefile import StateFile
from congreve.engine.timercursor import STEPS, TimerCursor
from congreve.engine.timerrun import Merge, Run, RunReader, merged_blocks, write_run

MEMORY_MAX = 1 << 18  # entries in memory before a run is written
INGEST_MAX = 1 << 16  # entries of the queue taken at once
RUNS_MAX = 48  # more of them are merged
DURABLE_LIMIT_S = 60.0
SUFFIX = ".run"
_FILLER_SIZE = 0x7FFFFFFF

Publish = Callable[[], None]
log = logging.getLogger(__name__)


class TimerState(msgspec.Struct, kw_only=True, rename="camel"):
    """`ROOT/congreve/timer.json`: queue entries before `inserted` are in the runs."""

    inserted: int
    runs: list[tuple[str, int]]  # name, number of pairs
    cursor: list[tuple[int, int, int]]


class TimerIndex:
    """Owned by the thread that appends; a job's work may be done on another one."""

    def __init__(
        self,
        config: StoreConfig,
        queue: ConsumeQueue,
        commit_log: CommitLog,
        *,
        wait_durable: Callable[[int, float], bool],
        memory_max: int = MEMORY_MAX,
        runs_max: int = RUNS_MAX,
    ) -> None:
        """`queue` is the timer topic's; nothing is read before open()."""
        self._folder = os.path.join(config.own_dir, "timer")
        self._file = StateFile(os.path.join(config.own_dir, "timer.json"))
        self._progress = Progress(
            os.path.join(config.own_dir, "timer.progress"), rows=STEPS + 1, columns=3
        )
        self._queue = queue
        self._log = commit_log
        self._wait_durable = wait_durable
        self._memory_max = memory_max
        self._runs_max = runs_max
        self._merge = Merge()
        self._cursor = TimerCursor()
        self._runs: list[Run] = []
        self._inserted = 0  # entries of the queue before it are in runs
        self._next = 0  # entry of the queue that comes next
        self._busy = False
        self._dirty = False

    # --- life

    def open(self) -> None:
        """Take up what is there, rebuild what is not; StoreError."""
        state = self._load_state()
        rows = self._progress.open(self._log.max_offset)
        if state is not None:
            self._cursor = TimerCursor.from_rows(state.cursor)
        if len(rows) == STEPS + 1:
            self._cursor = TimerCursor.from_rows([_triple(rows[row]) for row in sorted(rows)])
        if state is not None:
            self._runs = [Run(self._folder, name, count) for name, count in state.runs]
        if (
            state is None
            or state.inserted > self._queue.max
            or not all(run.whole for run in self._runs)
        ):
            if state is not None:
                log.warning("the timer index does not fit its store: rebuilt from the queue")
            self._runs, self._next = [], self._queue.min
        else:
            self._next = max(state.inserted, self._queue.min)
        self._inserted = self._next
        self._remove_strangers()
        for run in self._runs:
            self._merge.add_run(self._reader(run))
        while self.ingest():
            self.work_now()

    def close(self) -> None:
        """Say how far it is; StoreError."""
        self._dirty = True
        self.work_now(save=True)
        self._progress.close()

    def work_now(self, *, save: bool = False) -> None:
        """Whatever job is due, here and now; StoreError."""
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
        """When the first entry is due, ms since 1970; 2^63 - 1 without one."""
        return self._merge.heap.next_wake

    @property
    def counts(self) -> tuple[int, int]:
        """Entries in memory, and pairs in run files (some of them dealt with)."""
        return self._merge.heap.memory_count, sum(run.count for run in self._runs)

    def ingest(self) -> int:
        """Take new entries of the queue into memory; how many were looked at."""
        if self._merge.heap.memory_count >= 4 * self._memory_max:
            return 0  # a run is being written; the queue keeps them
        start = max(self._next, self._queue.min)
        stop = min(self._queue.max, start + INGEST_MAX)
        if start >= stop:
            return 0
        entries = self._queue.entries(start, stop)
        entries = entries[entries["size"] != _FILLER_SIZE]
        pairs = numpy.stack(
            [entries["tags_code"].astype(int64), entries["physical_offset"].astype(int64)], axis=1
        )
        pairs = pairs[self._cursor.keep(pairs)]  # an earlier process had met some of them
        self._cursor.meet(pairs)
        self._note()  # before a run can hold what was met
        self._merge.heap.add(*(numpy.ascontiguousarray(column) for column in pairs.T))
        self._next = stop
        if stop - start == INGEST_MAX:
            self._queue.release_before(stop)  # nobody else reads here: no memory for it
        return stop - start

    def take(self, now_ms: int, limit: int) -> NDArray[int64]:
        """Rows of due entries in order; column 1 is the record's physical offset. StoreError."""
        return self._merge.take(now_ms, limit)

    def handled(self, rows: NDArray[int64], count: int) -> None:
        """The first `count` of the rows taken are dealt with, the others are still to come."""
        self._merge.heap.give_back(rows[count:])
        if count:
            self._cursor.move((int(rows[count - 1, 0]), int(rows[count - 1, 1])))
            self._dirty = True
            self._note()

    def _note(self) -> None:
        end = self._log.max_offset
        rows = self._cursor.rows()
        # The mark goes last: a step without its mark does no harm.
        for row in reversed(range(len(rows))):
            self._progress.note(row, rows[row], end)

    # --- jobs

    def job(self, *, save: bool = False) -> Callable[[], Publish] | None:
        """What is to be written now: to be called on any thread, then what it returns on ours.

        One at a time: after a StoreError of it, abandon() lets the next one begin.
        """
        work: Callable[[], Publish] | None = None
        if self._busy:
            return None
        if self._merge.heap.memory_count >= self._memory_max:
            work = self._write_memory()
        elif len(self._runs) > self._runs_max:
            work = self._merge_runs()
        elif save and self._dirty:
            work = self._save()
        self._busy = work is not None
        return work

    def abandon(self) -> None:
        """A job failed: nothing of it counts."""
        self._busy = False

    def _write_memory(self) -> Callable[[], Publish]:
        pairs = self._merge.heap.memory()
        below = int(pairs[:, 1].max()) + 1
        run = Run(self._folder, self._new_name(), len(pairs))
        state, log_end = self._state([*self._runs, run], self._next), self._log.max_offset

        def publish() -> None:
            self._merge.heap.forget(-1, below)
            self._publish(state, [], run)

        def work() -> Publish:
            ordered = pairs[numpy.lexsort((pairs[:, 1], pairs[:, 0]))]
            write_run(self._folder, run.name, [ordered])
            self._replace(state, log_end)
            return publish

        return work

    def _merge_runs(self) -> Callable[[], Publish]:
        """The smaller half of the runs becomes one, without what was dealt with."""
        smallest = sorted(self._runs, key=lambda run: run.count)[: len(self._runs) // 2 + 1]
        kept = [run for run in self._runs if run not in smallest]
        cursor, inserted, name = self._cursor.copy(), self._inserted, self._new_name()
        log_end = self._log.max_offset

        def work() -> Publish:
            readers = [
                RunReader(run, run.first_behind(*cursor.mark), cursor.keep) for run in smallest
            ]
            run = write_run(self._folder, name, merged_blocks(readers))
            state = TimerState(
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
            inserted=inserted,
            runs=[(run.name, run.count) for run in runs],
            cursor=self._cursor.rows(),
        )

    def _replace(self, state: TimerState, log_end: int) -> None:
        # What is called dealt with must not be lost with the log's tail.
        if not self._wait_durable(log_end, DURABLE_LIMIT_S):
            raise StoreError(f"the log is not durable up to {log_end}: the timer index waits")
        self._file.replace(msgspec.json.encode(state).decode())

    # --- files

    def _load_state(self) -> TimerState | None:
        try:
            return self._file.load(lambda text: msgspec.json.decode(text, type=TimerState))
        except StoreError as error:
            log.warning("%s; the timer index is rebuilt from the queue", error)
            return None

    def _reader(self, run: Run) -> RunReader:
        start = run.first_behind(*self._cursor.mark)
        return RunReader(run, start, self._cursor.keep)

    def _new_name(self) -> str:
        numbers = [int(run.name.removesuffix(SUFFIX)) for run in self._runs]
        return f"{max(numbers, default=0) + 1:020d}{SUFFIX}"

    def _remove_strangers(self) -> None:
        """Runs that a crash left behind unfinished, or that no state names any more."""
        known = {run.name for run in self._runs}
        try:
            names = os.listdir(self._folder)
        except FileNotFoundError:
            return
        except OSError as error:
            raise StoreError(f"cannot list {self._folder}: {error.strerror}") from error
        for name in names:
            if name.endswith(SUFFIX) and name not in known:
                Run(self._folder, name, 0).remove()


def _triple(numbers: tuple[int, ...]) -> tuple[int, int, int]:
    wake, offset, end = numbers
    return wake, offset, end
