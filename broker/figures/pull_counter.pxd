from libc.stdint cimport int64_t


cdef class PullCounter:
    cdef int64_t pull_count
    cdef int64_t message_count
    cdef int64_t byte_count

    cpdef void add(self, int64_t messages, int64_t size) noexcept nogil
