from libc.stdint cimport int64_t

from congreve.io_backends.backend cimport Backend, FileSegment
from congreve.io_backends.uring.ring cimport WriteRing
from congreve.io_backends.uring.window_extents cimport WindowExtents
from congreve.io_backends.uring.zeros cimport ZeroWriter
from congreve.io_backends.window cimport Window


cdef class UringSegment(FileSegment):
    # Maps its file, and the window from the first block that the backend writes in it.
    cdef UringBackend backend


cdef class UringBackend(Backend):
    # Guarded by `lock`:
    #   extents    where the window is shown
    #   zeros      other writes must wait for those that are being written
    #   ring       its writes
    #   target     everything below has been requested
    #   submitted  everything below is on disk or in one of `writes`
    #   others_wait  something was requested since the last write of write_here()
    cdef readonly Window window
    """The locked memory of appended bytes that are not on disk yet."""
    cdef WriteRing ring
    cdef bint running
    cdef WindowExtents extents
    cdef ZeroWriter zeros
    cdef int64_t target
    cdef int64_t submitted
    cdef bint others_wait
    cdef list attached

    cdef int64_t make_room(self, int64_t upto) noexcept nogil
    cdef bint may_retire(self, int64_t upto) noexcept nogil
    cdef void advance(self) noexcept nogil
    cdef bint renew(self) noexcept nogil
    cdef void settle(self, int failed) noexcept nogil
    cdef void send(self) noexcept nogil
    cdef void write_oldest(self) noexcept nogil
    cdef void plan(self) noexcept nogil
    cdef bint idle(self) noexcept nogil
    cdef void await_completion(self)
