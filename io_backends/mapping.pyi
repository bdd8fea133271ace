from typing import Any, Self, final

import numpy as np

@final
class Mapping:
    """One file mapped shared and whole, held without a descriptor (RocketMQ: MappedFile).

    Exports its bytes through the buffer protocol (1-d, itemsize 1); unmapped when the object and
    every view on it are gone. Raises BackendError, or SegmentSizeError where the file on disk has
    another size than asked for.
    """

    def __new__(cls, path: str, size: int, *, create: bool = False, writable: bool = True) -> Self:
        """Map `size` bytes of `path`; with `create` the file must not exist and is made sparse."""
    @property
    def path(self) -> str: ...
    @property
    def size(self) -> int:
        """Bytes."""
    @property
    def writable(self) -> bool: ...
    def array(self, dtype: Any = "u1") -> np.memmap[Any, Any]:
        """The whole file as a 1-d np.memmap of `dtype`, sharing this mapping."""
    def forget_pages(self, end: int) -> None:
        """Unmap the pages of [0, end), whole ones: the next look at them is a fault, the bytes are
        what they were."""
    def flush(self, start: int = 0, end: int | None = None) -> None:
        """msync bytes [start, end); BackendError where the kernel refuses."""
    def reserve(self, start: int, end: int) -> None:
        """Allocate disk blocks of [start, end): a full disk is an error now, not a SIGBUS."""
    def zero_from(self, start: int) -> None:
        """Make every byte from `start` to the end zero, on disk, before returning."""
    def prewrite(self, start: int, end: int) -> None:
        """Write zeros to [start, end) and sync them; the blocks stay. BackendError."""
    def __buffer__(self, flags: int, /) -> memoryview: ...
