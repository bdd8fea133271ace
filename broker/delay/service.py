"""All delayed messages of a broker: delay levels, delivery times, and the files of both."""

import os

from congreve.base.clock import Clock
from congreve.broker.delay.fast import DelayPath
from congreve.broker.delay.levels import ScheduleMessageService
from congreve.broker.delay.recalls import Recalls
from congreve.broker.delay.targets import DEFAULT, Targets
from congreve.broker.delay.timers import TimerMessageService
from congreve.broker.metadata.state_writer import StateWriter
from congreve.engine.queue.consume_queue import ConsumeQueue
from congreve.engine.state.state_file import StateFile
from congreve.engine.store import MessageStore
from congreve.records.message.topics import SCHEDULE_TOPIC, TIMER_TOPIC
from congreve.remoting.loop.periodic import Periodic

DURABLE_LIMIT_S = 30.0


class DelayedMessages:
    """Starts and stops both services; a slave reads their files but delivers no messages."""

    def __init__(
        self,
        store: MessageStore,
        clock: Clock,
        targets: Targets = DEFAULT,
    ) -> None:
        self._store = store
        self.recalls = Recalls(store, clock)
        self.levels = ScheduleMessageService(store, clock, self.recalls, targets)
        self.timers = TimerMessageService(store, clock, self.recalls, targets)
        self._file = StateFile(
            os.path.join(store.config.config_dir, "delayOffset.json"), files=store.files
        )
        # The file may count a message as delivered only after its copy cannot be lost any more.
        self._writer = StateWriter(self._file, self.levels.snapshot, self._durable)
        self._periodic = Periodic(store.config.flush_delay_offset_interval / 1000, self.save)
        self._paths: list[DelayPath] = []

    @property
    def files(self) -> tuple[StateWriter, ...]:
        """The writers of delayOffset.json and recalls.json."""
        return (self._writer, self.recalls.writer)

    def fast_path(self, cluster: str, broker_name: str) -> DelayPath:
        """Build the compiled part of parking; the store must be open."""
        path = DelayPath(self._store, cluster, broker_name)
        self._paths.append(path)
        return path

    def config_changed(self) -> None:
        """Apply changed limits of delivery times; the delay levels are fixed at the start."""
        for path in self._paths:
            path.config_changed()

    def load(self) -> None:
        """Read recalls.json and delayOffset.json, and the later recalls and deliveries in the log.

        Raises StoreError when they cannot be read.
        """
        self.recalls.load()
        self._file.load(self.levels.load)
        self.levels.recover()

    async def start(self) -> None:
        """Start delivery; the store must be open. Raises StoreError for an unreadable index."""
        await self.timers.start()
        self.levels.start()
        self.save()
        self._periodic.start()

    async def stop(self) -> None:
        """Stop delivery and save the offsets; the store must still be open. Idempotent."""
        self._periodic.stop()
        self.levels.stop()
        await self.timers.stop()
        self.timers.save()
        if self.levels.is_outdated:
            self._writer.changed()
        await self._writer.finish()
        await self.recalls.writer.finish()

    def save(self) -> None:
        """Save the offsets of both services soon."""
        self.timers.save()
        self.recalls.save()
        if self.levels.dirty:
            self._writer.changed()

    def follow_master(self, offsets: dict[int, int], log_end: int) -> None:
        """Take the progress of a slave's master; deliveries after `log_end` are in the log."""
        self.levels.follow_master(offsets, log_end)
        if self.levels.dirty:
            self._writer.changed()

    def arrived(self, queue: ConsumeQueue) -> None:
        """Report a new entry of a queue; queues of other topics are ignored."""
        if queue.topic == SCHEDULE_TOPIC:
            self.levels.arrived(queue)
        elif queue.topic == TIMER_TOPIC:
            self.timers.arrived(queue)

    def shown(self) -> None:
        """Report that readers see more of the log than before."""
        self.levels.shown()
        self.timers.shown()

    def _durable(self) -> bool:
        return self._store.wait_final(self._store.log.max_offset, DURABLE_LIMIT_S)
