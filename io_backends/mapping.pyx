"""A file mapped into memory; this module creates all mappings of files."""

from libc.errno cimport EEXIST, EIO, ENOENT, ENOMEM, EOPNOTSUPP, errno
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset
from cpython.buffer cimport PyBUF_WRITABLE
from posix.fcntl cimport O_CLOEXEC, O_CREAT, O_EXCL, O_RDONLY, O_RDWR, O_WRONLY, open as c_open
from posix.mman cimport (
    MADV_DONTNEED, MAP_FAILED, MAP_SHARED, MS_SYNC, PROT_READ, PROT_WRITE, mmap, msync, munmap,
)
from posix.stat cimport fstat, struct_stat
from posix.unistd cimport close as c_close, fdatasync, ftruncate, pwrite, unlink

from congreve.io_backends.bus_error cimport forget, watch
from congreve.io_backends.page cimport PAGE

import os

import numpy

from congreve.io_backends.errors import BackendError, SegmentSizeError, SyncError

cdef extern from "<fcntl.h>" nogil:
    int FALLOC_FL_KEEP_SIZE
    int FALLOC_FL_PUNCH_HOLE
    int fallocate(int fd, int mode, int64_t offset, int64_t length)

cdef extern from "<sys/mman.h>" nogil:
    int madvise(void *addr, size_t length, int advice)


cdef int64_t ZEROS = 4 << 20  # bytes written at once
cdef int64_t ZEROS_SYNCED = 32 << 20  # bytes synced at once, because other syncs wait for them


cdef int sync_range(uint8_t *data, int64_t start, int64_t end) noexcept nogil:
    cdef int64_t first = start - start % PAGE
    if end > first and msync(data + first, end - first, MS_SYNC) != 0:
        return errno
    return 0


