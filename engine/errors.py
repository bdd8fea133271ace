"""Errors of the store."""

from typing import TYPE_CHECKING

from congreve.errors import CongreveError

if TYPE_CHECKING:
    from congreve.engine.queue.consume_queue import ConsumeQueue


class StoreError(CongreveError):
    """Root of the engine's errors."""


class StoreConfigError(StoreError):
    """A setting has a value that cannot work."""


class StoreLockedError(StoreError):
    """Another process holds the store's lock."""


class StoreClosedError(StoreError):
    """The store was shut down."""


class StoreReadOnlyError(StoreError):
    """The store accepts no more writes; the message says why."""


class StoreFormatError(StoreError):
    """A file of the store cannot be what the settings say it is."""


class MessageIllegalError(StoreError):
    """A message breaks a limit of the record format."""


class DamagedEntryError(StoreError):
    """A queue entry does not lead to its record, and the caller did not ask for a repair."""

    def __init__(self, queue: "ConsumeQueue", offset: int) -> None:
        super().__init__(
            f"entry {offset} of queue {queue.queue_id} of {queue.topic} is damaged: try again when"
            " it is repaired"
        )
        self.queue = queue
        self.offset = offset
