from typing import final

@final
class ColumnBuffer:
    """Bytes of one column, exported through the buffer protocol (1-d, read-only)."""

    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