cdef class Mapping:
    """A complete file, mapped shared, without an open descriptor (RocketMQ: MappedFile).

    It maps the `size` bytes of `path`; with `create` the file must not exist and is created
    sparse. It exports its bytes through the buffer protocol (1-d, itemsize 1), and is unmapped
    when the object and all its views have been freed. Raises BackendError, and SegmentSizeError
    if the file on disk has another size.
    """

    def __cinit__(self, str path, int64_t size, *, bint create=False, bint writable=True):
        cdef int fd = -1
        cdef int failed
        cdef int flags = (O_RDWR if writable else O_RDONLY) | O_CLOEXEC
        cdef struct_stat info
        cdef void *at
        if size <= 0:
            raise BackendError(f"cannot map {path}: its size must be positive, not {size}")
        self.path, self.size, self.writable = path, size, writable
        cdef bytes name = os.fsencode(path)
        cdef const char *at_name = name
        if create:
            flags |= O_CREAT | O_EXCL
        with nogil:  # a slow disk holds up no other thread
            fd = c_open(at_name, flags, 0o644)
            failed = errno
        if fd < 0:
            if failed == EEXIST:
                raise BackendError(f"cannot create {path}: it already exists")
            if failed == ENOENT:
                raise BackendError(f"cannot open {path}: no such file or folder")
            raise BackendError(f"cannot open {path}: {os.strerror(failed)}", failed)
        try:
            if create:
                with nogil:
                    failed = errno if ftruncate(fd, size) != 0 else 0
                if failed:
                    raise BackendError(
                        f"cannot resize {path} to {size} bytes: {os.strerror(failed)}", failed
                    )
            if fstat(fd, &info) != 0:
                raise BackendError(f"cannot stat {path}: {os.strerror(errno)}", errno)
            if info.st_size != size:
                raise SegmentSizeError(
                    f"{path} has {info.st_size} bytes, but the settings say {size}: "
                    "use the file sizes that the store was written with"
                )
            at = mmap(NULL, size, PROT_READ | (PROT_WRITE if writable else 0), MAP_SHARED, fd, 0)
            if at == MAP_FAILED:
                failed = errno
                raise BackendError(
                    f"cannot map {path} ({size} bytes): {os.strerror(failed)}", failed
                )
            self.data = <uint8_t *> at
            self.watched = watch(self.data, size)
        except BackendError:
            if create:
                unlink(name)
            raise
        finally:
            c_close(fd)

    def __dealloc__(self):
        if self.data != NULL:
            forget(self.watched)
            munmap(self.data, self.size)

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        if flags & PyBUF_WRITABLE and not self.writable:
            raise BufferError(f"{self.path} is mapped read-only")
        self.shape[0] = self.size
        self.strides[0] = 1
        buffer.buf = self.data
        buffer.obj = self
        buffer.len = self.size
        buffer.itemsize = 1
        buffer.readonly = not self.writable
        buffer.ndim = 1
        buffer.format = NULL
        buffer.shape = self.shape
        buffer.strides = self.strides
        buffer.suboffsets = NULL
        buffer.internal = NULL

    def array(self, dtype="u1"):
        """The whole file as a 1-d np.memmap of `dtype`, sharing this mapping."""
        itemsize = numpy.dtype(dtype).itemsize
        return numpy.ndarray.__new__(
            numpy.memmap, shape=(self.size // itemsize,), dtype=dtype, buffer=self
        )

    cdef int sync(self, int64_t start, int64_t end) noexcept nogil:
        return sync_range(self.data, start, min(end, self.size))

    cdef void advise(self, int64_t start, int64_t end, int advice) noexcept nogil:
        cdef int64_t first = start - start % PAGE
        if end > first:
            madvise(self.data + first, end - first, advice)

    def forget_pages(self, int64_t end):
        """Drop the whole pages of [0, end) from resident memory; an access loads them again."""
        with nogil:
            self.advise(0, min(end, self.size), MADV_DONTNEED)

    def flush(self, int64_t start=0, end=None):
        """msync bytes [start, end). Raises SyncError."""
        cdef int64_t stop = self.size if end is None else end
        cdef int failed
        with nogil:
            failed = self.sync(start, stop)
        if failed:
            raise SyncError(f"cannot sync {self.path}: {os.strerror(failed)}", failed)

    def reserve(self, int64_t start, int64_t end):
        """Allocate disk blocks for [start, end), so that a full disk cannot cause a SIGBUS later.

        Raises BackendError.
        """
        cdef int64_t length = min(end, self.size) - start
        cdef int failed = 0
        cdef int fd
        if length <= 0:
            return
        fd = c_open(os.fsencode(self.path), O_RDWR | O_CLOEXEC)
        if fd < 0:
            failed = errno
            raise BackendError(
                f"cannot reserve room in {self.path}: {os.strerror(failed)}", failed
            )
        with nogil:
            if fallocate(fd, FALLOC_FL_KEEP_SIZE, start, length) != 0:
                failed = errno
            c_close(fd)
        if failed and failed != EOPNOTSUPP:
            raise BackendError(
                f"cannot reserve bytes {start} to {end} of {self.path}: {os.strerror(failed)}",
                failed,
            )

    def zero_from(self, int64_t start):
        """Set all bytes from `start` to the end to zero and sync them. Raises BackendError."""
        cdef int fd = c_open(os.fsencode(self.path), O_RDWR | O_CLOEXEC)
        cdef int failed = errno
        if fd < 0:
            raise BackendError(
                f"cannot zero the tail of {self.path}: {os.strerror(failed)}", failed
            )
        with nogil:
            failed = zero_tail(self, fd, start)
            c_close(fd)
        if failed:
            raise SyncError(
                f"cannot zero the tail of {self.path}: {os.strerror(failed)}", failed
            )

    def prewrite(self, int64_t start, int64_t end):
        """Write zeros to [start, end) and sync them; the blocks stay. Raises BackendError."""
        cdef int fd = c_open(os.fsencode(self.path), O_WRONLY | O_CLOEXEC)
        cdef int failed = errno
        if fd >= 0:
            with nogil:
                failed = self.write_zeros(fd, start, end)
                c_close(fd)
        if failed:
            raise BackendError(
                f"cannot write zeros to {self.path}: {os.strerror(failed)}", failed
            )

    cdef int write_zeros(self, int fd, int64_t start, int64_t end) noexcept nogil:
        cdef int failed = 0
        cdef int64_t length
        # Large steps are quicker, because they get large folios of the page cache.
        cdef void *zeros = calloc(1, ZEROS)
        if zeros == NULL:
            return ENOMEM
        while failed == 0 and start < end:
            length = pwrite(fd, zeros, min(ZEROS, end - start), start)
            start += max(length, 0)
            if length <= 0:
                failed = errno if length < 0 else EIO
            elif start % ZEROS_SYNCED < length and fdatasync(fd) != 0:
                failed = errno
        if failed == 0 and fdatasync(fd) != 0:
            failed = errno
        free(zeros)
        return failed


# The blocks after the first full page are punched out of the file, and read as zero.
cdef int zero_tail(Mapping mapping, int fd, int64_t start) noexcept nogil:
    cdef int64_t aligned = min((start + PAGE - 1) // PAGE * PAGE, mapping.size)
    cdef int failed
    if start >= mapping.size:
        return 0
    # A ring whose process was killed may still be writing here past the page cache, and would
    # fail the sync of what is changed now. The file system waits for it before it allocates;
    # whether there is free space does not matter here.
    fallocate(fd, FALLOC_FL_KEEP_SIZE, start, 1)
    memset(mapping.data + start, 0, aligned - start)
    if aligned < mapping.size and fallocate(
        fd, FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE, aligned, mapping.size - aligned
    ) != 0:
        if errno != EOPNOTSUPP:
            return errno
        memset(mapping.data + aligned, 0, mapping.size - aligned)
    failed = mapping.sync(start, mapping.size)
    if failed == 0 and fdatasync(fd) != 0:
        return errno
    return failed
