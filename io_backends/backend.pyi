"""The seam between the store and the disk: what a backend is.

A backend creates and opens the commit log's segments, gives their memory, and makes appended bytes
durable. `mapped.MmapBackend` is the first; pool and io_uring implement the same two classes.
"""

from typing_extensions import Buffer, disjoint_base

@disjoint_base
class Segment:
    """One fixed-size commit-log file as memory (RocketMQ: MappedFile).

    Exports [0, size) through the buffer protocol; only [0, written) is meaningful.
    """

    @property
    def path(self) -> str: ...
    @property
    def base_offset(self) -> int:
        """Physical offset of the first byte."""
    @property
    def size(self) -> int:
        """Bytes."""
    @property
    def written(self) -> int:
        """Bytes appended so far."""
    @property
    def prewritten(self) -> int:
        """Up to here prewrite() has come."""
    @property
    def is_lent(self) -> bool:
        """Whether the file's pages may be on their way to readers: it must not be used again."""
    def append(self, data: Buffer) -> bool:
        """Copy bytes behind `written`, which moves; only the one writer may.

        False, and nothing happened, where the segment or the backend has no room for them now.
        """
    def forget_pages(self, end: int) -> None:
        """Let [0, end) count no more as this process's memory where it lies in a file's pages.

        Whoever reads there finds the same bytes, after a fault.
        """
    def flush(self) -> None:
        """Make [0, written) durable before returning (recovery; not for the running log)."""
    def zero_tail(self) -> None:
        """Zero and reserve everything behind `written`, on disk, before returning.

        Recovery's cut: what was there must not come back. BackendError.
        """
    def prewrite(self, upto: int | None = None) -> None:
        """Write zeros behind `written` and sync them, for a segment that is not attached yet.

        Up to `upto`, a multiple of 4096, or to the end; the next call goes on there.
        Blocks that were written once are synced faster than blocks that are only reserved.
        A recycled segment, opened with nothing written, is whole zeros afterwards. BackendError.
        """
    def __buffer__(self, flags: int, /) -> memoryview: ...

@disjoint_base
class Backend:
    """Creates segments and makes what was appended to them durable."""

    @property
    def name(self) -> str:
        """What `ioBackend` calls it."""
    @property
    def prewrites(self) -> bool:
        """Whether a new segment should be given prewrite() before it is used."""
    @property
    def event_fd(self) -> int:
        """Readable whenever `durable_offset` or `failure_errno` moved."""
    @property
    def durable_offset(self) -> int:
        """Every byte below this physical offset survives a power cut."""
    @property
    def failure_errno(self) -> int:
        """0, or the errno of the first failed write or sync."""
    @property
    def free_buffers(self) -> int:
        """How many a pool still has; 2147483647 where there is none (availableBufferNums)."""
    def create(self, path: str, base_offset: int, size: int) -> Segment:
        """A new, zeroed, reserved file; BackendError (a full disk, ...) leaves nothing behind."""
    def open(self, path: str, base_offset: int, size: int, written: int) -> Segment:
        """An existing file of which [0, written) is meaningful."""
    def rename(self, segment: Segment, path: str, base_offset: int) -> None:
        """Put a segment that was created elsewhere into its place in the log (folder synced)."""
    def attach(self, segment: Segment) -> None:
        """From now on `segment` is part of what is made durable; segments come in offset order."""
    def start(self, durable_offset: int) -> None:
        """Begin serving; all below `durable_offset` is durable already (end of recovery)."""
    def request(self, upto: int) -> None:
        """Ask that all below `upto` becomes durable; returns at once."""
    def write_through(self, upto: int) -> bool:
        """Like request(), but where one write is all that is needed, it is done before returning.

        True: `upto` is durable, and the eventfd does not tell. For a caller who is alone: to be
        woken when a write is done can take as long as the write.
        """
    def wait_durable(self, upto: int, timeout_s: float) -> bool:
        """Ask for `upto` and block until it is durable (True), or failed or late (False)."""
    def stop(self) -> None:
        """Make everything written durable, then end; idempotent."""

def sync_file_system(folder: str) -> None:
    """Make all that was written on the file system of `folder` durable; BackendError."""

def sync_folder(folder: str) -> None:
    """Make the entries of `folder` durable; OSError."""
