"""Delivery of messages that were parked for a delay level (RocketMQ: ScheduleMessageService)."""

import logging
import os
from collections.abc import Iterator

from congreve.broker.alarm import Alarm
from congreve.broker.topics import SCHEDULE_TOPIC
from congreve.engine.clock import Clock
from congreve.engine.consumequeue import ConsumeQueue
from congreve.engine.progress import Progress
from congreve.engine.redelivery import Redelivery
from congreve.engine.store import MessageStore
from congreve.remoting import fastjson
from congreve.remoting.bodies import DelayOffsetSerializeWrapper

logger = logging.getLogger(__name__)

LEVELS_NOTED = 256  # further levels are kept in delayOffset.json alone
LEVEL_CHUNK = 4_000  # messages of one level, then the next level's turn
CLOCK_STEP_S = 1.0  # while messages wait, the wall clock may be moved: look so often
STORE_REFUSES_S = 0.1
DISK_FAILED_S = 10.0


class ScheduleMessageService:
    """Level n's messages lie in queue n - 1 of the schedule topic and are delivered in order.

    One timer of the running loop is set to the first message that comes due; arrived() tells of a
    message that is parked meanwhile.

    How far each level is stands in delayOffset.json, which the caller writes now and then while
    `dirty` says so, and at each step in our own `delay.progress`, so that a killed broker does not
    deliver again what it had delivered (defect D23).
    """

    def __init__(self, store: MessageStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._redelivery = Redelivery(store.log, store.queues)
        self._alarm = Alarm(self._round)
        self._running = False
        self._progress = Progress(
            os.path.join(store.config.own_dir, "delay.progress"), rows=LEVELS_NOTED, columns=1
        )
        self.dirty = False  # set by each change; whoever saves the table clears it
        self.offset_table: dict[int, int] = {}  # level -> next offset in its queue

    # --- life

    def load(self, text: str) -> None:
        """Take what delayOffset.json holds."""
        tree = fastjson.loads(text)
        self.offset_table = DelayOffsetSerializeWrapper.from_tree(tree).offset_table

    def wrapper(self) -> DelayOffsetSerializeWrapper:
        """Content of delayOffset.json and body of code 45."""
        return DelayOffsetSerializeWrapper(offset_table=dict(self.offset_table))

    def start(self) -> None:
        """Deliver from now on; the store is open. Not for a slave."""
        self._running = True
        noted = self._progress.open(self._store.log.max_offset)
        for level, queue in self._levels():
            known = max(self.offset_table.get(level, 0), *noted.get(level - 1, (0,)))
            corrected = min(max(known, queue.min), queue.max)
            if corrected != known:
                logger.warning(
                    "delay level %d: offset %d is not in [%d, %d], goes on at %d",
                    *(level, known, queue.min, queue.max, corrected),
                )
            self._set(level, corrected)
        self._look_in(0.0)

    def stop(self) -> None:
        """Idempotent; the offsets are the caller's to save."""
        self._running = False
        self._alarm.stop()
        self._progress.close()

    # --- work

    def arrived(self, queue: ConsumeQueue) -> None:
        """A message was parked in this queue."""
        level = queue.queue_id + 1
        delays = self._store.config.delay_levels_ms
        if level <= len(delays):
            self._look_in(delays[level - 1] / 1000)

    def deliver_due(self) -> float | None:
        """One round over all levels; seconds until the next one, None where nothing waits."""
        reason = self._store.check_writable()
        if reason is not None:
            logger.warning("delayed messages wait: %s", reason)
            return STORE_REFUSES_S
        now = self._clock.now()
        waits = [
            self._deliver(level, queue, now)
            for level, queue in self._levels()
            if self.offset_table.get(level, 0) < queue.max
        ]
        return min((seconds for seconds in waits if seconds is not None), default=None)

    def pending(self) -> dict[int, tuple[int, int]]:
        """Level -> next offset and end of its queue (brokerStatus: scheduleMessageOffset_N)."""
        return {
            level: (self.offset_table[level], queue.max)
            for level, queue in self._levels()
            if level in self.offset_table
        }

    def _levels(self) -> Iterator[tuple[int, ConsumeQueue]]:
        """Levels that have a queue, and are in the table of levels."""
        for level in range(1, len(self._store.config.delay_levels_ms) + 1):
            queue = self._store.queues.find(SCHEDULE_TOPIC, level - 1)
            if queue is not None:
                yield level, queue

    def _deliver(self, level: int, queue: ConsumeQueue, now: int) -> float | None:
        """A level's due messages, or a chunk of them; as deliver_due()."""
        run = self._redelivery
        before = max(self.offset_table.get(level, 0), queue.min)
        delay_ms = self._store.config.delay_levels_ms[level - 1]
        after = run.deliver_level(queue, before, LEVEL_CHUNK, now_ms=now, delay_ms=delay_ms)
        if run.skipped:
            logger.error(
                "delay level %d: %d of the messages %d to %d are gone or have no target",
                *(level, run.skipped, before, after),
            )
        if after != before:
            self._set(level, after)
        if run.end:
            self._store.after_append(run.end, run.arrived())
        if run.failure is not None:
            logger.error("delay level %d waits for the disk: %s", level, run.failure)
            return DISK_FAILED_S
        if run.next_due:
            return max(run.next_due - now, 0) / 1000
        return 0.0 if after < queue.max else None

    def _set(self, level: int, offset: int) -> None:
        if offset != self.offset_table.get(level, 0):
            self.offset_table[level] = offset
            self.dirty = True
        self._progress.note(level - 1, (offset,), self._store.log.max_offset)

    def _look_in(self, seconds: float) -> None:
        if self._running:
            self._alarm.set(min(seconds, CLOCK_STEP_S))

    def _round(self) -> None:
        seconds = self.deliver_due()
        if seconds is not None:
            self._look_in(seconds)
