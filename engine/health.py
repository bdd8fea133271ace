"""Whether the store takes writes, and if not, why (RocketMQ: RunningFlags)."""

import errno
import logging
import os

from congreve.io_backends.backend import Backend
from congreve.io_backends.errors import BackendError, SyncError
from congreve.limited_log import LimitedLog

logger = logging.getLogger(__name__)

LOG_PERIOD_S = 60.0
"""Seconds between two log lines about the same part of the store."""


def may_have_lost(error: Exception) -> bool:
    """Whether written bytes may be missing on disk; after all other errors a retry is possible.

    A call that failed for lack of descriptors, memory, mappings or disk space has lost nothing.
    """
    if isinstance(error, SyncError):
        return True
    return isinstance(error, BackendError) and error.errno in (0, errno.EIO)


class Health:
    """The reasons to refuse messages.

    A failure lasts until the store is opened anew, a shortage until the part works again.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._failure: str | None = None
        self._disk_full: str | None = None
        self._reported = False
        self._shortages: dict[str, str] = {}
        self._logs: dict[str, LimitedLog] = {}

    def reason(self) -> str | None:
        """Why puts are refused; None while they are accepted. Each chunk of sends calls it."""
        if self._backend.failure_errno:
            self._failure = self._failure or (
                "the disk failed: " + os.strerror(self._backend.failure_errno)
            )
        why = self._failure or self._disk_full
        if why is not None and not self._reported:
            logger.error("the store takes no more messages: %s", why)
        self._reported = why is not None
        return why

    def fail(self, why: str) -> None:
        """Refuse all further messages: memory and disk may differ."""
        self._failure = self._failure or why
        self.reason()

    def note_error(self, part: str, error: Exception) -> None:
        """Record that `part` of the store failed: as a failure, or as a shortage until works()."""
        if may_have_lost(error):
            self.fail(str(error))
        else:
            self.lacks(part, str(error) or type(error).__name__)

    def lacks(self, part: str, why: str) -> None:
        """Record that `part` of the store lacks a resource and tries again."""
        self._shortages[part] = why
        limited = self._logs.setdefault(part, LimitedLog(logger, LOG_PERIOD_S))
        limited.warning("%s: %s; it is tried again", part, why)

    def works(self, part: str) -> None:
        """Record that `part` of the store works again."""
        if self._shortages.pop(part, None) is not None:
            logger.warning("%s: works again", part)

    @property
    def shortages(self) -> str:
        """What each part of the store lacks now; an empty text where no part lacks anything."""
        return "; ".join(f"{part}: {why}" for part, why in list(self._shortages.items()))

    @property
    def failed(self) -> bool:
        """Whether a write or sync failed: only a store that is opened anew takes messages again."""
        return self._failure is not None or self._backend.failure_errno != 0

    @property
    def disk_full(self) -> bool:
        """Whether the disk is too full for more messages."""
        return self._disk_full is not None

    def set_disk_full(self, why: str | None) -> None:
        """Refuse messages because of `why`, until a call with None."""
        self._disk_full = why
        self.reason()
