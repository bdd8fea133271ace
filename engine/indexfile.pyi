from collections.abc import Iterator
from typing import final

@final
class IndexFile:
    """One file of the key index (RocketMQ: IndexFile, IndexHeader); one thread adds."""

    def __init__(
        self,
        path: str,
        slots: int,
        capacity: int,
        *,
        create: bool = False,
        end_physical: int = 0,
        end_timestamp: int = 0,
        writable: bool = True,
    ) -> None:
        """`capacity` - 1 entries fit. A new file begins where the one before it ended.

        One that is not writable is only asked.

        BackendError, SegmentSizeError, StoreFormatError.
        """
    @property
    def path(self) -> str: ...
    @property
    def slots(self) -> int: ...
    @property
    def capacity(self) -> int: ...
    @property
    def count(self) -> int:
        """Number of the next entry; 1 in an empty file."""
    @property
    def full(self) -> bool: ...
    @property
    def begin_timestamp(self) -> int:
        """Store time of the first entry's message, ms."""
    @property
    def end_timestamp(self) -> int:
        """Store time of the last entry's message, ms."""
    @property
    def begin_physical(self) -> int: ...
    @property
    def end_physical(self) -> int:
        """Physical offset of the last entry's message."""
    def add(self, key_hash: int, physical_offset: int, store_timestamp: int) -> bool:
        """One entry (RocketMQ: putKey); False when the file is full, BackendError without room."""
    def make_room(self) -> None:
        """Allocate the next stretch of entries; BackendError."""
    def find(self, key_hash: int, begin_ms: int, end_ms: int) -> Iterator[int]:
        """Physical offsets under that hash, newest first, found as they are asked for.

        Some may be of other times: the record itself knows better.
        """
    def flush(self) -> None:
        """Everything to disk; BackendError."""
