"""Where arriving bytes lie until they are whole frames.

All connections of one loop read into one buffer, because each is emptied before the next is read.
What is left of a chunk, the beginning of a frame, is stashed for its connection alone.
"""

from congreve.remoting.command import FRAME_MAX

COPIED_STASH_MAX = 32 * 1024
"""Bytes of a stash that are copied in front of the next chunk; a longer one gets its own buffer."""


class ReadBuffer:
    """The bytes that connections of one event loop read into by turns."""

    __slots__ = ("view",)

    def __init__(self, size: int = 512 * 1024) -> None:
        if size < 4 * COPIED_STASH_MAX:
            raise ValueError(f"read buffer of {size} bytes, at least {4 * COPIED_STASH_MAX}")
        self.view = memoryview(bytearray(size))


class Stash:
    """The beginning of a frame, kept while the rest is on its way."""

    __slots__ = ("_data", "_filled")

    def __init__(self, beginning: bytes) -> None:
        self._data = memoryview(bytearray(beginning))
        self._filled = len(beginning)

    def room(self, shared: ReadBuffer) -> memoryview:
        """Where to read the bytes that follow."""
        if self._filled <= COPIED_STASH_MAX:
            shared.view[: self._filled] = self._data[: self._filled]
            return shared.view[self._filled :]
        if self._filled == len(self._data):
            self._grow()
        return self._data[self._filled :]

    def arrived(self, shared: ReadBuffer, count: int) -> tuple[memoryview, int]:
        """All bytes at hand, and where they end, after `count` were read into room()."""
        if self._filled <= COPIED_STASH_MAX:
            return shared.view, self._filled + count
        self._filled += count
        return self._data, self._filled

    def held(self) -> tuple[memoryview, int]:
        """What is stashed, and where it ends."""
        return self._data, self._filled

    def _grow(self) -> None:
        # Doubled, not made as long as the frame says that it is: the peer has to send it first.
        grown = bytearray(min(2 * len(self._data), FRAME_MAX))
        grown[: self._filled] = self._data
        self._data = memoryview(grown)
