from libc.stdint cimport int32_t, int64_t, uint8_t
from congreve.base.atomic cimport load_acquire
from congreve.base.clock cimport Clock
from congreve.engine.log.append_lock cimport AppendLock
from congreve.engine.queue.consume_queue cimport ConsumeQueue
from congreve.io_backends.backend cimport Backend, Segment
from congreve.records.record cimport Message

cdef struct Appended:
    int64_t physical_offset     # of the (first) record
    int64_t end                 # physical offset after the (last) record: durable up to here
    int64_t queue_offset        # of the (first) record
    int64_t store_timestamp
    int32_t count

cdef enum AppendStatus:
    APPEND_OK = 0
    APPEND_NEXT_SEGMENT = 1     # the segment was ended, or none is open: next_segment(), retry
    APPEND_QUEUE_ROOM = 2       # nothing was written: call queue.make_room(), retry
    APPEND_TOO_LARGE = 3        # the record can never fit into a segment (defect D1)
    APPEND_ILLEGAL = 4          # a length is over the format's limit, or a batch body is malformed


cdef class CommitLog:
    # The log: segments in order, one writer. Only this class assigns physical offsets.
    cdef readonly str folder
    """The folder of the segment files."""
    cdef readonly int64_t segment_size
    """Bytes of each file."""
    cdef readonly Backend backend
    """The backend that makes the log durable."""
    cdef readonly AppendLock lock
    """Held while a record is appended; its callers take it."""
    cdef Clock clock
    cdef Segment active
    cdef readonly tuple segments
    """In offset order, without a gap."""
    cdef readonly int64_t max_offset
    """Physical offset where the next record goes."""
    cdef readonly int64_t min_offset
    """Physical offset of the first byte that the log still holds."""
    cdef int64_t unchecked_end  # pulls check the CRC of bodies that begin before it
    cdef int64_t shown          # readers see the records that end at or before it
    cdef readonly int64_t last_store_timestamp
    """Milliseconds since 1970 of the newest append of this run, 0 before it."""
    cdef int64_t last_record        # the last whole record of this run, -1 before it
    cdef int64_t next_report        # the offset at which the writer next reports its position
    cdef bint starved               # the backend had no memory for the current record
    cdef int follower               # an eventfd that the next append signals, -1 for none
    cdef int64_t prepare_at         # from here on the next segment is prepared
    cdef Segment made           # it is in the folder, but the backend could not open it yet
    cdef object files           # FileSystem
    cdef object preparation

    # Encodes one record into the open segment and its entry into `queue`, in one pass: offset,
    # queue offset and CRC are given here; `now_ms` is its store time. Prepared and rolled-back
    # transaction types get no entry and queue offset 0.
    cdef AppendStatus append(self, const Message *message, ConsumeQueue queue, int64_t now_ms,
                             Appended *appended) noexcept nogil
    # A whole batch body (docs/formats/record.md), all or nothing within one segment, also when the
    # process is killed meanwhile. `message` gives all but body, properties, flag and tags code.
    # APPEND_QUEUE_ROOM requests disk space for all of its entries, and for a later file; after it
    # only the queue's next stretch is reserved, with the GIL.
    cdef AppendStatus append_batch(self, const Message *message, const uint8_t *batch,
                                   int32_t length, ConsumeQueue queue, int64_t now_ms,
                                   Appended *appended) noexcept nogil
    # Opens the next segment (prepared ahead where possible). BackendError; also where append()
    # asked for it because the backend has no memory for more until the disk has caught up.
    cpdef next_segment(self)
    # Signals this eventfd once, at the next append; look at `max_offset` then. For any thread.
    cdef void signal_append(self, int event_fd) noexcept nogil
    # Whether the queue has an entry that readers do not see yet.
    cdef inline bint hides(self, ConsumeQueue queue) noexcept nogil:
        return load_acquire(&queue.max_physical) > load_acquire(&self.shown)
    # All below is on disk.
    cdef inline int64_t durable_offset(self) noexcept nogil:
        return load_acquire(&self.backend.durable)
    # The segment holding a physical offset, or None.
    cpdef Segment segment_at(self, int64_t physical_offset)

    cdef object open_segment(self, Segment segment, bint first)
    cdef bint has_room(self, int64_t size) noexcept nogil
    cdef void write(self, const Message *message, int64_t size, ConsumeQueue queue,
                    int64_t store_timestamp) noexcept nogil
    cdef int64_t encode_batch(self, Message *element, const uint8_t *batch, int32_t length,
                              const Appended *appended) noexcept nogil
    cdef void report_position(self) noexcept nogil
    cdef bint retry(self, AppendStatus status, ConsumeQueue queue) except -1
