"""The open files of the newest segments, and the part of them that shows the window."""

cimport cython
from libc.errno cimport errno
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from posix.fcntl cimport O_CLOEXEC, O_RDWR, open as c_open
from posix.unistd cimport close as c_close

from congreve.io_backends.backend cimport Segment
from congreve.io_backends.uring.ring cimport BLOCK, FILE_SLOTS, WriteRing, block_of
from congreve.io_backends.window cimport Window, show_file

import os

from congreve.io_backends.errors import BackendError

cdef extern from "<fcntl.h>" nogil:
    int O_DIRECT


@cython.final
cdef class WindowExtents:
    """The attached segments that the window is in, for code without the GIL.

    `ring` gets their files. (RocketMQ has no counterpart.)
    """

    def __cinit__(self, Window window not None, WriteRing ring not None):
        self.window, self.ring = window, ring

    def __dealloc__(self):
        cdef Extent *extent
        while self.first != NULL:
            extent = self.first
            self.first = extent.next
            c_close(extent.file.fd)
            free(extent)

    cdef Extent *open(self, Segment segment) except NULL:
        cdef Extent *extent = <Extent *> malloc(sizeof(Extent))
        cdef int fd, failed
        if extent == NULL:
            raise MemoryError
        fd = c_open(os.fsencode(segment.path), O_RDWR | O_DIRECT | O_CLOEXEC)
        if fd < 0:
            failed = errno
            free(extent)
            raise BackendError(
                f"cannot open {segment.path} past the page cache: {os.strerror(failed)}", failed
            )
        extent.data, extent.next = segment.data, NULL
        extent.written = &segment.written
        extent.base = extent.ready = extent.file.base = segment.base_offset
        extent.end = segment.base_offset + segment.size
        extent.file.fd = fd
        extent.file.slot = -1
        # Some of many small segments get no slot: earlier files in use have theirs.
        if self.first == NULL or extent.base < self.first.base + FILE_SLOTS * segment.size:
            extent.file.slot = self.ring.slot_for(extent.base // segment.size, fd)
        return extent

    cdef void append(self, Extent *extent) noexcept nogil:
        cdef Extent **last = &self.first
        while last[0] != NULL:
            last = &last[0].next
        last[0] = extent

    cdef void drop_before(self, int64_t offset) noexcept nogil:
        cdef Extent *first
        while self.first != NULL and self.first.end <= offset:
            first = self.first
            self.first = first.next
            c_close(first.file.fd)
            free(first)

    cdef Extent *at(self, int64_t position) noexcept nogil:
        cdef Extent *extent = self.first
        while extent != NULL and extent.end <= position:
            extent = extent.next
        return extent

    # Moving pages is quicker than unmapping and mapping them again.
    cdef int show(self, Extent *extent, int64_t start, int64_t end) noexcept nogil:
        cdef Extent *first
        cdef uint8_t *old
        cdef int64_t length
        cdef bint moved
        cdef int error
        while self.shown < end - self.window.size:
            first = self.first
            old = first.data + self.shown - first.base
            length = min(min(end - self.window.size, first.end) - self.shown,
                         self.window.stretch(self.shown))
            moved = (self.shown + self.window.size == start
                     and self.window.move(old, extent.data + start - extent.base, length))
            error = show_file(old, first.file.fd, self.shown - first.base, length)
            if error != 0:
                return error
            if moved:
                self.window.clear(start, length)
                start += length
            self.shown += length
            if self.shown == first.end:
                self.first = first.next
                c_close(first.file.fd)
                free(first)
        return self.window.show(extent.data + start - extent.base, start, end - start)

    cdef int open_tail(self, Segment segment) except -1:
        cdef Extent *extent = self.open(segment)
        self.append(extent)
        return self.show_tail(segment, extent)

    cdef int show_tail(self, Segment segment, Extent *extent) except -1:
        cdef int64_t start = block_of(segment.written)
        cdef int64_t length = segment.written - start
        cdef uint8_t *head
        extent.ready = extent.base + start
        segment.ready = start
        if length == 0:
            return 0
        head = <uint8_t *> PyMem_Malloc(BLOCK)
        if head == NULL:
            raise MemoryError
        memcpy(head, segment.data + start, length)
        error = self.window.show(segment.data + start, extent.ready, BLOCK)
        memcpy(segment.data + start, head, length)
        PyMem_Free(head)
        if error:
            raise BackendError(f"cannot map the window into {segment.path}: {os.strerror(error)}")
        extent.ready += BLOCK
        segment.ready += BLOCK
        return 0
