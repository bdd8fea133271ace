"""What the disk side can fail with."""

from congreve.errors import CongreveError


class BackendError(CongreveError):
    """A file could not be created, opened, mapped, written or made durable."""


class SegmentSizeError(BackendError):
    """A file on disk has not the size that the store's settings ask for."""


class NoBufferError(BackendError):
    """All memory for appended bytes waits for the disk; it works again when that has caught up."""
