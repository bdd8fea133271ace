from libc.stdint cimport int64_t, uint8_t

from congreve.engine.log.append_lock cimport AppendLock


cdef class HalfWindow:
    # One bit for each offset of the half queue from `origin` on: settled or still open.
    # Every offset below `base` is settled; every offset after the last bit is open. All of it
    # belongs to the append lock, which callers of the cdef methods hold.
    cdef AppendLock lock
    cdef readonly int64_t base
    """The first offset that is still open."""
    cdef int64_t origin         # offset of the first bit; a multiple of 8, at most `base`
    cdef int64_t capacity       # bytes
    cdef uint8_t *bits
    cdef int64_t claimed        # the event loop is ending this one; -1: none

    cdef bint is_settled(self, int64_t offset) noexcept nogil
    # Whether it is neither settled nor claimed.
    cdef bint is_free(self, int64_t offset) noexcept nogil
    # False when there is no memory for the bit.
    cdef bint settle(self, int64_t offset) noexcept nogil
    cdef bint has_room(self, int64_t offset) noexcept nogil
    cdef void slide(self) noexcept nogil
