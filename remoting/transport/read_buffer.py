"""Buffers of received bytes until they are whole frames.

All connections of one client read into one buffer, because each is emptied before the next is read.
The rest of a chunk, the beginning of a frame, is pending: it is kept for its connection.
"""

from congreve.remoting.wire.frame import FRAME_MAX

READ_BUFFER_SIZE = 512 * 1024
COPIED_MAX = 32 * 1024
"""Pending bytes that are copied in front of the next chunk; more have a buffer of their own."""

SIZE_FIELD = 4


def read_buffer() -> memoryview:
    """The memory that the connections of one client read into by turns."""
    return memoryview(bytearray(READ_BUFFER_SIZE))


class PendingBytes:
    """Bytes that are not whole frames yet, or came in a pause; `shared` is a read_buffer()."""

    __slots__ = ("_data", "filled")

    def __init__(self, beginning: bytes) -> None:
        self._data = memoryview(bytearray(beginning))
        self.filled = len(beginning)

    @property
    def has_own_buffer(self) -> bool:
        """Whether the next bytes go right after those that are here."""
        return self.filled > COPIED_MAX

    def free_part(self, shared: memoryview) -> memoryview:
        """The memory to read the next bytes into."""
        if not self.has_own_buffer:
            shared[: self.filled] = self._data[: self.filled]
            return shared[self.filled :]
        if self.filled == len(self._data):
            self._grow()
        return self._data[self.filled :]

    def arrived(self, shared: memoryview, count: int) -> tuple[memoryview, int]:
        """All bytes so far and where they end, after `count` were read into free_part()."""
        if not self.has_own_buffer:
            return shared, self.filled + count
        self.filled += count
        return self._data, self.filled

    def held(self) -> tuple[memoryview, int]:
        """The bytes so far, and where they end."""
        return self._data, self.filled

    def _grow(self) -> None:
        # Grows by a quarter of the received bytes, not to the size that the frame claims.
        size = len(self._data)
        frame = SIZE_FIELD + int.from_bytes(self._data[:SIZE_FIELD], "big")
        wanted = size + max(size // 4, COPIED_MAX)
        if frame > size:
            wanted = min(wanted, frame)
        grown = bytearray(min(wanted, FRAME_MAX))
        grown[: self.filled] = self._data
        self._data = memoryview(grown)
