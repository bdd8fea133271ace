"""Zeros for segments: the disk syncs blocks that were written before faster."""

cimport cython
from libc.errno cimport EIO, errno
from libc.stdint cimport int64_t, uint8_t
from posix.fcntl cimport O_CLOEXEC, O_RDWR, open as c_open
from posix.mman cimport MAP_ANONYMOUS, MAP_FAILED, MAP_PRIVATE, PROT_READ, mmap, munmap
from posix.unistd cimport close as c_close, fdatasync, pwrite

from congreve.base.pthread cimport pthread_mutex_lock, pthread_mutex_unlock
from congreve.io_backends.backend cimport Backend, Segment
from congreve.io_backends.uring.ring cimport blocks_end
from congreve.io_backends.uring.window_extents cimport Extent, WindowExtents

import os
import threading

from congreve.io_backends.errors import BackendError

cdef extern from "<fcntl.h>" nogil:
    int O_DIRECT

cdef enum:
    ZERO_STEP = 512 << 10   # longer writes of zeros delay other writes, shorter ones take longer
    ZERO_RUN = 64 << 20     # bytes of zeros that are synced at once


@cython.final
cdef class ZeroWriter:
    """Writes zeros to segments with O_DIRECT, before their first use or after appended bytes.

    Raises BackendError if there is no memory. (RocketMQ: MappedFile.warmMappedFile.)
    """

    def __cinit__(self, WindowExtents extents not None):
        cdef void *zeros = mmap(NULL, ZERO_STEP, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
        if zeros == MAP_FAILED:
            raise BackendError(f"cannot map {ZERO_STEP} zeros: {os.strerror(errno)}")
        self.zeros = <const uint8_t *> zeros
        self.extents = extents

    def __dealloc__(self):
        if self.zeros != NULL:
            munmap(<void *> self.zeros, ZERO_STEP)

    cdef int fill(self, str path, int64_t start, int64_t end) except -1:
        cdef int fd = c_open(os.fsencode(path), O_RDWR | O_DIRECT | O_CLOEXEC)
        cdef int64_t at = blocks_end(start)
        cdef int failed = EIO if fd < 0 else 0
        with nogil:
            while failed == 0 and at < end:
                failed = self.step(fd, at, end)
                at += ZERO_STEP
            if failed == 0 and fdatasync(fd) != 0:
                failed = errno
            if fd >= 0:
                c_close(fd)
        if failed:
            raise BackendError(f"cannot write zeros to {path}: {os.strerror(failed)}")
        return 0

    cdef int start_behind(self, Backend backend, Segment segment) except -1:
        if segment.prewritten >= segment.size:
            return 0
        thread = threading.Thread(
            target=self.run, args=(backend, segment, self.thread), name="prewrite", daemon=True
        )
        try:
            thread.start()
        except RuntimeError:
            return 0  # without a thread, writes only wait for the journal
        self.thread = thread
        return 0

    cdef int join(self) except -1:
        if self.thread is not None:
            self.thread.join()
        return 0

    def run(self, Backend backend, Segment segment, before):
        """Write zeros after the appended bytes of a segment in use; the body of the thread.

        It first waits for the thread `before`. A failed write is the backend's failure.
        """
        cdef int64_t base = segment.base_offset
        cdef int fd = c_open(os.fsencode(segment.path), O_RDWR | O_DIRECT | O_CLOEXEC)
        cdef int failed
        if before is not None:
            before.join()
        if fd < 0:
            return  # without a descriptor, writes only wait for the journal
        with nogil:
            pthread_mutex_lock(&backend.lock)
            failed = self.write_behind(backend, fd, base, base + segment.size)
            if failed != 0:
                backend.fail(failed)
            pthread_mutex_unlock(&backend.lock)
            c_close(fd)

    # The caller holds the backend's lock, which is released during disk writes. Returns 0 or errno.
    cdef int write_behind(self, Backend backend, int fd, int64_t base, int64_t end) noexcept nogil:
        cdef int64_t unsynced = 0
        cdef int failed = 0
        self.start = self.end = base
        while failed == 0 and self.plan(backend, base, end):
            pthread_mutex_unlock(&backend.lock)
            failed = self.step(fd, self.start - base, self.end - base)
            pthread_mutex_lock(&backend.lock)
            unsynced += self.end - self.start
            self.start = self.end
            pthread_mutex_unlock(&backend.lock)
            backend.request_durable(0)  # sends the writes that waited for these zeros
            # Without it later writes wait for the file system's journal.
            if failed == 0 and (unsynced >= ZERO_RUN or self.end == end):
                failed = errno if fdatasync(fd) != 0 else 0
                unsynced = 0
            pthread_mutex_lock(&backend.lock)
        return failed

    # The next step of zeros, after the mapped window, which is written anyway; false if none.
    cdef bint plan(self, Backend backend, int64_t base, int64_t end) noexcept nogil:
        cdef Extent *extent = self.extents.at(base)
        if self.stopping or backend.failure != 0 or extent == NULL or extent.base != base:
            return False
        self.start = max(self.end, extent.ready)
        self.end = min(self.start + ZERO_STEP, end)
        return self.start < end

    # Zeros from `at` on, ZERO_STEP or less: 0 or errno.
    cdef int step(self, int fd, int64_t at, int64_t end) noexcept nogil:
        cdef int64_t length = min(ZERO_STEP, end - at)
        cdef int64_t done = pwrite(fd, self.zeros, length, at)
        if done == length:
            return 0
        return errno if done < 0 else EIO
