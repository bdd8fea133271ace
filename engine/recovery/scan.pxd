from libc.stdint cimport int64_t, uint8_t

from congreve.engine.queue.consume_queue cimport ConsumeQueue
from congreve.engine.queue.queue_map cimport QueueMap
from congreve.records.record cimport RecordView

cdef enum Stop:
    STOP_FAILED = -1            # an exception is set
    STOP_LIMIT = 0
    STOP_BLANK = 1
    STOP_END = 2
    STOP_BAD = 3
    STOP_QUEUE_UNKNOWN = 4      # scan_bytes() never returns these three
    STOP_QUEUE_ASKS = 5
    STOP_QUEUE_WATCHED = 6


cdef class LogScanner:
    cdef readonly int64_t position              # of the first record that was not processed
    """Physical offset of the first record that was not processed."""
    cdef readonly int64_t records
    """Number of records processed."""
    cdef readonly int64_t last_record
    """Physical offset of the last processed record, -1 before the first."""
    cdef readonly int64_t last_store_timestamp
    """Store time of that record in ms."""
    cdef readonly int64_t dispatched            # records that have an entry, or should
    """Records that have an entry, or with `compare` should have one."""
    cdef readonly list missing                  # (topic, queue id) that compare did not find
    """With `compare`: (topic, queue id) of missing queues that records name."""
    cdef readonly list found                    # of the entries that `collect` asks for
    """With `collect`: (queue offset, physical offset, size, tags code) of each record."""
    cdef int64_t searched                       # no record begins before it, by the last resync()
    cdef object queues
    cdef object report
    cdef bint verify_crc
    cdef bint compare
    cdef bint collect
    cdef bint grows
    cdef bint lags
    cdef set arrived
    cdef QueueMap known
    cdef list parking                           # the current rule first
    cdef const uint8_t *data                    # of the segment being walked, less its base offset
    cdef int64_t segment_end
    cdef RecordView view
    cdef bint has_arrived                       # `arrived` is not empty, until its user resets this

    # scan() of `size` bytes at `data`, with the GIL for records whose queue asks for it only.
    cdef Stop scan_bytes(self, const uint8_t *data, int64_t size, int64_t base_offset,
                         int64_t start, int64_t limit) except STOP_FAILED nogil
    cpdef int forget_queues(self) except -1
    cdef bint resume(self, Stop stop) except -1 with gil
    cdef Stop walk(self, int64_t limit, bint dispatching) noexcept nogil
    cdef bint torn_behind_the_body(self) noexcept nogil
    cdef void step(self) noexcept nogil
    cdef int64_t tags_code(self) noexcept nogil
    cdef bint learn_queue(self) except -1
    cdef note_arrival(self)
    cdef settle(self)
    cdef bint append(self, ConsumeQueue queue, int64_t tags_code) except -1
    cdef bint may_have(self, bytes topic, int64_t tags_code) except -1
    cdef compare_entry(self, ConsumeQueue queue, int64_t tags_code)
    cdef int64_t deliver_time(self, int64_t tags_code, rule=*)
    cdef int64_t next_record(self, int64_t start) noexcept nogil
