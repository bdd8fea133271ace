"""Whether the store takes writes, and if not, why (RocketMQ: RunningFlags)."""

import logging
import os

from congreve.io_backends.backend import Backend

log = logging.getLogger(__name__)


class Health:
    """One place that says no. A failure stays until the store is opened anew."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._failure: str | None = None
        self._disk_full: str | None = None
        self._reported = False

    def reason(self) -> str | None:
        """Why puts are refused; None while they are taken. Cheap: asked for each chunk of sends."""
        if self._backend.failure_errno:
            self._failure = self._failure or (
                "the disk failed: " + os.strerror(self._backend.failure_errno)
            )
        why = self._failure or self._disk_full
        if why is not None and not self._reported:
            log.error("the store takes no more messages: %s", why)
        self._reported = why is not None
        return why

    def fail(self, why: str) -> None:
        """For good: what is in memory may not be what is on disk."""
        self._failure = self._failure or why
        self.reason()

    @property
    def failed(self) -> bool:
        return self._failure is not None or self._backend.failure_errno != 0

    @property
    def disk_full(self) -> bool:
        return self._disk_full is not None

    def set_disk_full(self, why: str | None) -> None:
        """Until the disk has room again (`why` None)."""
        self._disk_full = why
        self.reason()
