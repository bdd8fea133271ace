"""What reading or writing a message's bytes can fail with."""

from congreve.errors import CongreveError


class RecordError(CongreveError):
    """Bytes that are no valid record, properties or id, or a message that no record can hold."""


class CorruptRecordError(RecordError):
    """A stored message that is damaged, or lies no longer where its queue's entry says."""


class FilterSyntaxError(RecordError):
    """A filter expression that cannot be compiled; the message names line and column."""
