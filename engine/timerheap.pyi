"""Many sorted runs and what is in memory, taken in the order of their times."""

from typing import final

from numpy import int64
from numpy.typing import NDArray

@final
class TimerHeap:
    """Entries (wake in ms since 1970, physical offset), the least first.

    A run is fed block by block into a slot; `starved` names the slot whose block is used up: before
    the next take() it is fed again, or forgotten.
    """

    @property
    def count(self) -> int:
        """Entries at hand: those in memory and one of each run (more after give_back())."""
    @property
    def memory_count(self) -> int:
        """Those that no run brought."""
    @property
    def starved(self) -> int:
        """-1: none is."""
    @property
    def next_wake(self) -> int:
        """Of the first entry; 2^63 - 1 without one."""
    def add(self, wakes: NDArray[int64], offsets: NDArray[int64]) -> None:
        """Entries of equal number, kept in memory."""
    def give_back(self, rows: NDArray[int64]) -> None:
        """Rows of take() that were not dealt with."""
    def memory(self) -> NDArray[int64]:
        """The entries in memory, shape (n, 2): wake and offset, in no order."""
    def forget(self, source: int, below: int = ...) -> None:
        """Drop a slot's entries, or those in memory (-1) of offsets below `below`."""
    def new_slot(self) -> int:
        """For one more run."""
    def end(self, slot: int) -> None:
        """The slot's run has no more blocks; what was given back of it stays."""
    def feed(self, slot: int, pairs: NDArray[int64]) -> None:
        """The run's next block: at least one pair, sorted, C order, shape (n, 2)."""
    def take(self, now: int, limit: int) -> NDArray[int64]:
        """Entries with wake <= now in order, at most `limit`: rows (wake, offset, source).

        Fewer than there are where a slot is starved.
        """
