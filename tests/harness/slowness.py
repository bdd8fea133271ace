"""Limits of CPU time, in terms of a fixed piece of work that the same process does.

A limit in seconds fails on a machine that is three times slower, whose other threads share its
caches, or whose new pages of memory cost more. The piece of work takes longer there, too.
"""

from __future__ import annotations

import mmap
import time

PIECE_S = 0.0025
"""What the piece takes on the machine for which the limits were chosen."""
TRIES = 5
FRESH_BYTES = 1 << 20


def limit_s(seconds: float) -> float:
    """A limit of CPU seconds, longer where this machine is slower now."""
    return seconds * slowness()


def slowness() -> float:
    """How many times longer work takes now than where the limits were chosen; at least 1."""
    return max(1.0, min(_piece_s() for _ in range(TRIES)) / PIECE_S)


def _piece_s() -> float:
    begun = time.thread_time()
    table = {str(number): number for number in range(10_000)}
    texts = sorted(table, key=table.__getitem__, reverse=True)
    assert b"".join(text.encode() for text in texts).startswith(b"9999")
    with mmap.mmap(-1, FRESH_BYTES) as fresh:
        fresh[:: mmap.PAGESIZE] = bytes(FRESH_BYTES // mmap.PAGESIZE)
    return time.thread_time() - begun
