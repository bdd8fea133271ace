"""A file system in which tests make calls fail, or end the process."""

import errno
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeVar

from congreve.io_backends.errors import BackendError, SyncError
from congreve.io_backends.files.file_system import File, FileSystem
from congreve.io_backends.files.intercepted import InterceptedFileSystem

T = TypeVar("T")

#: How late a slow call is, in seconds.
SLOW_S = 0.2

#: Calls whose failures are BackendErrors, as those of a Mapping are.
_BACKEND_ERRORS = frozenset(("map", "create_map", "reserve"))
_SYNC_ERRORS = frozenset(("sync_map", "zero_map", "sync_all"))


@dataclass(frozen=True, slots=True)
class Failpoint:
    """Which calls fail, and how.

    `call` begins their names ("sync": each kind of sync, "": all), `path` is contained in their
    paths. The `nth` such call (from 1) and the next ones, `times` in all, raise the error number
    `does`, or write half of the data before they do ("short"), or are delayed ("slow"), or end the
    process "before" or "after" the call.
    """

    call: str
    path: str
    does: int | Literal["before", "after", "short", "slow"]
    nth: int = 1
    times: int = 1


class FaultyFileSystem(InterceptedFileSystem):
    """Fails the calls of a Failpoint; `end` ends the process, `sleep` delays a slow call."""

    def __init__(
        self,
        inner: FileSystem,
        failpoint: Failpoint,
        end: Callable[[], object] = os.abort,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        super().__init__(inner)
        self._sleep = sleep
        self._failpoint = failpoint
        self._end = end
        self._lock = threading.Lock()
        self._met = 0

    @property
    def reached(self) -> bool:
        """Whether a call has failed."""
        return self._met >= self._failpoint.nth

    def around(self, call: str, path: str, size: int, make: Callable[[], T]) -> T:
        """Do the call, unless it is to fail."""
        point = self._failpoint
        if point.does == "short" or not self._is_next(call, path):
            return make()
        if point.does == "before":
            self._end()
        if point.does == "slow":
            self._sleep(SLOW_S)
        if isinstance(point.does, int):
            raise _failure(call, path, point.does)
        result = make()
        if point.does == "after":
            self._end()
        return result

    def write(self, file: File, data: bytes | memoryview, at: int) -> None:
        """Write; a "short" write writes half of the data."""
        if self._failpoint.does != "short" or not self._is_next("write", file.path):
            super().write(file, data, at)
            return
        half = memoryview(data)
        self.inner.write(file, half[: len(half) // 2], at)
        raise _failure("write", file.path, errno.ENOSPC)

    def is_folder(self, path: str) -> bool:
        """False if the call fails, like the real method."""
        try:
            return super().is_folder(path)
        except OSError:
            return False

    def _is_next(self, call: str, path: str) -> bool:
        point = self._failpoint
        if not call.startswith(point.call) or point.path not in path:
            return False
        with self._lock:
            self._met += 1
            return point.nth <= self._met < point.nth + point.times


def _failure(call: str, path: str, number: int) -> OSError | BackendError:
    reason = os.strerror(number)
    if call in _SYNC_ERRORS:
        return SyncError(f"cannot sync {path}: {reason}", number)
    if call in _BACKEND_ERRORS:
        return BackendError(f"cannot {call} {path}: {reason}", number)
    return OSError(number, reason, path)
