"""When a thread may look for more work instead of sleeping."""

cimport cython
from libc.stdint cimport int64_t

from posix.resource cimport getrusage, rusage

cdef extern from "<sys/resource.h>" nogil:
    int RUSAGE_THREAD

cdef enum:
    PAUSE_MIN_NS = 10_000_000
    PAUSE_MAX_NS = 1_000_000_000


cdef int64_t lost_cores() noexcept nogil:
    """How often another thread has taken the core from the calling one."""
    cdef rusage usage
    getrusage(RUSAGE_THREAD, &usage)
    return usage.ru_nivcsw


@cython.final
cdef class BusyPoll:
    """Polling for `window_s` seconds after a sign of more work, while no thread needs the core.

    A thread that polls lets another one wait for the core until its time slice ends, some
    milliseconds; the other one may be the kernel's, which ends the write that the poll is for. One
    that sleeps gets the core soon after it wakes. So polls pause once the thread has lost its core
    in a poll for the disk, and a pause that begins soon after the previous one is twice as long.
    (RocketMQ has no counterpart.)
    """

    def __cinit__(self, double window_s):
        self.window_ns = <int64_t> (window_s * 1e9)
        self.pause_ns = PAUSE_MIN_NS

    cpdef void expect_more(self, int64_t now_ns) noexcept nogil:
        """Note a sign of more work at `now_ns`, in ns of a monotonic clock."""
        self.until_ns = now_ns + self.window_ns

    cpdef bint is_due(self, int64_t now_ns) noexcept nogil:
        """Whether to poll at `now_ns`, because more work is expected."""
        return now_ns < self.until_ns and self.is_allowed(now_ns)

    cpdef bint is_allowed(self, int64_t now_ns) noexcept nogil:
        """Whether the thread may poll at `now_ns`, for a reason of its own."""
        return now_ns >= self.paused_until_ns

    cpdef void polled(self, int64_t now_ns, int64_t lost) noexcept nogil:
        """Note a poll at `now_ns`, and how often the thread has lost its core so far."""
        cdef bint soon = now_ns - self.paused_until_ns < self.pause_ns
        if lost == self.lost:
            return
        self.lost = lost
        self.pause_ns = min(2 * self.pause_ns, <int64_t> PAUSE_MAX_NS) if soon else PAUSE_MIN_NS
        self.paused_until_ns = now_ns + self.pause_ns
