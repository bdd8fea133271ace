"""Threads of a store that repeat a round of work until they are stopped."""

import logging
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

    def __call__(self) -> None:
        try:
            self._work()
        except Exception as error:
            if not self._failed:
                self._failed = True
                logger.exception("%s failed; the next round tries again", self._name)
            self._log.warning("%s failed: %s: %s", self._name, type(error).__name__, error)
