"""The backend that maps files: appends are stores to memory, a thread makes them durable."""

from typing import final

from congreve.io_backends.backend import Backend, Segment
from congreve.io_backends.mapping import Mapping

@final
class MappedSegment(Segment):
    """A segment in the page cache."""

    def __init__(self, mapping: Mapping, base_offset: int, written: int) -> None: ...
    @property
    def mapping(self) -> Mapping: ...

@final
class MmapBackend(Backend):
    """msync of the dirty range in groups, on one thread that never holds the GIL while it works.

    (RocketMQ: MappedFile and CommitLog.GroupCommitService.) A group is all that was asked for
    when the last one ended. After the first failed sync nothing becomes durable any more.
    """

    def run(self) -> None:
        """The flush thread's body; start() runs it."""
