"""A watchdog for an event loop: reports turns that use too much CPU time, and where.

uvloop has no hook around callbacks. So a timer of the loop records the CPU time of its thread, and
a second thread checks how much was used since: a busy machine causes no alarm, a callback that
computes does, even one that holds the GIL. Another thread that holds the GIL holds the loop, too:
it makes the watchdog late, and computes meanwhile.
"""

import asyncio
import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable

from congreve.base.limited_log import LimitedLog

logger = logging.getLogger(__name__)

STACK_DEPTH = 12
"""Innermost calls that an alarm names."""

PER_THREAD_SCHED = 6
"""The kind of clock that counts a thread's CPU time, in the low bits of a Linux clock id."""

BEATS = 5
"""Beats of the loop in the time that a turn may take."""

Alarmed = Callable[[float, str], None]


class Watchdog:
    """Watches the loop that start() is called on, until stop().

    The watchdog's thread calls `alarmed` once for each turn of `limit_s` or more, with the seconds
    of CPU time so far and the stack at that moment; also when another thread has held the GIL for
    `limit_s`, with that thread's stack.
    """

    def __init__(self, limit_s: float, alarmed: Alarmed) -> None:
        self._limit_s = limit_s
        self._period_s = limit_s / BEATS
        self.alarms = 0
        """Turns that took too long since the start."""
        self._alarmed = alarmed
        self._stopping = threading.Event()
        self._used_s = 0.0  # CPU of the loop's thread at the last beat
        self._timer: asyncio.TimerHandle | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to watch the running event loop."""
        self._beat(asyncio.get_running_loop())
        self._thread = threading.Thread(
            target=self._watch, args=(threading.get_ident(),), name="watchdog", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Stop watching; idempotent."""
        self._stopping.set()
        if self._timer is not None:
            self._timer.cancel()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _beat(self, loop: asyncio.AbstractEventLoop) -> None:
        self._used_s = time.thread_time()
        self._timer = loop.call_later(self._period_s, self._beat, loop)

    def _watch(self, watched: int) -> None:
        clock = time.pthread_getcpuclockid(watched)
        reported = -1.0
        others, awake_s = _cpu_times(watched), _awake_s()
        while not self._stopping.wait(self._period_s):
            if _awake_s() - awake_s >= self._period_s + self._limit_s:
                self._look_at_others(others, watched)
            others, awake_s = _cpu_times(watched), _awake_s()
            beat = self._used_s
            # A beat is due after a period, in which other turns may have been.
            held = time.clock_gettime(clock) - beat - self._period_s
            if held >= self._limit_s and beat == self._used_s and beat != reported:
                reported = beat
                self._alarm(held, _stack_of(watched))

    def _look_at_others(self, before: dict[int, float], watched: int) -> None:
        for thread, used in _cpu_times(watched).items():
            held = used - before.get(thread, used) - self._period_s
            # A thread that runs compiled code without the GIL has no call of its own.
            if held >= self._limit_s and (stack := _stack_of(thread, skip=threading.__file__)):
                self._alarm(held, stack)

    def _alarm(self, held: float, stack: str) -> None:
        self.alarms += 1
        self._alarmed(held, stack)


def logged_holds() -> Alarmed:
    """A callback for Watchdog that logs long turns, rate-limited."""
    log = LimitedLog(logger)

    def alarmed(seconds: float, stack: str) -> None:
        log.warning("the event loop is held for %.0f ms by %s", seconds * 1000, stack)

    return alarmed


def thread_cpu_s(thread: threading.Thread) -> float | None:
    """Seconds of CPU that a thread has used; None before its start and after its end."""
    if thread.native_id is None:
        return None
    # pthread_getcpuclockid() may not be called for a thread that has ended; the clock of its id
    # (Linux: MAKE_THREAD_CPUCLOCK) can be asked for at any time.
    try:
        return time.clock_gettime(~thread.native_id << 3 | PER_THREAD_SCHED)
    except OSError:
        return None


def _awake_s() -> float:
    """Seconds of the monotonic clock without those in which this thread waited for a core: if they
    pass without CPU use, it slept, or waited for the GIL."""
    try:
        with open("/proc/thread-self/schedstat", "rb") as file:
            waited_ns = int(file.read().split()[1])
    except OSError:  # a kernel without this file: every wait counts as a wait for a core
        return 0.0
    return time.monotonic() - waited_ns / 1e9


def _cpu_times(watched: int) -> dict[int, float]:
    """CPU seconds of all Python threads but the watched and the calling one."""
    found = {
        thread.ident: used
        for thread in threading.enumerate()
        if thread.ident is not None and (used := thread_cpu_s(thread)) is not None
    }
    for left_out in (watched, threading.get_ident()):
        found.pop(left_out, None)
    return found


def _stack_of(thread: int, skip: str | None = None) -> str:
    """The innermost calls of a thread, in one line; empty when the innermost is in file `skip`."""
    frame = sys._current_frames().get(thread)
    if frame is None:
        return "" if skip else "an unknown place"
    if frame.f_code.co_filename == skip:
        return ""
    calls = reversed(traceback.extract_stack(frame)[-STACK_DEPTH:])
    return " < ".join(
        f"{call.name} ({os.path.basename(call.filename)}:{call.lineno})" for call in calls
    )
