from libc.stdint cimport int32_t, int64_t

from congreve.broker.pull.validated_pull cimport ValidatedPull, ValidatedPulls
from congreve.engine.queue.reader cimport Gather


cdef class HeldPull:
    cdef readonly object connection
    """The connection that the pull came over."""
    cdef readonly bytes frame
    """The whole request."""
    cdef readonly ValidatedPull validated
    """The checks of the pull."""
    cdef public double deadline
    """When the pull is answered in any case, in seconds of the loop's clock."""
    cdef public bint done
    """Whether the pull waits no longer."""
    cdef int64_t cold_offset    # of the log: what the pull waited for; -1: it did not
    cdef int64_t damaged_offset  # of the queue: what was repaired for it; -1: nothing
    cdef int64_t offset         # moves past entries that did not match
    cdef int32_t max_count
    cdef int32_t serialize_type
    cdef int32_t opaque


cdef class PullWaker:
    cdef ValidatedPulls validated_pulls
    cdef Gather gather
    cdef object resume
    cdef object wait_for_disk
    cdef object wait_for_repair
    cdef bint suspend(self, HeldPull held) except -1
    cdef bint look(self, HeldPull held) except -1


# Whether a pull at `offset` that got this status may wait for a message.
cdef bint may_wait(int status, int64_t offset) noexcept nogil

# Write the answer to a pull that found what `gather` holds.
cdef int answer_found(object connection, Gather gather, int32_t serialize_type,
                      int32_t opaque) except -1
