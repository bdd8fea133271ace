from libc.stdint cimport int64_t, uint8_t

from congreve.engine.index.index cimport KeyIndex
from congreve.engine.log.commit_log cimport CommitLog
from congreve.engine.recovery.scan cimport LogScanner


cdef class LogReceiver:
    cdef object store
    cdef CommitLog log
    cdef KeyIndex index
    cdef readonly int64_t received
    """Physical offset after the last byte that arrived."""
    cdef readonly int64_t last_record
    """Physical offset of the newest whole record, -1 if it is not known."""
    cdef LogScanner checker
    cdef LogScanner dispatcher
    cdef int64_t dispatched     # the queues have the entries of all records before it
    cdef set refused            # where bytes were refused that are not a record
    cdef int64_t searched       # no record that goes on behind them begins before it
    cdef set arrived

    # writable() and take() for compiled code. The first gives the address and the number of bytes;
    # after the second, has_arrived() says whether take_arrived() has queues.
    cdef int64_t writable_at(self, int64_t most, uint8_t **at) except -1 nogil
    cdef int take_bytes(self, int64_t count) except -1 nogil
    cdef bint has_arrived(self) noexcept nogil
    cdef set take_arrived(self)

    cdef int next_segment(self) except -1 with gil
    cdef int64_t whole_records_end(self) except -1 nogil
    cdef bint was_refused(self, int64_t position) except -1 with gil
    cdef int tell_damage(self, int64_t position, int64_t end) except -1 with gil
    cdef int64_t end_of_damage(self, int64_t position) except -1 with gil
    cdef bint goes_on(self, int64_t position, int stop)
    cdef int note_refused(self, int64_t position) except -1 with gil
    cdef int64_t end_of_partial(self, int64_t position, int stop) except -1 with gil
    cdef void publish(self, int64_t end) noexcept nogil
    cdef int dispatch(self) except -1 nogil
    cdef int find_segment(self, const uint8_t **data, int64_t *base) except -1 with gil
    cdef int64_t pass_header(self, int64_t limit) except -1 with gil
