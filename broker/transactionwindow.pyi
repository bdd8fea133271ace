from typing import final

@final
class HalfWindow:
    """Which half messages are settled, by their offset in the half queue: one bit each.

    All below `base` are; the window begins there and grows with what is settled behind it.
    """

    def __init__(self, base: int = 0) -> None: ...
    @property
    def base(self) -> int:
        """First offset that is still open."""
    def contains(self, offset: int) -> bool:
        """Whether this offset is settled."""
    def add(self, offset: int) -> None:
        """Settle one; `base` passes all that follow one another. MemoryError."""
    def start_at(self, base: int) -> None:
        """Forget everything; all below `base` is settled."""
    def open_offsets(self, stop: int) -> list[int]:
        """Offsets of [base, stop) that are not settled, in order."""
