"""Errors of reading and writing a message's bytes."""

from congreve.base.errors import CongreveError


class RecordError(CongreveError):
    """Bytes are not a valid record, properties or id, or a message does not fit into a record."""


class CorruptRecordError(RecordError):
    """A stored message is damaged, or its queue's entry leads to other bytes."""


class FilterSyntaxError(RecordError):
    """A filter expression cannot be compiled; the message names line and column."""
