"""A watchdog for an event loop: reports turns that use too much CPU time, and where.

uvloop has no hook around callbacks. So a timer of the loop records the CPU time of its thread, and
a second thread checks how much was used since: a busy machine causes no alarm, a callback that
computes does, even one that holds the GIL.
"""

import asyncio
import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable

from congreve.limited_log import LimitedLog

logger = logging.getLogger(__name__)

STACK_DEPTH = 12
"""Innermost calls that an alarm names."""

BEATS = 5
"""Beats of the loop in the time that a turn may take."""

Alarmed = Callable[[float, str], None]


class Watchdog:
    """Watches the loop that start() is called on, until stop().

    The watchdog's thread calls `alarmed` once for each turn of `limit_s` or more, with the seconds
    of CPU time so far and the stack at that moment.
    """

    def __init__(self, limit_s: float, alarmed: Alarmed) -> None:
        self._limit_s = limit_s
        self._period_s = limit_s / BEATS
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
        while not self._stopping.wait(self._period_s):
            beat = self._used_s
            # A beat is due after a period, in which other turns may have been.
            held = time.clock_gettime(clock) - beat - self._period_s
            if held >= self._limit_s and beat == self._used_s and beat != reported:
                reported = beat
                self._alarmed(held, _stack_of(watched))


def logged_holds() -> Alarmed:
    """A callback for Watchdog that logs long turns, rate-limited."""
    log = LimitedLog(logger)

    def alarmed(seconds: float, stack: str) -> None:
        log.warning("the event loop is held for %.0f ms by %s", seconds * 1000, stack)

    return alarmed


def _stack_of(thread: int) -> str:
    """The innermost calls of a thread, in one line."""
    frame = sys._current_frames().get(thread)
    if frame is None:
        return "an unknown place"
    calls = reversed(traceback.extract_stack(frame)[-STACK_DEPTH:])
    return " < ".join(
        f"{call.name} ({os.path.basename(call.filename)}:{call.lineno})" for call in calls
    )
