"""What the store can fail with."""

from congreve.errors import CongreveError


class StoreError(CongreveError):
    """Root of the engine's errors."""


class StoreConfigError(StoreError):
    """A setting has a value that cannot work."""


class StoreLockedError(StoreError):
    """Another process holds the store's lock."""


class StoreClosedError(StoreError):
    """The store was shut down."""


class StoreReadOnlyError(StoreError):
    """The store takes no more writes; the message says why."""


class StoreFormatError(StoreError):
    """A file of the store cannot be what the settings say it is."""


class MessageIllegalError(StoreError):
    """A message breaks a limit of the record format."""
