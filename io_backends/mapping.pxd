from libc.stdint cimport int64_t, uint8_t


cdef class Mapping:
    # One file, mapped shared and whole. Holds no descriptor: ten thousand consume queues must not
    # need ten thousand of them. Unmapped when the last reference (or numpy view) goes.
    cdef readonly str path
    """Path of the file."""
    cdef readonly int64_t size
    """Bytes."""
    cdef readonly bint writable
    """Whether the mapping may be written to."""
    cdef uint8_t *data
    cdef int watched            # its number in bus_error.pyx
    cdef Py_ssize_t shape[1]
    cdef Py_ssize_t strides[1]

    # 0 or errno. [start, end) need not be page aligned.
    cdef int sync(self, int64_t start, int64_t end) noexcept nogil
    # Zeros over [start, end), written and synced: 0 or errno.
    cdef int write_zeros(self, int fd, int64_t start, int64_t end) noexcept nogil
    cdef void advise(self, int64_t start, int64_t end, int advice) noexcept nogil


# msync of the bytes [start, end) from `data` on, which is page aligned: 0 or errno.
cdef int sync_range(uint8_t *data, int64_t start, int64_t end) noexcept nogil
