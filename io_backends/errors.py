"""Errors of the disk side."""

from congreve.base.errors import CongreveError


class BackendError(CongreveError):
    """A file could not be created, opened, mapped, written or made durable.

    `errno` is the system's error number, or 0 without one.
    """

    def __init__(self, text: str, errno: int = 0) -> None:
        super().__init__(text)
        self.errno = errno


class SyncError(BackendError):
    """A sync failed: written bytes may not be on disk, even if a later sync succeeds."""


class SegmentSizeError(BackendError):
    """A file on disk does not have the size in the store's settings."""


class NoBufferError(BackendError):
    """All buffers for appended bytes wait for the disk; try again when the disk has caught up."""
