from libc.stdint cimport int64_t

cdef extern from "<time.h>" nogil:
    """
    static inline int64_t congreve_monotonic_ns(void)
    {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return now.tv_sec * (int64_t) 1000000000 + now.tv_nsec;
    }
    """
    int64_t monotonic_ns "congreve_monotonic_ns"()


cdef class Clock:
    # Wall clock in milliseconds; subclass it to drive time in tests.
    cdef int64_t now_ms(self) noexcept nogil


cdef class ManualClock(Clock):
    cdef int64_t time_ms
