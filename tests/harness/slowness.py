"""Limits of CPU time, in terms of a fixed piece of work that the same process does.

A limit in seconds fails on a machine that is three times slower, or whose other threads share its
caches. The piece of work takes longer there, too.
"""

from __future__ import annotations

import time

PIECE_S = 0.00205
"""What the piece takes on the machine for which the limits were chosen."""
TRIES = 5


def limit_s(seconds: float) -> float:
    """A limit of CPU seconds, longer where this machine is slower now."""
    return seconds * max(1.0, min(_piece_s() for _ in range(TRIES)) / PIECE_S)


def _piece_s() -> float:
    begun = time.thread_time()
    table = {str(number): number for number in range(10_000)}
    texts = sorted(table, key=table.__getitem__, reverse=True)
    assert b"".join(text.encode() for text in texts).startswith(b"9999")
    return time.thread_time() - begun
