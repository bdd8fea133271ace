"""Whether the store accepts writes, and the reason if it does not (RocketMQ: RunningFlags)."""

import errno
import logging
import os
from collections.abc import Callable

from congreve.base.limited_log import LimitedLog
from congreve.io_backends.backend import Backend
from congreve.io_backends.errors import BackendError, SyncError

logger = logging.getLogger(__name__)

LOG_PERIOD_S = 60.0
"""Seconds between two log lines about the same part of the store."""


def may_have_lost(error: Exception) -> bool:
    """Whether written bytes may be missing on disk; after any other error a retry is possible.

    A call that failed for lack of descriptors, memory, mappings or disk space loses nothing.
    """
    if isinstance(error, SyncError):
        return True
    return isinstance(error, BackendError) and error.errno in (0, errno.EIO)


class Health:
    """The reasons to refuse messages (RocketMQ: RunningFlags).

    A failure lasts until the store is reopened, a shortage until the part works again.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._failure: str | None = None
        self._disk_full: str | None = None
        self._role: str | None = None
        self._reported = False
        self._shortages: dict[str, str] = {}
        self._logs: dict[str, LimitedLog] = {}
        self._followers: list[Callable[[bool], None]] = []

    def follow(self, changed: Callable[[bool], None]) -> None:
        """Call `changed(accepted)` now, and from any thread when puts are refused or accepted."""
        self._followers.append(changed)
        changed(self.reason() is None)

    def reason(self) -> str | None:
        """Why the store refuses puts; None while it accepts them. Each chunk of sends calls it."""
        if self._backend.failure_errno:
            self._failure = self._failure or (
                "the disk failed: " + os.strerror(self._backend.failure_errno)
            )
        trouble = self._failure or self._disk_full
        why = trouble or self._role
        if trouble is not None and not self._reported:
            logger.error("the store refuses messages: %s", why)
        if self._reported is not (why is not None):
            self._reported = why is not None
            for changed in self._followers:
                changed(why is None)
        return why

    def fail(self, why: str) -> None:
        """Refuse all further messages, because memory and disk may differ."""
        self._failure = self._failure or why
        self.reason()

    def note_error(self, part: str, error: Exception) -> None:
        """Record that `part` of the store failed: as a failure, or as a shortage until works()."""
        if may_have_lost(error):
            self.fail(str(error))
        else:
            self.note_shortage(part, str(error) or type(error).__name__)

    def note_shortage(self, part: str, why: str) -> None:
        """Record that `part` of the store is short of a resource and will retry."""
        self._shortages[part] = why
        limited = self._logs.setdefault(part, LimitedLog(logger, LOG_PERIOD_S))
        limited.warning("%s: %s; will retry", part, why)

    def works(self, part: str) -> None:
        """Record that `part` of the store works again."""
        if self._shortages.pop(part, None) is not None:
            logger.warning("%s works again", part)

    @property
    def shortages(self) -> str:
        """The current shortages of each part of the store; an empty text if there are none."""
        return "; ".join(f"{part}: {why}" for part, why in list(self._shortages.items()))

    @property
    def failed(self) -> bool:
        """Whether a write or sync failed: the store then refuses messages until it is reopened."""
        return self._failure is not None or self._backend.failure_errno != 0

    @property
    def disk_full(self) -> bool:
        """Whether the disk is too full for more messages."""
        return self._disk_full is not None

    def set_role(self, why: str | None) -> None:
        """Refuse messages of clients because of the broker's role, until a call with None."""
        self._role = why
        self.reason()

    def set_disk_full(self, why: str | None) -> None:
        """Refuse messages for the reason `why`, until a call with None."""
        self._disk_full = why
        self.reason()
