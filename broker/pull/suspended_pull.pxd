from libc.stdint cimport int32_t, int64_t, uint8_t

from congreve.broker.pull.validated_pull cimport ValidatedPull, ValidatedPulls
from congreve.engine.read.gather cimport Gather
from congreve.remoting.wire.frame cimport Frame, Header


cdef class SuspendedPull:
    cdef readonly object connection
    """The connection of the pull."""
    cdef readonly bytes frame
    """The complete request."""
    cdef readonly ValidatedPull validated
    """The result of the pull's checks."""
    cdef readonly int64_t begun_ns
    """When the request arrived, by the monotonic clock."""
    cdef public bint polls
    """Whether it has waited for messages, not only for the disk."""
    cdef public double deadline
    """The latest time of its answer, in seconds of the loop's clock."""
    cdef public bint done
    """Whether the pull no longer waits."""
    cdef public object place
    """Its place in quotas, while it waits for messages."""
    cdef int64_t cold_offset    # the log offset that it has waited for; -1: none
    cdef int64_t damaged_offset  # the queue entry that was repaired for it; -1: none
    cdef int64_t offset         # after the entries that did not match
    cdef int32_t max_count
    cdef int32_t serialize_type
    cdef int32_t opaque


cdef class PullWaker:
    cdef ValidatedPulls validated_pulls
    cdef Gather gather
    cdef object resume
    cdef object wait_for_disk
    cdef object wait_for_repair
    cdef object charge
    cdef object answered
    cdef bint suspend(self, SuspendedPull held) except -1
    cdef bint scan(self, SuspendedPull held) except -1


# Bytes of a pull's frame that it keeps while it waits: not its body, which means nothing, unless it
# may be signed: its signature is then verified again.
cdef int32_t kept_size(const Frame *frame, const Header *header) noexcept nogil

# Writes the frame of kept_size() bytes.
cdef void put_kept(uint8_t *out, const Frame *frame, int32_t size) noexcept nogil

# Whether a pull at `offset` that got this status may wait for a message.
cdef bint may_wait(int status, int64_t offset) noexcept nogil

# Writes the head of the answer to a pull that found what `gather` holds, less than
# PULL_RESPONSE_MAX + PULL_REMARK_MAX bytes; the records follow it.
cdef Py_ssize_t put_found_head(uint8_t *at, Gather gather, int32_t serialize_type,
                               int32_t opaque) noexcept nogil

# Write the answer to a pull that found what `gather` holds.
cdef int answer_found(object connection, Gather gather, int32_t serialize_type,
                      int32_t opaque) except -1
