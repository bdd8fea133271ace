"""All delayed messages of a broker: levels, times of their own, and the files of both."""

import os

from congreve.broker.delaypath import DelayPath
from congreve.broker.periodic import Periodic
from congreve.broker.schedule import ScheduleMessageService
from congreve.broker.schedule_timer import TimerMessageService
from congreve.broker.statewriter import StateWriter
from congreve.broker.topics import SCHEDULE_TOPIC, TIMER_TOPIC
from congreve.engine.clock import Clock
from congreve.engine.consumequeue import ConsumeQueue
from congreve.engine.statefile import StateFile
from congreve.engine.store import MessageStore

DURABLE_LIMIT_S = 30.0


class DelayedMessages:
    """Starts and stops both services; a slave reads what is saved and delivers nothing."""

    def __init__(self, store: MessageStore, clock: Clock) -> None:
        self._store = store
        self.levels = ScheduleMessageService(store, clock)
        self.timers = TimerMessageService(store, clock)
        self._file = StateFile(os.path.join(store.config.config_dir, "delayOffset.json"))
        # Messages are called delivered only when they are so on disk.
        self._writer = StateWriter(self._file, self.levels.wrapper, self._durable)
        self._periodic = Periodic(store.config.flush_delay_offset_interval / 1000, self.save)
        self._path: DelayPath | None = None

    def hot_path(self, cluster: str) -> DelayPath:
        """What parks ordinary messages without Python; the store is open."""
        self._path = DelayPath(self._store, cluster)
        return self._path

    def config_changed(self) -> None:
        """Follow the limits of deliver times; the table of levels is that of the start."""
        if self._path is not None:
            self._path.config_changed()

    def load(self) -> None:
        """Read delayOffset.json; StoreError."""
        self._file.load(self.levels.load)

    async def start(self) -> None:
        """Deliver from now on; the store is open. StoreError."""
        self.levels.start()
        await self.timers.start()
        self._periodic.start()

    async def stop(self) -> None:
        """Deliver no more, and say on disk how far it is. Idempotent; the store is still open."""
        self._periodic.stop()
        self.levels.stop()
        await self.timers.stop()
        self.save()
        await self._writer.settled()

    def save(self) -> None:
        """Write down soon how far both are."""
        self.timers.save()
        if self.levels.dirty:
            self.levels.dirty = False
            self._writer.changed()

    def arrived(self, queue: ConsumeQueue) -> None:
        """The queue got an entry; others than those of parked messages are nothing to us."""
        if queue.topic == SCHEDULE_TOPIC:
            self.levels.arrived(queue)
        elif queue.topic == TIMER_TOPIC:
            self.timers.arrived(queue)

    def _durable(self) -> bool:
        return self._store.wait_durable(self._store.log.max_offset, DURABLE_LIMIT_S)
