from libc.stdint cimport int64_t

cdef enum:
    BUCKETS = 20


cdef class PutTimes:
    cdef int64_t[BUCKETS] buckets
    cdef int64_t spent_ns
    cdef int64_t longest_ns

    # Counts messages, if there are any, whose request came at `begun_ns` of the monotonic clock.
    cdef void add(self, int64_t begun_ns, int64_t messages) noexcept nogil
