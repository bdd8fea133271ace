from libc.stdint cimport int32_t, int64_t, uint8_t

from congreve.engine.log.commit_log cimport CommitLog
from congreve.engine.queue.consume_queue cimport ConsumeQueue
from congreve.records.filter.record_filter cimport FilterMemory, RecordFilter

# Numbers of GetStatus.
cdef enum GetCode:
    GET_FOUND
    GET_NO_MATCHED_MESSAGE
    GET_MESSAGE_WAS_REMOVING
    GET_OFFSET_FOUND_NULL
    GET_OFFSET_OVERFLOW_BADLY
    GET_OFFSET_OVERFLOW_ONE
    GET_OFFSET_TOO_SMALL
    GET_NO_MATCHED_LOGIC_QUEUE
    GET_NO_MESSAGE_IN_QUEUE
    GET_COLD                # the next message is on disk only: fetch from `cold_offset` on
    GET_DAMAGED             # the entry at `next_offset` leads to no record of its queue and offset

# Neighbouring records of one segment.
cdef struct Span:
    const uint8_t *data
    int64_t length
    int32_t segment

cdef enum:
    DESCRIPTOR_UNKNOWN = -2

# Where a span is in its segment's file.
cdef struct FilePart:
    int descriptor      # -1: the file has not all of it
    int64_t offset

cdef struct SegmentAt:
    int64_t base
    const uint8_t *data
    int descriptor      # as file_part() found it, DESCRIPTOR_UNKNOWN before


cdef class TagFilter:
    # Tag hashes that pass, sorted: the low 32 bits of an entry's tags code.
    cdef int32_t *codes
    cdef Py_ssize_t count
    cdef bint accepts(self, int64_t tags_code) noexcept nogil


cdef class Limits:
    # How much one answer may hold, near the end of the log (memory) and far behind it (disk).
    cdef readonly int64_t memory_bytes
    """Bytes of one answer near the end of the log (maxTransferBytesOnMessageInMemory)."""
    cdef readonly int32_t memory_count
    """Messages of one answer near the end of the log (maxTransferCountOnMessageInMemory)."""
    cdef readonly int64_t disk_bytes
    """Bytes of one answer far behind the end (maxTransferBytesOnMessageInDisk)."""
    cdef readonly int32_t disk_count
    """Messages of one answer far behind the end (maxTransferCountOnMessageInDisk)."""
    cdef readonly int64_t memory_window
    """Bytes before the end of the log that count as in memory."""


# A chunk of the log that was in memory at that time.
cdef struct WarmChunk:
    int64_t number
    int64_t seen_ms

cdef enum:
    WARM_CHUNKS = 1024


cdef class Gather:
    # One read of one queue, and its result; one thread uses it again and again. With `memory_only`
    # it never reads the log from disk: it returns GET_COLD, and finds more once that part of the
    # log was fetched.
    cdef bint memory_only
    cdef int64_t passes_before      # damaged entries before this offset are skipped
    cdef int32_t queue_id
    cdef int64_t cold_below         # from here on everything is in memory
    cdef int64_t warm_number        # of the chunk that was found in memory last
    cdef WarmChunk warm[WARM_CHUNKS]
    cdef CommitLog log
    cdef Limits limits
    cdef tuple segments             # that `table` was made of
    cdef SegmentAt *table
    cdef FilterMemory filter_memory     # its `work` is that of the last look
    cdef Span *spans
    cdef int32_t span_count
    cdef int32_t segment_count
    cdef int64_t log_begin
    cdef int64_t log_end

    cdef readonly GetCode status
    """What the look found, as a number of GetStatus."""
    cdef readonly int64_t next_offset
    """Queue offset to look from next."""
    cdef readonly int64_t min_offset
    """First offset of the queue."""
    cdef readonly int64_t max_offset
    """Offset after the queue's last entry that readers see."""
    cdef readonly int64_t stored_end
    """Offset of the queue's next entry."""
    cdef readonly int64_t size
    """Bytes found."""
    cdef readonly int32_t count
    """Messages found."""
    cdef readonly bint suggest_slave
    """Whether the reader is far behind the log's end (RocketMQ: suggestPullingFromSlave)."""
    cdef readonly int64_t cold_offset
    """Physical offset to fetch from disk, with GET_COLD."""

    # Looks from `offset` on for at most `max_count` messages; a filter that is None lets all pass.
    cdef int look(self, ConsumeQueue queue, int64_t offset, int32_t max_count,
                  TagFilter tags, RecordFilter records) except -1
    # The same without the GIL, where `file` holds the queue's file that begins at byte `base`.
    # False: look() must do it.
    cdef bint look_mapped(self, ConsumeQueue queue, const uint8_t *file, int64_t base,
                          int64_t offset, int32_t max_count, TagFilter tags,
                          RecordFilter records) noexcept nogil
    # Whether it maps segments that the log has deleted.
    cdef bint is_behind(self) noexcept nogil
    # What was found, as views on the log (where its pieces are large) or copied, `size` bytes.
    cdef bint in_views(self) noexcept nogil
    cdef list views(self)
    cdef object view(self, int32_t i, int64_t skipped)
    cdef void copy_to(self, char *at) noexcept nogil
    # The file that holds the first piece of the log, so that the kernel can send its pages.
    cdef FilePart file_part(self) noexcept nogil

    cdef void find_descriptor(self, int32_t segment) noexcept with gil
    # Whether there are entries to scan from `offset` on, up to `end`; sets the result if there are
    # none. `stored_end` is set.
    cdef bint begin(self, ConsumeQueue queue, int64_t offset, int64_t end) noexcept nogil
    # Up to where readers see the queue up to `stored_end`, if its file with this base shows that.
    cdef int64_t end_in_file(self, ConsumeQueue queue, const uint8_t *file,
                             int64_t base) noexcept nogil
    # Prepares a scan; False without memory for the filter.
    cdef bint begin_scan(self, ConsumeQueue queue, int64_t log_end,
                         RecordFilter records) noexcept nogil
    cdef int scan(self, ConsumeQueue queue, int64_t offset, int32_t max_count,
                  TagFilter tags, RecordFilter records) except -1
    cdef int64_t scan_file(self, const uint8_t *entries, int64_t count, int32_t max_count,
                           TagFilter tags, RecordFilter records) noexcept nogil
    cdef void fetch(self, int64_t physical_offset, int32_t segment) noexcept nogil

    # Where a place of the log is in its segment. `segment` is a guess before, the segment after.
    cdef inline int64_t place_in_segment(self, int64_t place, int32_t *segment) noexcept nogil:
        cdef int64_t size = self.log.segment_size
        cdef int64_t found = place - segment[0] * size
        if not 0 <= found < size:  # rarely, and a division costs more than this check
            segment[0] = <int32_t> (place // size)
            found = place % size
        return found

    cdef bint full(self, int64_t physical_offset, int32_t size, int32_t max_count) noexcept nogil
    cdef const uint8_t *find(self, int64_t physical_offset, int32_t size, int64_t offset,
                             int32_t *segment) noexcept nogil
    cdef bint is_warm(self, int64_t physical_offset, int32_t size) noexcept nogil
    cdef bint is_chunk_warm(self, int64_t number) noexcept nogil
    cdef void take(self, const uint8_t *record, int32_t size, int32_t segment) noexcept nogil
    cdef int refresh(self) except -1
