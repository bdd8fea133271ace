from libc.stdint cimport int32_t, int64_t, uint8_t

from congreve.engine.commitlog cimport Appended, CommitLog
from congreve.engine.queuemap cimport QueueMap
from congreve.io_backends.backend cimport Segment
from congreve.records.record cimport Message, RecordView
from congreve.records.restore cimport RestoreKind

cdef enum RedeliveryStop:
    REDELIVER_NEXT = 0      # this one is dealt with
    REDELIVER_DONE = 1      # nothing (more) is due, or enough was done
    REDELIVER_SOURCE = 2    # the record lies in a segment that is not at hand
    REDELIVER_QUEUE = 3     # its queue is not known yet
    REDELIVER_SEGMENT = 4   # the log needs its next segment
    REDELIVER_ROOM = 5      # its queue needs room


cdef class Redelivery:
    # Appends parked records to the queues that they were meant for; the log's one writer calls it.
    cdef CommitLog log
    cdef object queues
    cdef QueueMap known
    cdef Segment source         # where the record at hand lies
    cdef uint8_t *room
    cdef RestoreKind kind
    cdef RecordView parked
    cdef Message message
    cdef Appended appended
    cdef int64_t now_ms
    cdef int64_t byte_limit     # the run ends when the log has come so far
    cdef int64_t time_limit     # or the monotonic clock, in ns
    cdef int64_t at             # of the entry at hand
    cdef int64_t roll_ms
    cdef int64_t run_ns

    cdef readonly int64_t delivered
    cdef readonly int64_t skipped
    cdef readonly int64_t end
    cdef readonly int64_t next_due
    cdef readonly str failure

    cdef int begin(self, RestoreKind kind, int64_t now_ms) except -1
    cdef RedeliveryStop walk(self, const uint8_t *entries, int64_t stop,
                             int64_t delay_ms) noexcept nogil
    cdef RedeliveryStop walk_offsets(self, const int64_t *offsets, int64_t stop) noexcept nogil
    cdef RedeliveryStop one(self, int64_t physical_offset) noexcept nogil
    cdef bint enough(self) noexcept nogil
    cdef RedeliveryStop look(self, int64_t physical_offset) noexcept nogil
    cdef RedeliveryStop append(self) noexcept nogil
    cdef bint rolls(self) noexcept nogil
    cdef int resume(self, RedeliveryStop stop, int64_t physical_offset) except -1
    cdef int meet_queue(self) except -1
