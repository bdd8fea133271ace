from libc.stdint cimport int64_t


# How often another thread has taken the core from the calling one.
cdef int64_t lost_cores() noexcept nogil


cdef class BusyPoll:
    cdef int64_t window_ns
    cdef int64_t until_ns
    cdef int64_t paused_until_ns
    cdef int64_t pause_ns
    cdef int64_t lost

    cpdef void expect_more(self, int64_t now_ns) noexcept nogil
    cpdef bint is_due(self, int64_t now_ns) noexcept nogil
    cpdef bint is_allowed(self, int64_t now_ns) noexcept nogil
    cpdef void polled(self, int64_t now_ns, int64_t lost) noexcept nogil
