"""The backend that maps files: appends are stores to memory, a thread makes them durable."""

from typing import Self, final

from congreve.io_backends.backend import Backend, Segment
from congreve.io_backends.mapping import Mapping

@final
class MappedSegment(Segment):
    """A segment in the page cache."""

    def __new__(cls, mapping: Mapping, base_offset: int, written: int) -> Self: ...
    @property
    def mapping(self) -> Mapping: ...

@final
class MmapBackend(Backend):
    """msync of the dirty range in groups, on one thread that never holds the GIL while it works.

    (RocketMQ: MappedFile and CommitLog.GroupCommitService.) A group is all that was asked for
    when the last one ended. After the first failed sync nothing becomes durable any more.
    """

    def __new__(cls, fault_ahead: int = 16 << 20, *, prewrites: bool = False) -> Self:
        """`fault_ahead`: bytes of fresh pages kept ready in front of the writer; 0 for none.

        `prewrites` pays where each group is synced: a sync of blocks that were never written
        commits the file system's journal as well.
        """
    @property
    def fault_ahead(self) -> int: ...
    def run_flush(self) -> None:
        """The flush thread's body; start() runs it."""
    def run_faults(self) -> None:
        """The body of the thread that has pages faulted in ahead of the writer."""
