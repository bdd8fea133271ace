"""Errors of the disk side."""

from congreve.errors import CongreveError


class BackendError(CongreveError):
    """A file could not be created, opened, mapped, written or made durable.

    `errno` is the system's number for it, 0 where there is none.
    """

    def __init__(self, text: str, errno: int = 0) -> None:
        super().__init__(text)
        self.errno = errno


class SyncError(BackendError):
    """A sync failed: what was written may not be on disk, even if a later sync succeeds."""


class SegmentSizeError(BackendError):
    """A file on disk does not have the size that the store's settings ask for."""


class NoBufferError(BackendError):
    """All memory for appended bytes waits for the disk; try again when the disk has caught up."""
