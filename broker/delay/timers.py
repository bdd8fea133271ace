"""Delivery of messages with a delivery time (RocketMQ 5: TimerMessageStore)."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Future

import numpy
from numpy import int64
from numpy.typing import NDArray

from congreve.base.clock import Clock
from congreve.broker.delay.levels import (
    CLOCK_STEP_S,
    DISK_FAILED_S,
    REPAIR_STEP_S,
    STORE_REFUSES_S,
)
from congreve.broker.delay.recalls import TIMED, Recalls
from congreve.broker.delay.targets import DEFAULT, Targets
from congreve.engine.errors import StoreError
from congreve.engine.queue.consume_queue import ConsumeQueue
from congreve.engine.store import MessageStore
from congreve.engine.timer.index import Publish, TimerIndex
from congreve.records.message.topics import UNDELIVERABLE_TOPIC
from congreve.remoting.loop.background import BackgroundJobs
from congreve.remoting.loop.wake_up_timer import WakeUpTimer

logger = logging.getLogger(__name__)

CHUNK = 4_000  # messages of one round; then other callbacks run
GATHER_S = 0.02  # from the first parked message to the round that indexes it and later ones


class TimerMessageService:
    """Delivers timed messages from queue 0 of the timer topic, in the order of the timer index.

    The event loop runs only short rounds; a thread writes the index's files. A message whose target
    cannot hold it goes to UNDELIVERABLE_TOPIC.
    (RocketMQ: TimerMessageStore of version 5.)
    """

    def __init__(
        self,
        store: MessageStore,
        clock: Clock,
        recalls: Recalls | None = None,
        targets: Targets = DEFAULT,
    ) -> None:
        self._store = store
        self._clock = clock
        self._recalls = Recalls(store, clock) if recalls is None else recalls
        self._targets = targets
        self._redelivery = targets.redelivery(store, store.config.timer_roll_ms)
        self._timer = WakeUpTimer(self._round)
        self._index: TimerIndex | None = None
        self._jobs = BackgroundJobs("writing the timer index", logger)
        self._repair: Future[int] | None = None
        self._hides = False  # whether the queue has entries that readers do not see yet

    async def start(self) -> None:
        """Start delivery; the store must be open. A slave must not call this.

        Raises StoreError when the timer index cannot be read.
        """
        index = TimerIndex(
            self._store.config,
            self._store.queues,
            self._store.log,
            repair=self._store.repair,
            wait_final=self._store.wait_final,
            files=self._store.files,
        )
        await asyncio.to_thread(index.open)
        self._index = index
        self._timer.set(0.0)

    async def stop(self) -> None:
        """Stop delivery and save the index. Idempotent."""
        self._timer.stop()
        index, self._index = self._index, None
        await self._jobs.wait()
        if index is not None:
            try:
                await asyncio.to_thread(index.close)
            except StoreError as error:
                logger.error("the timer index was not saved: %s", error)

    def arrived(self, queue: ConsumeQueue) -> None:
        """Report that a message was parked."""
        if self._index is not None:
            self._timer.set(GATHER_S)

    def shown(self) -> None:
        """Report that readers see more of the log than before."""
        if self._index is not None and self._hides:
            self._timer.set(0.0)

    def save(self) -> None:
        """Save the index soon."""
        if self._index is not None:
            self._work(self._index, save=True)

    @property
    def index(self) -> TimerIndex | None:
        """The index; None before start() and after stop()."""
        return self._index

    @property
    def counts(self) -> tuple[int, int]:
        """Entries of the index in memory and on disk."""
        return (0, 0) if self._index is None else self._index.counts

    def deliver_due(self) -> float | None:
        """Deliver one round; return the seconds until the next, None without messages."""
        index = self._index
        assert index is not None
        reason = self._store.check_writable()
        if reason is not None:
            logger.warning("the store delays delivery of timed messages: %s", reason)
            return STORE_REFUSES_S
        now = self._clock.now()
        try:
            more = self._ingest(index)
            done = self._deliver(index, now)
        except StoreError as error:
            logger.error("the timer index cannot be read: %s", error)
            return DISK_FAILED_S
        self._work(index)
        if self._redelivery.failure is not None:
            logger.error("timed messages wait for the disk: %s", self._redelivery.failure)
            return DISK_FAILED_S
        if self._targets.first_files is not None and self._redelivery.fileless is not None:
            self._targets.first_files.make(*self._redelivery.fileless)
            return REPAIR_STEP_S
        if more or done:
            return 0.0
        wait_ms = index.next_wake - now
        wait_s = None if wait_ms > 1 << 60 else max(wait_ms, 0) / 1000
        if self._repair is not None:
            return REPAIR_STEP_S if wait_s is None else min(wait_s, REPAIR_STEP_S)
        return wait_s

    def _ingest(self, index: TimerIndex) -> bool:
        """Index new messages; return whether there may be more.

        A damaged queue entry waits for its repair. Raises StoreError when that fails.
        """
        if self._repair is not None:
            if not self._repair.done():
                return False
            repair, self._repair = self._repair, None
            if repair.exception() is not None:
                raise StoreError(f"cannot repair the timer queue: {repair.exception()}")
        self._hides = self._store.log.is_hiding(index.queue)
        more = index.ingest() > 0
        if index.damaged is not None:
            self._repair = self._store.repairs.start(index.queue, index.damaged)
        return more

    def _deliver(self, index: TimerIndex, now: int) -> int:
        """Deliver due messages; return how many were handled."""
        rows, run, count = index.take(now, CHUNK), self._redelivery, 0
        wanted = self._not_recalled(rows)
        try:
            done = run.deliver(numpy.ascontiguousarray(rows[wanted, 1]).data, now_ms=now)
            count = len(rows) if done == len(wanted) else int(wanted[done])
        finally:
            index.handled(rows, count)
        for offset in rows[:count, 1][
            numpy.isin(rows[:count, 1], self._recalls.timed_offsets())
        ].tolist():
            self._recalls.note_skipped(TIMED, offset)
        if run.skipped:
            logger.error("%d timed messages have expired", run.skipped)
        if run.undeliverable:
            self._targets.undeliverable()
            logger.error(
                "the topic of %d timed messages cannot hold them: %s has them",
                run.undeliverable,
                UNDELIVERABLE_TOPIC,
            )
        if run.end:
            self._store.after_append(run.end, run.arrived())
        return count

    def _not_recalled(self, rows: NDArray[int64]) -> NDArray[numpy.intp]:
        """Indices of the rows whose messages were not taken back."""
        if not len(self._recalls):
            return numpy.arange(len(rows))
        return numpy.flatnonzero(~numpy.isin(rows[:, 1], self._recalls.timed_offsets()))

    def _round(self) -> None:
        if self._index is not None:
            seconds = self.deliver_due()
            if seconds is not None:
                self._timer.set(min(seconds, CLOCK_STEP_S))

    # --- writing the index

    def _work(self, index: TimerIndex, *, save: bool = False) -> None:
        job = index.job(save=save)
        if job is not None:
            self._jobs.begin(self._do(index, job))

    async def _do(self, index: TimerIndex, job: Callable[[], Publish]) -> None:
        try:
            publish = await asyncio.to_thread(job)
            publish()
        except StoreError as error:
            index.abandon()
            logger.error("the timer index was not written: %s", error)
            return
        if self._index is not None:
            self._timer.set(0.0)
