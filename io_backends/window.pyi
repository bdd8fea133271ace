from typing import Self, final

@final
class Window:
    """Page-aligned memory for the newest bytes of the log, as a ring that is used over and over.

    A segment shows the part that is being written inside its own address range, and its file
    behind that: who reads by the segment's address sees the same bytes before and after they
    moved to disk. (RocketMQ: TransientStorePool, with one small buffer for all segments.)
    """

    def __new__(cls, size: int) -> Self:
        """`size` in bytes, a multiple of the page; BackendError where there is no memory."""
    @property
    def size(self) -> int:
        """Bytes."""
