from libc.stdint cimport int64_t, uint8_t

from congreve.io_backends.backend cimport Backend, Segment
from congreve.io_backends.uring.window_extents cimport WindowExtents


cdef class ZeroWriter:
    # Guarded by the backend's lock:
    #   start, end  physical offsets: zeros are being written there, other writes must wait
    #   stopping    no more zeros are written
    cdef WindowExtents extents
    cdef const uint8_t *zeros
    cdef int64_t start
    cdef int64_t end
    cdef bint stopping
    cdef object thread

    # Zeros and syncs [start, end) of a file.
    cdef int fill(self, str path, int64_t start, int64_t end) except -1
    # Starts the thread for a segment that was not zeroed before its first use.
    cdef int start_behind(self, Backend backend, Segment segment) except -1
    # Waits for the threads.
    cdef int join(self) except -1
    cdef int write_behind(self, Backend backend, int fd, int64_t base, int64_t end) noexcept nogil
    cdef bint plan(self, Backend backend, int64_t base, int64_t end) noexcept nogil
    cdef int step(self, int fd, int64_t at, int64_t end) noexcept nogil
