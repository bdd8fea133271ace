"""Errors of the store."""

from congreve.base.errors import CongreveError


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


class PopFullError(StoreError):
    """As many messages are out as the limit allows."""


class PopJournalError(StoreFormatError):
    """An entry of the journal of pops is damaged."""
