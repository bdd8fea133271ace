"""The backend of locked buffers: appends touch no file, one thread writes and syncs them."""

from typing import Self, final

from congreve.io_backends.backend import Backend, Segment
from congreve.io_backends.mapping import Mapping
from congreve.io_backends.window import Window

@final
class PoolSegment(Segment):
    """A segment in a buffer of the pool; in the page cache as soon as all of it is on disk."""

    def __new__(cls, mapping: Mapping, base_offset: int, written: int) -> Self: ...
    @property
    def mapping(self) -> Mapping: ...

@final
class PoolBackend(Backend):
    """RocketMQ: TransientStorePool, with MappedFile.commit and CommitRealTimeService.

    Unlike there, readers see what is in a buffer at once, SYNC_FLUSH works too, buffers are made
    when they are first needed, and a missing one refuses messages instead of using the file.
    """

    def __new__(
        cls,
        *,
        buffers: int = 5,
        locked: bool = True,
        prewrites: bool = False,
        commit_interval_ms: int = 200,
        commit_least_pages: int = 4,
        commit_thorough_ms: int = 200,
    ) -> Self:
        """At most so many `buffers`, each of a segment's size; BackendError for less than one.

        `locked`: buffers that may not be locked in memory (RLIMIT_MEMLOCK) are an error.
        Commits give whole pages to the kernel; what is synced is asked for by request().
        """
    @property
    def limit(self) -> int:
        """Buffers at most."""
    @property
    def locked(self) -> bool: ...
    @property
    def commit_interval_ms(self) -> int: ...
    @property
    def commit_least_pages(self) -> int: ...
    @property
    def commit_thorough_ms(self) -> int: ...
    @property
    def free_buffers(self) -> int:
        """Buffers that a new segment may still get (RocketMQ: remainTransientStoreBufferNumbs)."""
    def borrow(self, segment: PoolSegment) -> Window:
        """A free buffer, from now on the segment's; NoBufferError, BackendError."""
    def new_buffer(self, size: int) -> Window:
        """A buffer, locked where that is wanted; BackendError."""
    def run_writes(self) -> None:
        """The body of the thread; start() runs it."""
