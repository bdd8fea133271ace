"""What the disk side can fail with."""

from congreve.errors import CongreveError


class BackendError(CongreveError):
    """A file could not be created, opened, mapped, written or made durable."""


class SegmentSizeError(BackendError):
    """A file on disk has not the size that the store's settings ask for."""
