"""The handled timer entries, as a few numbers."""

from collections.abc import Sequence

import numpy
from numpy import int64
from numpy.typing import NDArray

Key = tuple[int, int]  # wake in ms since 1970, physical offset
Step = tuple[int, int, int]  # a key, and the physical offset before which it speaks
NOTHING: Key = (0, 0)
STEPS = 8  # earlier marks that are kept


class TimerCursor:
    """Entries are handled in the order of their keys: all up to `mark` are done.

    This applies to entries read so far, before `bound` in the log. New ones have greater keys,
    unless the clock was set back: then the mark becomes a step, and a new mark begins. A step is
    needed until the clock has reached its time again.
    """

    def __init__(self, mark: Key = NOTHING, bound: int = 0, steps: Sequence[Step] = ()) -> None:
        self.mark = mark
        self.bound = bound
        self.steps = list(steps)

    def copy(self) -> "TimerCursor":
        """A copy, for another thread."""
        return TimerCursor(self.mark, self.bound, self.steps)

    def move(self, mark: Key) -> None:
        """Mark all entries up to this key as handled."""
        self.mark = mark
        if self.steps:
            self.steps = [step for step in self.steps if step[:2] > mark]

    def note(self, pairs: NDArray[int64]) -> None:
        """Record that these entries were read; they come in the order of their offsets.

        Recording an entry twice changes nothing.
        """
        new = pairs[pairs[:, 1] >= self.bound]
        if not len(new):
            return
        if _up_to(new, self.mark).any():
            self.steps = [*self.steps, (*self.mark, self.bound)][-STEPS:]
            self.mark = NOTHING
        self.bound = int(new[-1, 1]) + 1

    def is_pending(self, pairs: NDArray[int64]) -> NDArray[numpy.bool_]:
        """A mask of the pairs (wake, offset), int64 of shape (n, 2), that are not handled yet."""
        done = numpy.zeros(len(pairs), numpy.bool_)
        for wake, offset, bound in (*self.steps, (*self.mark, self.bound)):
            done |= _up_to(pairs, (wake, offset)) & (pairs[:, 1] < bound)
        return ~done

    def rows(self) -> list[Step]:
        """The state as rows of numbers: the mark first, then the steps, STEPS + 1 in all."""
        return [(*self.mark, self.bound), *self.steps, *[(0, 0, 0)] * (STEPS - len(self.steps))]

    @classmethod
    def from_rows(cls, rows: Sequence[Step]) -> "TimerCursor":
        """The cursor of such rows."""
        wake, offset, bound = rows[0]
        return cls((wake, offset), bound, [row for row in rows[1:] if row[2]])


def _up_to(pairs: NDArray[int64], key: Key) -> NDArray[numpy.bool_]:
    wakes, offsets = pairs[:, 0], pairs[:, 1]
    found: NDArray[numpy.bool_] = (wakes < key[0]) | ((wakes == key[0]) & (offsets <= key[1]))
    return found
