"""Where delayed messages go when they are due."""

from collections.abc import Callable
from typing import NamedTuple

from congreve.engine.queue.file_maker import QueueFileMaker
from congreve.engine.store import MessageStore
from congreve.engine.timer.redelivery import PresentQueue, Redelivery


class Targets(NamedTuple):
    """What both services share that deliver parked messages (RocketMQ: messageTimeup)."""

    undeliverable: Callable[[], object] = lambda: None
    """Called when the topic of undeliverable messages has a new one."""
    present_queue: PresentQueue | None = None
    """Returns the queue to deliver to, for a topic and the queue id that was parked."""
    first_files: QueueFileMaker | None = None
    """Its thread makes the files of new queues, and deliveries to them wait."""

    def redelivery(self, store: MessageStore, roll_ms: int = 0) -> Redelivery:
        """What appends messages to these targets; timed ones are parked again by `roll_ms`."""
        return Redelivery(
            *(store.log, store.queues),
            roll_ms=roll_ms,
            present_queue=self.present_queue,
            lacks_file=None if self.first_files is None else self.first_files.is_missing,
        )


DEFAULT = Targets()
"""The queues that messages were parked with."""
