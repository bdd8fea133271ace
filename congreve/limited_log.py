"""Limits log lines that an attack or a full disk would repeat without end.

It works in every process, with any log handler. console/log_limit.py limits all other lines of the
daemons.
"""

import logging
import time
from collections.abc import Callable


class LimitedLog:
    """Writes at most one line in `period_s` seconds, which names the number of lines left out."""

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
        self._left_out = 0

    def warning(self, text: str, *values: object) -> None:
        """`text % values`, unless another line was written in this period."""
        now = self._clock()
        if now < self._next:
            self._left_out += 1
            return
        if self._left_out:
            text += f" (and {self._left_out} times since the last such line)"
        self._logger.warning(text, *values)
        self._next = now + self._period_s
        self._left_out = 0
