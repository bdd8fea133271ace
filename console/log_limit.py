"""A limit for log lines that repeat, as with a full disk or a client that fails all day.

A filter of the daemons' handlers counts by line of code, for Congreve and libraries alike. Code
that knows that a line repeats uses congreve.limited_log, which limits it for each disk, connection
or part of the store separately.
"""

import logging
import time
from collections.abc import Callable

LINES_MAX = 20
WINDOW_S = 60.0


class LogLimit(logging.Filter):
    """Passes LINES_MAX records of one line of code in WINDOW_S seconds.

    The first record after that names the number of dropped ones.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._seen: dict[
            tuple[str, int], tuple[float, int]
        ] = {}  # begin of the window, records in it

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to write the record."""
        key = (record.pathname, record.lineno)
        now = self._clock()
        begun, count = self._seen.get(key, (now, 0))
        if now - begun >= WINDOW_S:
            if count > LINES_MAX:
                left_out = count - LINES_MAX
                record.msg = f"{record.getMessage()} ({left_out} more like this were left out)"
                record.args = None
            begun, count = now, 0
        self._seen[key] = (begun, count + 1)
        return count < LINES_MAX
