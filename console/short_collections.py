"""Python's garbage collector in a daemon: short pauses, however large its tables are."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

THRESHOLDS = (700, 10, 3)
"""Of gc.set_threshold(): a full collection follows each 21,000 new objects, not each 70,000."""
LONG_S = 0.001


class ShortCollections:
    """Freezes what a full collection of more than LONG_S has left, so that the next one does not
    visit it again.

    Reference counts still free frozen objects; a cycle that becomes unreachable later stays.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._begin = 0.0

    def begin(self) -> None:
        """Freeze all objects, and watch collections from now on."""
        gc.collect()
        gc.freeze()
        gc.collect()  # the next full collection waits for a share of what this one visits
        gc.set_threshold(*THRESHOLDS)
        gc.callbacks.append(self._collected)

    def end(self) -> None:
        """Watch no more."""
        gc.callbacks.remove(self._collected)

    def _collected(self, phase: str, info: dict[str, int]) -> None:
        if info["generation"] < 2:
            return
        if phase == "start":
            self._begin = self._clock()
        elif self._clock() - self._begin > LONG_S:
            gc.freeze()
