from libc.stdint cimport int32_t, int64_t

from congreve.broker.pulltickets cimport PullTicket, PullTickets
from congreve.engine.reader cimport Gather


cdef class HeldPull:
    cdef readonly object connection
    cdef readonly bytes frame
    cdef readonly PullTicket ticket
    cdef public double deadline
    cdef public bint done
    cdef int64_t cold_offset    # of the log, waited for; -1: nothing was
    cdef int64_t offset         # moves over entries that were looked at and did not match
    cdef int32_t max_count
    cdef int32_t serialize_type
    cdef int32_t opaque


cdef class PullWaker:
    cdef PullTickets tickets
    cdef Gather gather
    cdef object resume
    cdef object wait_for_disk
    cdef bint suspend(self, HeldPull held) except -1
    cdef bint look(self, HeldPull held) except -1


# Whether a pull at `offset` that got this status may wait for a message.
cdef bint may_wait(int status, int64_t offset) noexcept nogil

# Write the answer to a pull that found what `gather` holds.
cdef int answer_found(object connection, Gather gather, int32_t serialize_type,
                      int32_t opaque) except -1
