"""Delivery of messages that were parked for a delay level (RocketMQ: ScheduleMessageService)."""

import logging
import zlib
from collections.abc import Iterator
from concurrent.futures import Future

from congreve.base.clock import Clock
from congreve.broker.delay.recalls import Recalls
from congreve.broker.delay.targets import DEFAULT, Targets
from congreve.engine.queue.consume_queue import ConsumeQueue
from congreve.engine.store import MessageStore
from congreve.engine.timer.deliveries import DeliveryScan
from congreve.records.message.topics import SCHEDULE_TOPIC, UNDELIVERABLE_TOPIC
from congreve.remoting.loop.wake_up_timer import WakeUpTimer
from congreve.remoting.messages import fastjson
from congreve.remoting.messages.bodies import DelayOffsetSerializeWrapper

logger = logging.getLogger(__name__)

LEVEL_CHUNK = 4_000  # messages of one level, before those of the next level
CLOCK_STEP_S = 1.0  # the longest time between two reads of the wall clock, which may be set
READ_MAX = 256 << 20  # log bytes since delayOffset.json, after which it is written again
STORE_REFUSES_S = 0.1
# Between two checks of a level whose queue is being repaired, or that waits for a new queue's file.
REPAIR_STEP_S = 0.01
DISK_FAILED_S = 10.0


class DelayOffsets(DelayOffsetSerializeWrapper):
    """Content of delayOffset.json: the delivered offsets when the log ended at `log_end`.

    The reference writes neither log_end nor checksum; then only the offsets are known.
    (RocketMQ: DelayOffsetSerializeWrapper.)
    """

    log_end: int = -1
    checksum: int = -1

    def with_checksum(self) -> "DelayOffsets":
        """The same with the CRC-32 of both other fields."""
        text = f"{self.log_end} {sorted(self.offset_table.items())}"
        return DelayOffsets(
            offset_table=self.offset_table,
            log_end=self.log_end,
            checksum=zlib.crc32(text.encode()),
        )

    def check(self) -> None:
        """Raises ValueError unless it is sealed, or as the reference writes it."""
        own = self.log_end >= 0 or self.checksum >= 0
        if own and (right := self.with_checksum().checksum) != self.checksum:
            raise ValueError(f"its checksum is {self.checksum} and not {right}")


