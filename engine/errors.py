"""Errors of the store."""

from typing import TYPE_CHECKING

from congreve.base.errors import CongreveError

if TYPE_CHECKING:
    from congreve.engine.queue.consume_queue import ConsumeQueue


class StoreError(CongreveError):
    """The base class of the engine's errors."""


class StoreConfigError(StoreError):
    """A setting has an invalid value."""


class StoreLockedError(StoreError):
    """Another process holds the store's lock."""


class StoreFormatError(StoreError):
    """A file of the store contradicts the settings or the other files."""


class UnknownTopicError(StoreFormatError):
    """The store has no queue of a topic."""


class MessageIllegalError(StoreError):
    """A message exceeds a limit of the record format."""


class DamagedEntryError(StoreError):
    """A queue entry does not lead to its record, and the caller did not request a repair."""

    def __init__(self, queue: "ConsumeQueue", offset: int) -> None:
        super().__init__(
            f"entry {offset} of queue {queue.queue_id} of {queue.topic} is damaged: try again after"
            " its repair"
        )
        self.queue = queue
        self.offset = offset
