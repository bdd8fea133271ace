"""Errors of reading and writing a message's bytes."""

from congreve.errors import CongreveError


class RecordError(CongreveError):
    """Bytes are no valid record, properties or id, or no record can hold a message."""


class CorruptRecordError(RecordError):
    """A stored message is damaged, or its queue's entry leads to other bytes."""


class FilterSyntaxError(RecordError):
    """A filter expression cannot be compiled; the message names line and column."""
