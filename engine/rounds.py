"""Threads of a store, and the rounds of work that they repeat until they are stopped."""

import logging
import threading
from collections.abc import Callable

from congreve.base.limited_log import LimitedLog

logger = logging.getLogger(__name__)


class Rounds:
    """Calls a round so that an error that it did not expect ends no later one.

    A thread that ends leaves the store open without it: nothing expires, or nothing is flushed.
    The first such error goes to the log with its traceback, further ones are counted.
    """

    def __init__(self, name: str, work: Callable[[], None]) -> None:
        """`name` says in the log what failed."""
        self._name = name
        self._work = work
        self._log = LimitedLog(logger, period_s=60.0)
        self._failed = False

    def __call__(self) -> bool:
        """Call the round; whether it succeeded."""
        try:
            self._work()
            return True
        except Exception as error:
            if not self._failed:
                self._failed = True
                logger.exception("%s failed; the next round tries again", self._name)
            self._log.warning("%s failed: %s: %s", self._name, type(error).__name__, error)
            return False


class StoreThread:
    """A thread of a store, which runs from start() to stop(). (RocketMQ: ServiceThread.)"""

    def __init__(self, name: str) -> None:
        self._name = name
        self._woken = threading.Event()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread, and wait for its end; idempotent."""
        self._stopping.set()
        self._woken.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        """Work until `_stopping` is set; stop() sets `_woken`, too."""
        raise NotImplementedError
