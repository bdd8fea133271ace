"""The interface between the store and the disk, and what every backend shares.

A backend creates and opens the commit log's segments, provides their memory, and makes appended
bytes durable.
"""

from libc.errno cimport EIO, ETIMEDOUT, errno
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcmp, memcpy
from cpython.buffer cimport (
    PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer,
)
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec
from posix.unistd cimport close as c_close, write as c_write

from congreve.base.atomic cimport (
    load_acquire, load_acquire_int, store_release, store_release_int,
)
from congreve.base.pthread cimport (
    pthread_cond_broadcast, pthread_cond_destroy, pthread_cond_init, pthread_cond_timedwait,
    pthread_condattr_init, pthread_condattr_setclock, pthread_condattr_t,
    pthread_mutex_destroy, pthread_mutex_init, pthread_mutex_lock, pthread_mutex_unlock,
)
from congreve.io_backends.bus_error cimport bus_errors

import os

from congreve.io_backends.errors import BackendError, SyncError

cdef extern from "<unistd.h>" nogil:
    int syncfs(int fd)

cdef extern from "<sys/uio.h>" nogil:
    """
    #include <errno.h>
    #include <unistd.h>

    /* memcpy() that fails where memory is not writable, for memory that another thread may be
       about to replace by a file. Returns 0 or errno. */
    static inline int congreve_write_memory(void *at, const void *data, size_t length)
    {
        while (length > 0) {
            struct iovec from = {(void *) data, length}, to = {at, length};
            ssize_t written = process_vm_writev(getpid(), &from, 1, &to, 1, 0);
            if (written <= 0)
                return written < 0 ? errno : EFAULT;
            at = (char *) at + written;
            data = (const char *) data + written;
            length -= (size_t) written;
        }
        return 0;
    }
    """
    int write_memory "congreve_write_memory"(void *at, const void *data, size_t length)

cdef extern from "<sys/eventfd.h>" nogil:
    int EFD_CLOEXEC
    int EFD_NONBLOCK
    int eventfd(unsigned int value, int flags)


cdef int NO_POOL = 0x7FFFFFFF  # RocketMQ's value when no pool limits the buffers


cdef class Segment:
    """One fixed-size commit-log file as memory (RocketMQ: MappedFile).

    Exports [0, size) through the buffer protocol; only [0, written) is meaningful.
    """

    cdef bint extend(self, int64_t upto) noexcept nogil:
        return upto <= self.ready

    cdef void publish(self, int64_t written) noexcept nogil:
        store_release(&self.written, written)

    cdef int64_t published(self) noexcept nogil:
        return load_acquire(&self.written)

    cdef int64_t published_end(self) noexcept nogil:
        return self.base_offset + load_acquire(&self.written)

    cdef int descriptor(self) noexcept:
        return -1

    @property
    def is_sent_from(self):
        """Whether sockets may still hold pages of the file: it must not be recycled."""
        return False

    @property
    def written(self):
        """Bytes appended so far."""
        return self.published()

    def append(self, data):
        """Copy bytes after `written` and advance it; only the one writer may call this.

        `data` is any contiguous buffer. Returns False, without a change, if the segment or the
        backend has no space for them now (RocketMQ: MappedFile.appendMessage).
        """
        cdef Py_buffer given
        cdef bint extended
        PyObject_GetBuffer(data, &given, PyBUF_SIMPLE)
        extended = self.extend(self.written + given.len)
        if extended:
            memcpy(self.data + self.written, given.buf, given.len)
            self.publish(self.written + given.len)
        PyBuffer_Release(&given)
        return extended

    def forget_pages(self, int64_t end):
        """Remove the pages of [0, end) from this process's resident memory.

        The bytes stay readable: the next access loads them with a page fault.
        """
        pass

    def flush(self):
        """Make [0, written) durable before returning (for recovery, not for the running log).

        Raises BackendError.
        """
        raise NotImplementedError

    def zero_tail(self):
        """Zero and reserve everything after `written`, on disk, before returning.

        Recovery calls it, so that bytes after the log's end cannot come back. Raises BackendError.
        """
        raise NotImplementedError

    def prewrite(self, upto=None):
        """Write zeros after `written` and sync them, before the segment is attached.

        It stops at `upto`, a multiple of 4096, or at the end; the next call continues there.
        The disk syncs blocks that were written before faster than blocks that are only reserved.
        A recycled segment, opened with `written` 0, holds only zeros afterwards. Raises
        BackendError. (RocketMQ: MappedFile.warmMappedFile.)
        """
        cdef int64_t end = self.size if upto is None else min(<int64_t> upto, self.size)
        if end > self.prewritten:
            self.write_zeros(max(self.prewritten, self.written), end)
            self.prewritten = end

    def write_zeros(self, int64_t start, int64_t end):
        """Write zeros to [start, end) of the file and sync them. Raises BackendError."""
        raise NotImplementedError

    def correct(self, int64_t start, data):
        """Let memory show what its file has at `start`; True if it had other bytes.

        Memory that is not the file's page cache may have them: a backend's own, or a page that the
        disk could not read. Raises BackendError if they cannot be changed.
        """
        cdef Py_buffer given
        cdef bint differs
        cdef int failed = 0
        PyObject_GetBuffer(data, &given, PyBUF_SIMPLE)
        differs = memcmp(self.data + start, given.buf, given.len) != 0
        if differs:
            failed = write_memory(self.data + start, given.buf, given.len)
        PyBuffer_Release(&given)
        if failed:
            raise BackendError(
                f"cannot change bytes of {self.path} in memory: {os.strerror(failed)}", failed
            )
        return bool(differs)

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self.data, self.size, True, flags)


