from libc.stdint cimport int64_t, uint8_t


cdef class HalfWindow:
    # One bit for each offset of the half queue from `origin` on: settled or still open.
    # Every offset below `base` is settled; every offset after the last bit is open.
    cdef readonly int64_t base
    """The first offset that is still open."""
    cdef int64_t origin         # offset of the first bit; a multiple of 8, at most `base`
    cdef int64_t capacity       # bytes
    cdef uint8_t *bits

    cdef bint is_settled(self, int64_t offset) noexcept nogil
    # False when there is no memory for the bit.
    cdef bint settle(self, int64_t offset) noexcept nogil
    cdef bint has_room(self, int64_t offset) noexcept nogil
    cdef void slide(self) noexcept nogil
