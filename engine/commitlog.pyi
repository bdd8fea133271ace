from typing import NamedTuple, Self, final

from typing_extensions import Buffer

from congreve.engine.clock import Clock
from congreve.engine.consumequeue import ConsumeQueue
from congreve.io_backends.backend import Backend, Segment
from congreve.records.message import Record

class AppendResult(NamedTuple):
    """Where a record, or the records of a batch, went (RocketMQ: AppendMessageResult)."""

    physical_offset: int
    end: int
    """Physical offset behind the last record: durable up to here, the message is."""
    queue_offset: int
    store_timestamp: int
    """Milliseconds since 1970."""
    records: int

@final
class CommitLog:
    """All messages of all topics, one behind the other, in segments (RocketMQ: CommitLog).

    One thread appends; others may read. Life: load(), recovery's scan, set_end(), the backend's
    start(), appends, the backend's stop(), close(). A log without a segment skips set_end().
    """

    def __new__(cls, folder: str, segment_size: int, backend: Backend, clock: Clock) -> Self:
        """`segment_size` in bytes, below 2 GiB (StoreFormatError); nothing is opened yet."""
    @property
    def folder(self) -> str: ...
    @property
    def segment_size(self) -> int:
        """Bytes of each file."""
    @property
    def backend(self) -> Backend: ...
    @property
    def segments(self) -> tuple[Segment, ...]:
        """In offset order, without a gap."""
    @property
    def min_offset(self) -> int:
        """Physical offset of the first byte that is kept."""
    @property
    def max_offset(self) -> int:
        """Physical offset where the next record goes."""
    @property
    def last_store_timestamp(self) -> int:
        """Milliseconds since 1970 of the newest append of this run, 0 before it."""
    def load(self) -> None:
        """Open the files; all of them count as full until set_end().

        Files that are no segments are skipped with a warning (D27). StoreFormatError where sizes
        or names cannot be a log's; BackendError, StoreError.
        """
    def set_end(self, physical_offset: int, durable: int = 0) -> None:
        """Recovery's verdict: the log ends here (D6).

        Later segments are removed, and what stands behind the end is zeroed on disk. What lies
        between `durable` and the end is the backend's to sync: start it with `durable`.
        StoreFormatError where the log does not reach there.
        """
    def append_record(
        self, record: Record, queue: ConsumeQueue, tags_code: int | None = None
    ) -> AppendResult:
        """Append one message; `tags_code` replaces the hash of its TAGS in the queue's entry.

        MessageIllegalError for what no record or segment can hold (D1), RecordError for properties
        or hosts that cannot be encoded, BackendError; then nothing was appended.
        """
    def append_records(self, record: Record, batch: Buffer, queue: ConsumeQueue) -> AppendResult:
        """Append a batch body of the wire; `record` gives all but body, flag and tags.

        Its properties are added to each element's own. Errors as append_record(); all elements
        go into one segment or none is appended.
        """
    def next_segment(self) -> None:
        """Open the next segment unless the open one has room; BackendError."""
    def segment_at(self, physical_offset: int) -> Segment | None:
        """The segment that holds this offset; None outside of the log."""
    def read(self, physical_offset: int) -> memoryview | None:
        """The whole record that starts here, a view of the log; None where no sound one does."""
    def delete_oldest(self) -> None:
        """Let the first segment go, to be recycled once nobody views it; StoreError: the last."""
    def close(self) -> None:
        """Remove the segment that was prepared and not needed."""
