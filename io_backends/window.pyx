"""Memory for bytes that are not on disk yet, shown inside the segments that they belong to."""

cimport cython
from libc.errno cimport errno
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memset
from posix.mman cimport (
    MAP_ANONYMOUS, MAP_FAILED, MAP_FIXED, MAP_PRIVATE, MAP_SHARED, PROT_NONE, PROT_READ, PROT_WRITE,
    mmap, munmap,
)
from posix.unistd cimport close as c_close, ftruncate

from congreve.io_backends.page cimport PAGE

import os

from congreve.io_backends.errors import BackendError

cdef extern from "<sys/mman.h>" nogil:
    """
    #ifndef MREMAP_DONTUNMAP    /* C libraries before 2.32 */
    #define MREMAP_DONTUNMAP 4
    #endif
    """
    int MAP_POPULATE
    int MFD_CLOEXEC
    int MREMAP_DONTUNMAP, MREMAP_FIXED, MREMAP_MAYMOVE
    int memfd_create(const char *name, unsigned int flags)
    void *mremap(void *old, size_t old_size, size_t new_size, int flags, ...)


@cython.final
cdef class Window:
    """Page-aligned memory for the newest bytes of the log, as a ring that is used over and over.

    A segment maps the part that is being written into its own address range, and its file later:
    a reader of the segment's addresses sees the same bytes before and after they move to disk.
    (RocketMQ: TransientStorePool, with one small buffer for all segments.)

    `size` in bytes, a multiple of the page. Raises BackendError if there is no memory.
    """

    def __cinit__(self, int64_t size):
        cdef void *at
        self.fd = memfd_create("congreve-window", MFD_CLOEXEC)
        if self.fd < 0 or ftruncate(self.fd, size) != 0:
            raise BackendError(f"cannot make a window of {size} bytes: {os.strerror(errno)}")
        at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, self.fd, 0)
        if at == MAP_FAILED:
            raise BackendError(f"cannot map a window of {size} bytes: {os.strerror(errno)}")
        self.data = <uint8_t *> at
        self.size = size
        self.moves = self.try_move()

    # Kernels before 5.13 do not move such pages, but unmap the destination.
    cdef bint try_move(self):
        cdef bint moved
        cdef void *place = mmap(NULL, 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
        if place == MAP_FAILED:
            return False
        self.moves = True
        moved = (self.show(<uint8_t *> place, 0, PAGE) == 0
                 and self.move(<uint8_t *> place, <uint8_t *> place + PAGE, PAGE))
        munmap(place, 2 * PAGE)
        return moved

    def __dealloc__(self):
        if self.data != NULL:
            munmap(self.data, self.size)
        if self.fd >= 0:
            c_close(self.fd)

    cdef int64_t stretch(self, int64_t position) noexcept nogil:
        return self.size - position % self.size

    cdef bint move(self, uint8_t *old, uint8_t *at, int64_t length) noexcept nogil:
        cdef int flags = MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP
        self.moves = self.moves and mremap(old, length, length, flags, at) != MAP_FAILED
        return self.moves

    cdef void clear(self, int64_t position, int64_t length) noexcept nogil:
        cdef int64_t step
        while length > 0:
            step = min(length, self.stretch(position))
            memset(self.data + position % self.size, 0, step)
            position += step
            length -= step

    cdef int show(self, uint8_t *at, int64_t position, int64_t length) noexcept nogil:
        cdef int64_t step
        self.clear(position, length)
        while length > 0:
            step = min(length, self.stretch(position))
            if mmap(at, step, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_POPULATE,
                    self.fd, position % self.size) == MAP_FAILED:
                return errno
            at += step
            position += step
            length -= step
        return 0


cdef int show_file(uint8_t *at, int fd, int64_t offset, int64_t length) noexcept nogil:
    if length > 0 and mmap(at, length, PROT_READ, MAP_SHARED | MAP_FIXED, fd,
                           offset) == MAP_FAILED:
        return errno
    return 0
