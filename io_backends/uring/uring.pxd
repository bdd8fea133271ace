from libc.stdint cimport int64_t, uint8_t

from congreve.io_backends.backend cimport Backend, Segment
from congreve.io_backends.mapping cimport Mapping
from congreve.io_backends.uring.ring cimport Target, WriteRing
from congreve.io_backends.window cimport Window


# The data of an attached segment that code without the GIL needs.
cdef struct Extent:
    uint8_t *data
    const int64_t *written  # the segment's own, from its base
    int64_t base
    int64_t end
    int64_t ready       # the window is mapped up to here
    Target file
    Extent *next


cdef class UringSegment(Segment):
    # Maps its file, and the window from the first block that the backend writes in it.
    cdef readonly Mapping mapping
    """The mapping of the whole file."""
    cdef UringBackend backend


cdef class UringBackend(Backend):
    # Guarded by `lock`:
    #   first      attached segments in offset order, without those that have left the window
    #   ring       its writes
    #   target     everything below has been requested
    #   submitted  everything below is on disk or in one of `writes`
    #   shown      first physical offset in the window
    cdef readonly Window window
    """The locked memory of appended bytes that are not on disk yet."""
    cdef WriteRing ring
    cdef bint running
    cdef Extent *first
    cdef int64_t target
    cdef int64_t submitted
    cdef int64_t shown
    #   zero_from, zero_upto  zeros are being written there: other writes must wait
    #   stopping   no more zeros are written
    cdef const uint8_t *zeros
    cdef int64_t zero_from
    cdef int64_t zero_upto
    cdef bint stopping
    cdef list attached
    cdef object prewriter

    cdef int64_t make_room(self, int64_t upto) noexcept nogil
    cdef bint may_retire(self, int64_t upto) noexcept nogil
    cdef int show_window(self, Extent *extent, int64_t start, int64_t end) noexcept nogil
    cdef void advance(self) noexcept nogil
    cdef bint renew(self) noexcept nogil
    cdef void settle(self, int failed) noexcept nogil
    cdef void send(self) noexcept nogil
    cdef void plan(self) noexcept nogil
    cdef int write_zeros_behind(self, int fd, int64_t base, int64_t end) noexcept nogil
    cdef bint plan_zeros(self, int64_t base, int64_t end) noexcept nogil
    cdef Extent *extent_at(self, int64_t position) noexcept nogil
    cdef Extent *extent_of(self, UringSegment segment) except NULL
    cdef void join(self, Extent *extent) noexcept nogil
    cdef int show_tail(self, UringSegment segment, Extent *extent) except -1
    cdef bint idle(self) noexcept nogil
    cdef void await_completion(self)
