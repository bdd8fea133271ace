from libc.stdint cimport int64_t, uint8_t


cdef class Window:
    # A ring of memory that can be shown at other addresses: byte p of the log is at p % size.
    cdef readonly int64_t size
    """Bytes."""
    cdef int fd
    cdef uint8_t *data
    cdef bint moves         # pages from one address to another

    cdef bint try_move(self)
    # The number of contiguous bytes of the ring from `position` on.
    cdef int64_t stretch(self, int64_t position) noexcept nogil
    # Zeroes [position, position + length) and shows it at `at`; all are multiples of a page.
    # 0 or errno.
    cdef int show(self, uint8_t *at, int64_t position, int64_t length) noexcept nogil
    # Shows at `at` the pages that are shown at `old`, which shows them still; False: it cannot.
    cdef bint move(self, uint8_t *old, uint8_t *at, int64_t length) noexcept nogil
    # Zeroes bytes after the written ones: old bytes there must not reach the disk.
    cdef void clear(self, int64_t position, int64_t length) noexcept nogil


# Maps [offset, offset + length) of a file at `at`, replacing the mapping there: 0 or errno.
cdef int show_file(uint8_t *at, int fd, int64_t offset, int64_t length) noexcept nogil