cdef class FileSegment(Segment):
    """A segment that maps its file. Subclasses set what may be written (RocketMQ: MappedFile)."""

    def __cinit__(self, Mapping mapping, int64_t base_offset, int64_t written, *_):
        self.mapping, self.path, self.base_offset = mapping, mapping.path, base_offset
        self.size, self.data, self.written = mapping.size, mapping.data, written

    def zero_tail(self):
        """Zero and reserve everything after `written`, on disk. Raises BackendError, SyncError."""
        self.mapping.zero_from(self.written)
        self.mapping.reserve(self.written, self.size)

    def flush(self):
        """Sync [0, written) of the mapping before returning. Raises SyncError."""
        self.mapping.flush(0, self.written)

    def write_zeros(self, int64_t start, int64_t end):
        """Write zeros to [start, end) of the file and sync them. Raises BackendError."""
        self.mapping.prewrite(start, end)


cdef Mapping new_file(str path, int64_t size):
    cdef Mapping mapping = Mapping(path, size, create=True)
    try:
        mapping.reserve(0, size)
        mapping.flush()
        sync_folder(os.path.dirname(path))
    except (BackendError, OSError) as error:
        os.unlink(path)
        raise BackendError(
            f"cannot create {path} of {size} bytes: {error}", error.errno or 0
        ) from error
    return mapping


cdef Mapping old_file(str path, int64_t size, int64_t written):
    if not 0 <= written <= size:
        raise BackendError(f"{path} has {size} bytes, of which {written} cannot be written")
    return Mapping(path, size)