class ScheduleMessageService:
    """Delivers the messages of level n from queue n - 1 of the schedule topic, in order.

    One timer of the running loop is set to the due time of the next message; arrived() reports a
    newly parked message.

    delayOffset.json has each level's next offset; the caller writes it while `dirty` is True.
    recover() finds later deliveries in the log: after a kill the broker neither delivers a message
    twice nor skips one whose delivery was lost (defect D23).

    A message whose target cannot hold it goes to UNDELIVERABLE_TOPIC.
    (RocketMQ: ScheduleMessageService.)
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
        self._redelivery = targets.redelivery(store)
        self._timer = WakeUpTimer(self._round)
        self._running = False
        self._saved_end: int | None = None  # the log's end in the file; None without a file
        self._changed = False
        self._hides = False  # whether a queue has entries that readers do not see yet
        self._followed_end: int | None = None  # of the log, when a master had this progress
        self._repairs: dict[int, tuple[int, Future[int]]] = {}  # level -> offset, its repair
        self.offset_table: dict[int, int] = {}  # level -> next offset in its queue

    # --- start and stop

    def load(self, text: str) -> None:
        """Load the content of delayOffset.json. Raises ValueError for a wrong checksum."""
        stored = DelayOffsets.from_tree(fastjson.loads(text))
        stored.check()
        self.offset_table, self._saved_end = stored.offset_table, stored.log_end

    def wrapper(self) -> DelayOffsetSerializeWrapper:
        """Body of code 45."""
        return DelayOffsetSerializeWrapper(offset_table=dict(self.offset_table))

    def follow_master(self, offsets: dict[int, int], log_end: int) -> None:
        """Take the progress of a slave's master; the log has the deliveries after `log_end`."""
        if offsets != self.offset_table or self.dirty:
            self.offset_table = dict(offsets)
            self._followed_end, self._changed = log_end, True

    def snapshot(self) -> DelayOffsets:
        """The current content of delayOffset.json, to write once the log is durable up to here."""
        end = self._store.log.max_offset if self._followed_end is None else self._followed_end
        self._changed, self._saved_end = False, end
        table = {level: 0 for level, _ in self._levels()} | self.offset_table
        return DelayOffsets(offset_table=table, log_end=self._saved_end).with_checksum()

    @property
    def dirty(self) -> bool:
        """Whether to write the file: it is outdated, or recovery would have much to read."""
        end = self._saved_end
        return self._changed or end is None or self._store.log.max_offset - end > READ_MAX

    @property
    def is_outdated(self) -> bool:
        """Whether recover() would have to read a part of the log."""
        return self._changed or self._saved_end != self._store.log.max_offset

    def recover(self) -> None:
        """Find each level's next offset; call it after the store is open, before any append."""
        log, start, saved = self._store.log, self._saved_end, {}
        if start is None or start > log.max_offset:
            # Without a file for this log, recovery reads the whole log.
            start, self.offset_table = log.min_offset, {}
        elif start < 0:
            start, saved = self._first_unsaved(), self.offset_table
        elif (unsaved := self._first_unsaved()) >= 0:
            start = min(start, unsaved)
        if start >= 0 and any(queue.max for _, queue in self._levels()):
            scan = DeliveryScan(log, self._store.queues)
            found = scan.levels(start, self.offset_table, self._recalls.all())
            self.offset_table = {**found, **saved}

    def _first_unsaved(self) -> int:
        """Physical offset of the first message of the levels that the file does not have.

        Such a level is new, or the file is damaged. -1 if the file has all levels.
        """
        queues = (queue for level, queue in self._levels() if level not in self.offset_table)
        # The log may have let all messages of a queue expire.
        return min((queue[queue.min][0] for queue in queues if queue.min < queue.max), default=-1)

    def start(self) -> None:
        """Start delivery; a slave must not call this."""
        self._running, self._followed_end = True, None
        for level, queue in self._levels():
            known = self.offset_table.get(level, 0)
            corrected = min(max(known, queue.min), queue.max)
            if corrected != known:
                logger.warning(
                    "delay level %d: offset %d is not in [%d, %d], continuing at %d",
                    level,
                    known,
                    queue.min,
                    queue.max,
                    corrected,
                )
            self._set(level, corrected)
        self._wake_in(0.0)

    def stop(self) -> None:
        """Stop delivery. Idempotent; the caller saves the offsets."""
        self._running = False
        self._timer.stop()

    # --- work

    def arrived(self, queue: ConsumeQueue) -> None:
        """Report that a message was parked in this queue."""
        level = queue.queue_id + 1
        delays = self._store.config.delay_levels_ms
        if level <= len(delays):
            self._wake_in(delays[level - 1] / 1000)

    def deliver_due(self) -> float | None:
        """Deliver one round of all levels.

        Returns the seconds until the next round, None without messages.
        """
        reason = self._store.check_writable()
        if reason is not None:
            logger.warning("the store delays delivery of delayed messages: %s", reason)
            return STORE_REFUSES_S
        now = self._clock.now()
        self._hides = False
        waits = [
            self._deliver(level, queue, now)
            for level, queue in self._levels()
            if self.offset_table.get(level, 0) < self._end_of(queue)
        ]
        return min((seconds for seconds in waits if seconds is not None), default=None)

    def _end_of(self, queue: ConsumeQueue) -> int:
        """The end of what is delivered of a queue when it is due."""
        end = self._store.log.end_of(queue)
        self._hides |= end < queue.max
        return end

    def shown(self) -> None:
        """Report that readers see more of the log than before."""
        if self._hides:
            self._wake_in(0.0)

    def pending(self) -> dict[int, tuple[int, int]]:
        """Level -> next offset and end of its queue (brokerStatus: scheduleMessageOffset_N)."""
        return {
            level: (self.offset_table[level], self._store.log.end_of(queue))
            for level, queue in self._levels()
            if level in self.offset_table
        }

    def _levels(self) -> Iterator[tuple[int, ConsumeQueue]]:
        """The levels of messageDelayLevel that have a queue."""
        for level in range(1, len(self._store.config.delay_levels_ms) + 1):
            queue = self._store.queues.find(SCHEDULE_TOPIC, level - 1)
            if queue is not None:
                yield level, queue

    def _deliver(self, level: int, queue: ConsumeQueue, now: int) -> float | None:
        """Deliver a level's due messages, at most a chunk; returns as deliver_due() does."""
        run = self._redelivery
        before = max(self.offset_table.get(level, 0), queue.min)
        delay_ms = self._store.config.delay_levels_ms[level - 1]
        repaired = -1
        if level in self._repairs:
            repaired, repair = self._repairs[level]
            if not repair.done():
                return REPAIR_STEP_S
            del self._repairs[level]
            if repair.exception() is not None:
                logger.error("delay level %d waits for the disk: %s", level, repair.exception())
                return DISK_FAILED_S
        recalled = self._recalls.next_recalled(level, before)
        if recalled == before:
            self._recalls.note_skipped(level, before)
            self._set(level, before + 1)
            return 0.0
        end = self._end_of(queue)
        limit = min(LEVEL_CHUNK, (end if recalled is None else min(recalled, end)) - before)
        after = run.deliver_level(
            queue, before, limit, now_ms=now, delay_ms=delay_ms, passes=repaired + 1
        )
        if run.skipped:
            logger.error(
                "delay level %d: %d of the messages %d to %d have expired",
                level,
                run.skipped,
                before,
                after,
            )
        if run.undeliverable:
            self._targets.undeliverable()
            logger.error(
                "delay level %d: the topic of %d of the messages %d to %d cannot hold them: %s has"
                " them",
                level,
                run.undeliverable,
                before,
                after,
                UNDELIVERABLE_TOPIC,
            )
        if after != before:
            self._set(level, after)
        if run.end:
            self._store.after_append(run.end, run.arrived())
        if run.failure is not None:
            logger.error("delay level %d waits for the disk: %s", level, run.failure)
            return DISK_FAILED_S
        if run.damaged:
            self._repairs[level] = after, self._store.repairs.start(queue, after)
            return REPAIR_STEP_S
        if self._targets.first_files is not None and run.fileless is not None:
            self._targets.first_files.make(*run.fileless)
            return REPAIR_STEP_S
        if run.next_due:
            return max(run.next_due - now, 0) / 1000
        return 0.0 if after < end else None

    def _set(self, level: int, offset: int) -> None:
        if offset != self.offset_table.get(level, 0):
            self.offset_table[level] = offset
            self._changed = True

    def _wake_in(self, seconds: float) -> None:
        if self._running:
            self._timer.set(min(seconds, CLOCK_STEP_S))

    def _round(self) -> None:
        seconds = self.deliver_due()
        if seconds is not None:
            self._wake_in(seconds)
