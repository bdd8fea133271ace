"""Wall clocks: the system's clock, and one that tests set."""

from libc.stdint cimport int64_t
from posix.time cimport CLOCK_REALTIME, clock_gettime, timespec


cdef class Clock:
    """The system's wall clock (RocketMQ: SystemClock)."""

    cdef int64_t now_ms(self) noexcept nogil:
        cdef timespec t
        clock_gettime(CLOCK_REALTIME, &t)
        return <int64_t> t.tv_sec * 1000 + t.tv_nsec // 1000000

    def now(self):
        """Milliseconds since 1970 (RocketMQ: SystemClock.now)."""
        return self.now_ms()


cdef class ManualClock(Clock):
    """A clock that moves only when it is set."""

    def __init__(self, int64_t now_ms=0):
        self.time_ms = now_ms

    cdef int64_t now_ms(self) noexcept nogil:
        return self.time_ms

    def set(self, int64_t now_ms):
        """Move the clock to `now_ms`, in milliseconds since 1970."""
        self.time_ms = now_ms

    def advance(self, int64_t milliseconds):
        """Move the clock forward by this many milliseconds."""
        self.time_ms += milliseconds
