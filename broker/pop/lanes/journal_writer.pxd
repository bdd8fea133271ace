from libc.stdint cimport int64_t

from congreve.base.byte_buffer cimport ByteBuffer
from congreve.engine.log.commit_log cimport AppendStatus, CommitLog
from congreve.engine.pop.in_flight cimport InFlight
from congreve.engine.queue.consume_queue cimport ConsumeQueue
from congreve.records.record cimport Message


cdef class PopJournalWriter:
    cdef InFlight in_flight
    cdef CommitLog log
    cdef ConsumeQueue queue     # of the journal; None before the first record
    cdef Message message
    cdef bytes topic
    cdef ByteBuffer entries     # of the record to append; guarded by the log's lock, as is the rest
    cdef int64_t next_offset
    cdef int64_t end_offset
    cdef int64_t size

    # Appends all changes so far. False: only write() can, and nothing is lost.
    cdef bint append(self) noexcept nogil
    # The log's end after the last record.
    cdef int64_t end_now(self) noexcept nogil

    cdef AppendStatus try_append(self) noexcept nogil
    cdef bint take_entries(self) noexcept nogil
