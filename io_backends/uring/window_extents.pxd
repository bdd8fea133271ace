from libc.stdint cimport int64_t, uint8_t

from congreve.base.atomic cimport load_acquire
from congreve.io_backends.backend cimport Segment
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


cdef inline int64_t written_end(const Extent *extent) noexcept nogil:
    return extent.base + load_acquire(extent.written)


cdef class WindowExtents:
    # Guarded by the backend's lock:
    #   first      attached segments in offset order, without those that have left the window
    #   shown      first physical offset in the window
    cdef Window window
    cdef WriteRing ring
    cdef Extent *first
    cdef int64_t shown

    # Opens the file of a segment, which append() adds after all others.
    cdef Extent *open(self, Segment segment) except NULL
    cdef void append(self, Extent *extent) noexcept nogil
    # open() and append() for the log's last segment: the window begins at the block with its end.
    cdef int open_tail(self, Segment segment) except -1
    # The first extent that ends after a physical offset, NULL without one.
    cdef void drop_before(self, int64_t offset) noexcept nogil
    cdef Extent *at(self, int64_t position) noexcept nogil
    # Maps the window at [start, end), and files at the addresses that it had one window before;
    # returns 0 or errno.
    cdef int show(self, Extent *extent, int64_t start, int64_t end) noexcept nogil
    cdef int show_tail(self, Segment segment, Extent *extent) except -1
