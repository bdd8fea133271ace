from libc.stdint cimport int64_t


# How often another thread has taken the core from the calling one.
cdef int64_t lost_cores() noexcept nogil


cdef class BusyPoll:
    cdef int64_t window_ns
    cdef int64_t until_ns
    cdef int64_t paused_until_ns
    cdef int64_t pause_ns
    cdef int64_t lost

    # Notes that more is probably coming soon: the polls after it need not sleep.
    cdef void expect_more(self, int64_t now_ns) noexcept nogil
    # Whether the thread may poll because more is expected.
    cdef bint is_due(self, int64_t now_ns) noexcept nogil
    # Whether the thread may poll at all, for a reason of its own.
    cdef bint is_allowed(self, int64_t now_ns) noexcept nogil
    # Notes a poll at this time, and how often the thread has lost its core so far.
    cdef void polled(self, int64_t now_ns, int64_t lost) noexcept nogil
