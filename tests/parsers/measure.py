"""The cost of parsing an input: CPU seconds, and the most bytes of memory."""

from __future__ import annotations

import ctypes
import gc
import time
import tracemalloc
from collections.abc import Callable

from harness.slowness import limit_s

Parse = Callable[[bytes], object]
Refusals = tuple[type[Exception], ...]

MEMORY_A_BYTE = 64
MEMORY_AT_ALL = 1 << 20
SECONDS_A_BYTE = 1e-6
SECONDS_AT_ALL = 1e-3
TRIES = 6
"""A single sample may be slow because of another process; all samples of a slow parser are slow."""


class Excess(AssertionError):  # noqa: N818 - what is exceeded, for the report of a test
    """A parser needs more than the limit for an input of that length."""


def check(
    parse: Parse, data: bytes, refusals: Refusals, *, inflates: int = 0, slowness: float = 1
) -> None:
    """Raises Excess, or what the parser raises beyond `refusals`.

    `inflates`: bytes that a parser may make of any input, twice while it joins its pieces;
    `slowness`: times the CPU that is allowed.
    """
    seconds = slowness * (SECONDS_AT_ALL + SECONDS_A_BYTE * len(data)) + inflates * 2e-8
    best = min_seconds(parse, data, refusals, seconds)
    if best > seconds and best > limit_s(seconds):
        raise Excess(f"{best * 1e3:.1f} ms of CPU for {len(data)} bytes: {data[:60]!r}")
    allowed = MEMORY_AT_ALL + MEMORY_A_BYTE * len(data) + 3 * inflates
    needed = peak_bytes(parse, data, refusals)
    if needed > allowed:
        raise Excess(f"{needed:,} bytes of memory for {len(data)} bytes: {data[:60]!r}")


def min_seconds(parse: Parse, data: bytes, refusals: Refusals, enough: float) -> float:
    """The CPU seconds of the fastest attempt; stops at the first attempt within `enough`."""
    best = float("inf")
    for _ in range(TRIES):
        started = time.thread_time()
        run(parse, data, refusals)
        best = min(best, time.thread_time() - started)
        if best <= enough:
            break
        # Garbage of an earlier attempt must not count.
        gc.collect()
    return best


def peak_bytes(parse: Parse, data: bytes, refusals: Refusals) -> int:
    """The peak of Python's allocators, or the bytes of malloc in the result."""
    held = allocated()
    tracemalloc.start()
    try:
        result = run(parse, data, refusals)
        held = allocated() - held
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    del result
    return max(peak, held)


def run(parse: Parse, data: bytes, refusals: Refusals) -> object:
    try:
        return parse(data)
    except refusals:
        return None


class _Mallinfo(ctypes.Structure):
    _names = (
        *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
        *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
    )
    _fields_ = tuple((name, ctypes.c_size_t) for name in _names)


_library = ctypes.CDLL(None)
_mallinfo = getattr(_library, "mallinfo2", None)  # of the GNU library
if _mallinfo is not None:
    _mallinfo.restype = _Mallinfo
_of_sanitizer = getattr(_library, "__sanitizer_get_current_allocated_bytes", None)
if _of_sanitizer is not None:
    _of_sanitizer.restype = ctypes.c_size_t


def allocated() -> int:
    """Bytes that malloc has given out; 0 where the C library does not say."""
    if _of_sanitizer is not None:
        return int(_of_sanitizer())
    if _mallinfo is None:
        return 0
    found = _mallinfo()
    return int(found.uordblks + found.hblkhd)
