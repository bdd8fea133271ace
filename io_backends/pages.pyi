"""Which pages of a mapped segment are in memory, and what the kernel is told about them."""

from congreve.io_backends.backend import Segment

def fetch(segment: Segment, start: int, end: int) -> None:
    """Read [start, end) of the segment from disk now; returns when it is in memory.

    Without the interpreter's lock. Pages that the disk cannot bring are left out: whoever touches
    them meets the failure.
    """

def retire(segment: Segment, start: int, end: int) -> None:
    """[start, end) was read once: the kernel takes its pages before any that are in use."""
