from libc.stdint cimport int64_t, uint8_t

from congreve.engine.log.append_lock cimport AppendLock


cdef class HalfWindow:
    # One bit for each offset of the half queue from `origin` on: settled or still open.
    # Every offset below `base` is settled; every offset after the last bit is open. The
    # append lock guards the window; callers of the cdef methods hold it.
    cdef AppendLock lock
    cdef readonly int64_t base
    """The first offset that is still open."""
    cdef int64_t origin         # offset of the first bit; a multiple of 8, at most `base`
    cdef int64_t capacity       # bytes
    cdef uint8_t *bits
    cdef int64_t claimed        # the offset that the event loop settles now; -1: none

    cdef bint is_settled(self, int64_t offset) noexcept nogil
    # Returns whether the offset is neither settled nor claimed.
    cdef bint is_free(self, int64_t offset) noexcept nogil
    # Settles the offset. False if there is no memory for its bit.
    cdef bint settle(self, int64_t offset) noexcept nogil
    cdef bint has_room(self, int64_t offset) noexcept nogil
    cdef void slide(self) noexcept nogil
