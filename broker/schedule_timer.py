"""Delivery of messages with a time of their own (RocketMQ 5: TimerMessageStore)."""

import asyncio
import logging
from collections.abc import Callable

import numpy

from congreve.broker.alarm import Alarm
from congreve.broker.schedule import CLOCK_STEP_S, DISK_FAILED_S, STORE_REFUSES_S
from congreve.broker.topics import TIMER_TOPIC
from congreve.engine.clock import Clock
from congreve.engine.consumequeue import ConsumeQueue
from congreve.engine.errors import StoreError
from congreve.engine.redelivery import Redelivery
from congreve.engine.store import MessageStore
from congreve.engine.timerindex import Publish, TimerIndex

logger = logging.getLogger(__name__)

CHUNK = 4_000  # messages, then others get their turn
GATHER_S = 0.02  # parked messages are looked at together, so long after the first of them


class TimerMessageService:
    """Timed messages lie in queue 0 of the timer topic; when each is due, the index knows.

    Nothing runs on the event loop but short rounds: what the index writes is written on a thread.
    """

    def __init__(self, store: MessageStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._redelivery = Redelivery(store.log, store.queues, roll_ms=store.config.timer_roll_ms)
        self._alarm = Alarm(self._round)
        self._index: TimerIndex | None = None
        self._job: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Deliver from now on; the store is open. StoreError. Not for a slave."""
        index = TimerIndex(
            self._store.config,
            self._store.queues.get(TIMER_TOPIC, 0),
            self._store.log,
            wait_durable=self._store.wait_durable,
        )
        await asyncio.to_thread(index.open)
        self._index = index
        self._alarm.set(0.0)

    async def stop(self) -> None:
        """Say on disk how far it is. Idempotent."""
        self._alarm.stop()
        index, self._index = self._index, None
        if self._job is not None:
            await self._job
        if index is not None:
            try:
                await asyncio.to_thread(index.close)
            except StoreError as error:
                logger.error("the timer index was not saved: %s", error)

    def arrived(self, queue: ConsumeQueue) -> None:
        """A message was parked."""
        if self._index is not None:
            self._alarm.set(GATHER_S)

    def save(self) -> None:
        """Write down soon how far it is."""
        if self._index is not None:
            self._work(self._index, save=True)

    @property
    def counts(self) -> tuple[int, int]:
        """Entries of the index in memory and on disk."""
        return (0, 0) if self._index is None else self._index.counts

    def deliver_due(self) -> float | None:
        """One round; seconds until the next one, None where nothing waits."""
        index = self._index
        assert index is not None
        reason = self._store.check_writable()
        if reason is not None:
            logger.warning("timed messages wait: %s", reason)
            return STORE_REFUSES_S
        now = self._clock.now()
        try:
            more = index.ingest() > 0
            done = self._deliver(index, now)
        except StoreError as error:
            logger.error("the timer index cannot be read: %s", error)
            return DISK_FAILED_S
        self._work(index)
        if self._redelivery.failure is not None:
            logger.error("timed messages wait for the disk: %s", self._redelivery.failure)
            return DISK_FAILED_S
        if more or done:
            return 0.0
        wait_ms = index.next_wake - now
        return None if wait_ms > 1 << 60 else max(wait_ms, 0) / 1000

    def _deliver(self, index: TimerIndex, now: int) -> int:
        """How many of the due messages were dealt with."""
        rows, run, count = index.take(now, CHUNK), self._redelivery, 0
        try:
            count = run.deliver(numpy.ascontiguousarray(rows[:, 1]).data, now_ms=now)
        finally:
            index.handled(rows, count)
        if run.skipped:
            logger.error("%d timed messages are gone or have no target", run.skipped)
        if run.end:
            self._store.after_append(run.end, run.arrived())
        return count

    def _round(self) -> None:
        if self._index is not None:
            seconds = self.deliver_due()
            if seconds is not None:
                self._alarm.set(min(seconds, CLOCK_STEP_S))

    # --- what the index writes

    def _work(self, index: TimerIndex, *, save: bool = False) -> None:
        job = index.job(save=save)
        if job is not None:
            self._job = asyncio.get_running_loop().create_task(self._do(index, job))

    async def _do(self, index: TimerIndex, job: Callable[[], Publish]) -> None:
        try:
            publish = await asyncio.to_thread(job)
            publish()
        except StoreError as error:
            index.abandon()
            logger.error("the timer index was not written: %s", error)
            return
        if self._index is not None:
            self._alarm.set(0.0)
