from libc.stdint cimport int32_t, int64_t, uint8_t

from congreve.records.filter.value cimport Value


cdef class FilterMemory:
    # What one thread needs to run filters; all runs of the thread use it, one after the other.
    cdef Value *values
    cdef int32_t count      # of `values`
    # The cost of all runs, in units of about a nanosecond; its owner sets it to 0.
    cdef int64_t work

    # Makes `values` large enough for the filter. False without memory.
    cdef bint fit(self, RecordFilter records) noexcept nogil


cdef class RecordFilter:
    # Decides whether a message passes. Subclasses override accepts_properties, which adds its cost
    # to `memory.work`. Any thread may run it, with a FilterMemory of its own that fits.
    cdef int32_t values     # number of Values that a run needs
    cdef readonly int64_t size
    """Bytes of memory that the filter uses."""
    cdef bint accepts(self, const uint8_t *record, int32_t size,
                      FilterMemory memory) noexcept nogil
    cdef bint accepts_properties(self, const uint8_t *properties, int32_t length,
                                 FilterMemory memory) noexcept nogil
