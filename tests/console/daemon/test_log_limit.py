"""The daemons' log stays readable and small, even if lines repeat."""

import logging

from congreve.console.daemon.log_limit import LINES_MAX, WINDOW_S, LogLimit


def test_a_repeated_line_is_limited_and_counted() -> None:
    now = 0.0
    limit = LogLimit(lambda: now)

    def record(line: int, number: int) -> logging.LogRecord:
        return logging.LogRecord("n", logging.ERROR, "f.py", line, "full: %d", (number,), None)

    passed = [limit.filter(record(1, number)) for number in range(1000)]
    assert sum(passed) == LINES_MAX and all(passed[:LINES_MAX])
    assert limit.filter(record(2, 0))
    now = WINDOW_S
    late = record(1, 7)
    assert limit.filter(late)
    assert late.getMessage() == f"full: 7 ({1000 - LINES_MAX} similar lines suppressed)"
    again = record(1, 8)
    assert limit.filter(again) and again.getMessage() == "full: 8"
