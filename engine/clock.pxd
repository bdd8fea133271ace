from libc.stdint cimport int64_t


cdef class Clock:
    # Wall clock in milliseconds; subclass it to drive time in tests.
    cdef int64_t now_ms(self) noexcept nogil


cdef class ManualClock(Clock):
    cdef int64_t time_ms
