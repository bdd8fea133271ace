"""A limit for log lines that an attack or a full disk would repeat endlessly.

It works in any process and with any log handler. console/daemon/log_limit.py limits all other lines
of the daemons.
"""

import logging
import time
from collections.abc import Callable


class LimitedLog:
    """Logs at most one line in `period_s` seconds, with the number of suppressed lines."""

    def __init__(
        self,
        logger: logging.Logger,
        period_s: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._logger = logger
        self._period_s = period_s
        self._clock = clock
        self._next = float("-inf")
        self._suppressed = 0

    def warning(self, text: str, *values: object) -> None:
        """Log `text % values`, unless this period has had its line."""
        now = self._clock()
        if now < self._next:
            self._suppressed += 1
            return
        if self._suppressed:
            text += f" (and {self._suppressed} times since the last such line)"
        self._logger.warning(text, *values)
        self._next = now + self._period_s
        self._suppressed = 0
