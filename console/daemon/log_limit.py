"""A limit for repeated log lines, for example on a full disk or with a client that keeps failing.

The filter counts the log records of each line of code, in Congreve and in libraries. Code whose
line may repeat uses congreve.base.limited_log, which counts separately for each disk, connection or
part of the store.
"""

import logging
import time
from collections.abc import Callable

LINES_MAX = 20
"""The number of records that one line of code may write in WINDOW_S."""
WINDOW_S = 60.0
"""The length of the counting window, in seconds."""


class LogLimit(logging.Filter):
    """Passes at most LINES_MAX records of one line of code in WINDOW_S seconds.

    The next record that passes says how many records were suppressed.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._seen: dict[
            tuple[str, int], tuple[float, int]
        ] = {}  # start of the window, records in it

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to write the record."""
        key = (record.pathname, record.lineno)
        now = self._clock()
        start, count = self._seen.get(key, (now, 0))
        if now - start >= WINDOW_S:
            if count > LINES_MAX:
                suppressed = count - LINES_MAX
                record.msg = f"{record.getMessage()} ({suppressed} similar lines suppressed)"
                record.args = None
            start, count = now, 0
        self._seen[key] = (start, count + 1)
        return count < LINES_MAX
