"""Python's garbage collector in a daemon: short pauses, however large its tables are."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

THRESHOLDS = (700, 10, 3)
"""For gc.set_threshold(): a full collection after each 21,000 new objects, not each 70,000."""
LONG_S = 0.001


class ShortCollections:
    """Freezes the objects that survive a full collection of more than LONG_S seconds, so that the
    next one does not visit them.

    Reference counts still free frozen objects; a cycle that becomes unreachable later stays.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._begin = 0.0

    def begin(self) -> None:
        """Freeze all objects, and watch collections from now on.

        No collection comes before: it would hold the interpreter's lock for 14 ms, and a start
        leaves no garbage.
        """
        gc.freeze()
        gc.collect()  # the next one is due when new objects are a share of those that it visits
        gc.set_threshold(*THRESHOLDS)
        gc.callbacks.append(self._collected)

    def end(self) -> None:
        """Stop watching collections."""
        gc.callbacks.remove(self._collected)

    def _collected(self, phase: str, info: dict[str, int]) -> None:
        if info["generation"] < 2:
            return
        if phase == "start":
            self._begin = self._clock()
        elif self._clock() - self._begin > LONG_S:
            gc.freeze()
