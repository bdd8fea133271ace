from libc.stdint cimport int32_t, int64_t, uint8_t


cdef class RecordFilter:
    # Decides whether a message passes. Subclasses override accepts_properties, which adds its cost
    # to `work`, in units of about a nanosecond.
    cdef int64_t work
    cdef readonly int64_t size
    """Bytes of memory that the filter uses."""
    cdef bint accepts(self, const uint8_t *record, int32_t size) noexcept nogil
    cdef bint accepts_properties(self, const uint8_t *properties, int32_t length) noexcept nogil