cdef class Backend:
    """Creates segments and makes appended bytes durable (RocketMQ: FlushCommitLogService)."""

    def __cinit__(self):
        cdef pthread_condattr_t attributes
        pthread_mutex_init(&self.lock, NULL)
        pthread_condattr_init(&attributes)
        pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC)
        pthread_cond_init(&self.moved, &attributes)
        self.bus_errors = bus_errors()
        self.follower = -1
        self.event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)
        if self.event_fd < 0:
            raise BackendError(f"cannot create an eventfd: {os.strerror(errno)}")

    def __dealloc__(self):
        if self.event_fd >= 0:
            c_close(self.event_fd)
        pthread_cond_destroy(&self.moved)
        pthread_mutex_destroy(&self.lock)

    @property
    def name(self):
        """The backend's name in the setting `ioBackend`."""
        raise NotImplementedError

    @property
    def durable_offset(self):
        """Every byte below this physical offset survives a power cut."""
        return load_acquire(&self.durable)

    @property
    def flush_count(self):
        """How often more bytes became durable since the start, each time a group of sends."""
        return load_acquire(&self.moves)

    @property
    def failure_errno(self):
        """0, or the errno of the first failed write or sync."""
        if self.failure == 0 and bus_errors() != self.bus_errors:
            pthread_mutex_lock(&self.lock)
            self.lost_page()
            pthread_mutex_unlock(&self.lock)
        return load_acquire_int(&self.failure)

    @property
    def free_buffers(self):
        """Number of free buffers of the pool; 2147483647 without a pool (availableBufferNums)."""
        return NO_POOL

    cdef void request_durable(self, int64_t upto) noexcept nogil:
        pass

    cdef bint write_here(self, int64_t upto) noexcept nogil:
        self.request_durable(upto)
        return False

    cdef void reached(self, int64_t position) noexcept nogil:
        pass

    cdef void skip(self, int64_t offset) noexcept nogil:
        pass

    cdef bint lost_page(self) noexcept nogil:
        if bus_errors() == self.bus_errors:
            return False
        self.fail(EIO)
        return True

    cdef void succeed(self, int64_t durable) noexcept nogil:
        # A sync succeeds even if a page no longer belongs to its file.
        if self.lost_page():
            return
        if self.failure == 0 and durable > self.durable:
            self.advance_to(durable)
            announce(self)

    cdef void advance_to(self, int64_t durable) noexcept nogil:
        store_release(&self.durable, durable)
        store_release(&self.moves, self.moves + 1)
        if self.follower >= 0:
            signal(self.follower)

    cdef void fail(self, int error) noexcept nogil:
        if self.failure == 0:
            store_release_int(&self.failure, error)
            announce(self)

    def create(self, str path, int64_t base_offset, int64_t size):
        """Create a zeroed file with reserved blocks.

        `base_offset` is its physical offset, `size` its bytes. Raises BackendError, for instance
        on a full disk, and then leaves no file.
        """
        raise NotImplementedError

    def open(self, str path, int64_t base_offset, int64_t size, int64_t written):
        """Open an existing file of which [0, written) is meaningful. Raises BackendError."""
        raise NotImplementedError

    def rename(self, Segment segment, str path, int64_t base_offset):
        """Move a segment that was created elsewhere to its place in the log; sync both folders.

        Raises BackendError.
        """
        if os.path.lexists(path):
            raise BackendError(f"cannot move {segment.path} to {path}: the target already exists")
        origin = segment.path
        try:
            os.rename(origin, path)
            segment.path, segment.base_offset = path, base_offset
            for folder in {os.path.dirname(path), os.path.dirname(origin)}:
                sync_folder(folder)
        except OSError as error:
            raise BackendError(
                f"cannot move {origin} to {path}: {error.strerror}", error.errno
            ) from error

    def attach(self, Segment segment):
        """Make the backend responsible for `segment`; call it in the order of offsets."""
        raise NotImplementedError

    def start(self, int64_t durable_offset):
        """Start the backend, after recovery made all bytes below `durable_offset` durable.

        Raises BackendError if it has been started before.
        """
        raise NotImplementedError

    def stop(self):
        """Make all appended bytes durable, then stop; idempotent."""
        raise NotImplementedError

    def follow(self, int event_fd):
        """Signal this eventfd whenever `durable_offset` moves, beside `event_fd`; -1 ends that."""
        pthread_mutex_lock(&self.lock)
        self.follower = event_fd
        pthread_mutex_unlock(&self.lock)

    def skip_to(self, int64_t offset):
        """Count all before `offset` as durable: a log without a record will begin there."""
        pthread_mutex_lock(&self.lock)
        self.skip(offset)
        self.succeed(offset)
        pthread_mutex_unlock(&self.lock)

    def request(self, int64_t upto):
        """Request that all bytes below `upto` become durable; returns at once."""
        self.request_durable(upto)

    def write_through(self, int64_t upto):
        """Like request(), but it executes the write itself if a single write is enough.

        Returns True if `upto` is durable then; the eventfd is signalled only if other bytes were
        requested meanwhile. Waking the caller after a write can take as long as the write.
        """
        cdef bint done
        with nogil:
            done = self.write_here(upto)
        return done

    def wait_durable(self, int64_t upto, double timeout_s):
        """Request `upto` and block: True once it is durable, False after a failure or timeout."""
        cdef timespec deadline
        cdef int64_t nanoseconds
        cdef bint reached
        self.request_durable(upto)
        clock_gettime(CLOCK_MONOTONIC, &deadline)
        nanoseconds = deadline.tv_nsec + <int64_t> (min(timeout_s, 1e9) * 1e9)
        deadline.tv_sec += nanoseconds // 1000000000
        deadline.tv_nsec = nanoseconds % 1000000000
        with nogil:
            pthread_mutex_lock(&self.lock)
            while (self.durable < upto and self.failure == 0
                    and pthread_cond_timedwait(&self.moved, &self.lock, &deadline) != ETIMEDOUT):
                pass
            reached = self.durable >= upto
            pthread_mutex_unlock(&self.lock)
        return reached


cdef void announce(Backend backend) noexcept nogil:
    pthread_cond_broadcast(&backend.moved)
    signal(backend.event_fd)


cdef void signal(int event_fd) noexcept nogil:
    cdef uint64_t one = 1
    # Fails only when the counter is full, and then it is readable anyway.
    c_write(event_fd, &one, sizeof(one))


def sync_file_system(folder):
    """Sync the whole file system of `folder` (syncfs). Raises BackendError."""
    cdef int fd = open_folder(folder)
    cdef int failed
    with nogil:
        failed = errno if syncfs(fd) != 0 else 0
        c_close(fd)
    if failed:
        raise SyncError(
            f"cannot sync the file system of {folder}: {os.strerror(failed)}", failed
        )


cdef int open_folder(folder) except -1:
    try:
        return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise BackendError(f"cannot open {folder}: {error.strerror}", error.errno) from error


def sync_folder(folder):
    """Make the entries of `folder` durable. Raises OSError."""
    descriptor = os.open(folder or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
