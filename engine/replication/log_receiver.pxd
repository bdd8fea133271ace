from libc.stdint cimport int64_t

from congreve.engine.log.commit_log cimport CommitLog


cdef class LogReceiver:
    cdef CommitLog log
    cdef readonly int64_t received
    """Physical offset after the last byte that arrived."""
    cdef readonly int64_t last_record
    """Physical offset of the newest whole record, -1 if it is not known."""
    cdef object checker         # LogScanners
    cdef object dispatcher
    cdef int64_t dispatched     # the queues have the entries of all records before it
    cdef set arrived

    cdef int64_t whole_records_end(self) except -1
    cdef void publish(self, int64_t end) noexcept nogil
    cdef dispatch(self)
