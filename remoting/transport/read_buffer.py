"""Buffers of received bytes until they are whole frames.

All connections of one loop read into one buffer, because each is emptied before the next is read.
The rest of a chunk, the beginning of a frame, is stashed for its connection.
"""

import logging
import sys
import time
from collections.abc import Callable
from typing import Protocol

from congreve.base.limited_log import LimitedLog
from congreve.remoting.wire.frame import FRAME_MAX

logger = logging.getLogger(__name__)

COPIED_STASH_MAX = 32 * 1024
"""Bytes of a stash that are copied in front of the next chunk; a longer one gets its own buffer."""

SIZE_FIELD = 4


class Stashing(Protocol):
    """The interface of a connection that has a stash."""

    reading_paused: bool

    def drop_stash(self) -> None:
        """Drop the received bytes."""

    def abort(self) -> None:
        """Close at once."""


class ReadBuffer:
    """The bytes that connections of one event loop read into by turns, and all their stashes.

    `stashed` counts the bytes of memory that the stashes take; beyond `stashed_max`, shed() closes
    the connections with the largest ones. `clock` gives seconds.
    """

    __slots__ = ("_clock", "_log", "cut_count", "stashed", "stashed_max", "stashes", "view")

    def __init__(
        self,
        size: int = 512 * 1024,
        *,
        stashed_max: int = sys.maxsize,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if size < 4 * COPIED_STASH_MAX:
            raise ValueError(f"read buffer of {size} bytes, at least {4 * COPIED_STASH_MAX}")
        self.view = memoryview(bytearray(size))
        self.stashed = 0
        self.stashed_max = stashed_max
        self.stashes: dict[Stashing, Stash] = {}
        self.cut_count = 0
        self._clock = clock
        self._log = LimitedLog(logger, clock=clock)

    def stash(self, owner: Stashing, beginning: bytes, *, same_frame: bool) -> "Stash":
        """Keep the beginning of a frame; of the `same_frame` as the owner's stash before it."""
        old = self.drop(owner)
        since = self._clock() if old is None or not same_frame else old.since
        fresh = self.stashes[owner] = Stash(beginning, since)
        self.stashed += fresh.size
        return fresh

    def drop(self, owner: Stashing) -> "Stash | None":
        """Forget an owner's stash."""
        old = self.stashes.pop(owner, None)
        if old is not None:
            self.stashed -= old.size
        return old

    def shed(self) -> None:
        """Close the connections with the largest stashes until an eighth of `stashed_max` is
        free."""
        if self.stashed <= self.stashed_max:
            return
        for owner in sorted(self.stashes, key=lambda owner: -self.stashes[owner].size):
            if self.stashed <= self.stashed_max - self.stashed_max // 8:
                return
            self._cut(owner, f"unfinished frames of all connections take {self.stashed} bytes")

    def cut_late(self, timeout_s: float, bytes_per_s: int) -> None:
        """Close the connections whose frame is incomplete after `timeout_s`.

        A frame of which more arrived has a second more for each `bytes_per_s`.
        """
        now = self._clock()
        for owner, stash in list(self.stashes.items()):
            if owner.reading_paused:
                stash.since = now  # this side has paused reading
            elif now - stash.since > timeout_s + stash.filled / bytes_per_s:
                self._cut(owner, f"a frame is not whole after {now - stash.since:.0f} s")

    def _cut(self, owner: Stashing, why: str) -> None:
        self.cut_count += 1
        held = self.stashes[owner].filled
        self._log.warning("%r: %s, %d bytes came from here: closing it", owner, why, held)
        owner.drop_stash()
        owner.abort()


class Stash:
    """The beginning of a frame, until the rest arrives."""

    __slots__ = ("_data", "filled", "since")

    def __init__(self, beginning: bytes, since: float) -> None:
        self._data = memoryview(bytearray(beginning))
        self.filled = len(beginning)
        self.since = since

    @property
    def size(self) -> int:
        """Bytes of memory that it takes."""
        return len(self._data)

    @property
    def has_own_buffer(self) -> bool:
        """Whether the next bytes go right after those that are here."""
        return self.filled > COPIED_STASH_MAX

    def free_part(self, shared: ReadBuffer) -> memoryview:
        """The memory to read the next bytes into."""
        if not self.has_own_buffer:
            shared.view[: self.filled] = self._data[: self.filled]
            return shared.view[self.filled :]
        if self.filled == len(self._data):
            shared.stashed += self._grow()
        return self._data[self.filled :]

    def arrived(self, shared: ReadBuffer, count: int) -> tuple[memoryview, int]:
        """All bytes so far and where they end, after `count` were read into free_part()."""
        if not self.has_own_buffer:
            return shared.view, self.filled + count
        self.filled += count
        return self._data, self.filled

    def held(self) -> tuple[memoryview, int]:
        """The stashed bytes, and where they end."""
        return self._data, self.filled

    def _grow(self) -> int:
        # Grows by a quarter of the received bytes, not to the size that the frame claims.
        size = len(self._data)
        frame = SIZE_FIELD + int.from_bytes(self._data[:SIZE_FIELD], "big")
        wanted = size + max(size // 4, COPIED_STASH_MAX)
        if frame > size:
            wanted = min(wanted, frame)
        grown = bytearray(min(wanted, FRAME_MAX))
        grown[: self.filled] = self._data
        self._data = memoryview(grown)
        return len(grown) - size
