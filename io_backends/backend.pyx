"""The seam between the store and the disk: what every backend shares."""

from libc.errno cimport EIO, ETIMEDOUT, errno
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcpy
from cpython.buffer cimport (
    PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer,
)
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec
from posix.unistd cimport close as c_close, write as c_write

from congreve.io_backends.atomic cimport (
    load_acquire, load_acquire_int, store_release, store_release_int,
)
from congreve.io_backends.buserror cimport bus_errors
from congreve.io_backends.pthread cimport (
    pthread_cond_broadcast, pthread_cond_destroy, pthread_cond_init, pthread_cond_timedwait,
    pthread_condattr_init, pthread_condattr_setclock, pthread_condattr_t,
    pthread_mutex_destroy, pthread_mutex_init, pthread_mutex_lock, pthread_mutex_unlock,
)

import os

from congreve.io_backends.errors import BackendError

cdef extern from "<unistd.h>" nogil:
    int syncfs(int fd)

cdef extern from "<sys/eventfd.h>" nogil:
    int EFD_CLOEXEC
    int EFD_NONBLOCK
    int eventfd(unsigned int value, int flags)


cdef int NO_POOL = 0x7FFFFFFF  # the reference's word for "as many as you like"


cdef class Segment:
    cdef bint extend(self, int64_t upto) noexcept nogil:
        return upto <= self.ready

    cdef void publish(self, int64_t written) noexcept nogil:
        store_release(&self.written, written)

    cdef int64_t published(self) noexcept nogil:
        return load_acquire(&self.written)

    cdef int descriptor(self) noexcept:
        return -1

    @property
    def is_lent(self):
        return False

    @property
    def written(self):
        return self.published()

    def append(self, data):
        cdef Py_buffer given
        cdef bint room
        PyObject_GetBuffer(data, &given, PyBUF_SIMPLE)
        room = self.extend(self.written + given.len)
        if room:
            memcpy(self.data + self.written, given.buf, given.len)
            self.publish(self.written + given.len)
        PyBuffer_Release(&given)
        return room

    def forget_pages(self, int64_t end):
        pass

    def flush(self):
        raise NotImplementedError

    def zero_tail(self):
        raise NotImplementedError

    def prewrite(self, upto=None):
        cdef int64_t end = self.size if upto is None else min(<int64_t> upto, self.size)
        if end > self.prewritten:
            self.write_zeros(max(self.prewritten, self.written), end)
            self.prewritten = end

    def write_zeros(self, int64_t start, int64_t end):
        raise NotImplementedError

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self.data, self.size, True, flags)


cdef class Backend:
    def __cinit__(self):
        cdef pthread_condattr_t attributes
        pthread_mutex_init(&self.lock, NULL)
        pthread_condattr_init(&attributes)
        pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC)
        pthread_cond_init(&self.moved, &attributes)
        self.bus_errors = bus_errors()
        self.event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)
        if self.event_fd < 0:
            raise BackendError(f"cannot make an eventfd: {os.strerror(errno)}")

    def __dealloc__(self):
        if self.event_fd >= 0:
            c_close(self.event_fd)
        pthread_cond_destroy(&self.moved)
        pthread_mutex_destroy(&self.lock)

    @property
    def name(self):
        raise NotImplementedError

    @property
    def durable_offset(self):
        return load_acquire(&self.durable)

    @property
    def failure_errno(self):
        if self.failure == 0 and bus_errors() != self.bus_errors:
            pthread_mutex_lock(&self.lock)
            self.lost_page()
            pthread_mutex_unlock(&self.lock)
        return load_acquire_int(&self.failure)

    @property
    def free_buffers(self):
        return NO_POOL

    cdef void request_durable(self, int64_t upto) noexcept nogil:
        pass

    cdef bint write_here(self, int64_t upto) noexcept nogil:
        self.request_durable(upto)
        return False

    cdef void reached(self, int64_t position) noexcept nogil:
        pass

    cdef bint lost_page(self) noexcept nogil:
        if bus_errors() == self.bus_errors:
            return False
        self.fail(EIO)
        return True

    cdef void succeed(self, int64_t durable) noexcept nogil:
        # A sync of a page that is no file's any more succeeds.
        if self.lost_page():
            return
        if self.failure == 0 and durable > self.durable:
            store_release(&self.durable, durable)
            announce(self)

    cdef void fail(self, int error) noexcept nogil:
        if self.failure == 0:
            store_release_int(&self.failure, error)
            announce(self)

    def create(self, str path, int64_t base_offset, int64_t size):
        raise NotImplementedError

    def open(self, str path, int64_t base_offset, int64_t size, int64_t written):
        raise NotImplementedError

    def rename(self, Segment segment, str path, int64_t base_offset):
        if os.path.lexists(path):
            raise BackendError(f"cannot move {segment.path} to {path}: it exists already")
        origin = segment.path
        try:
            os.rename(origin, path)
            segment.path, segment.base_offset = path, base_offset
            for folder in {os.path.dirname(path), os.path.dirname(origin)}:
                sync_folder(folder)
        except OSError as error:
            raise BackendError(f"cannot move {origin} to {path}: {error.strerror}") from error

    def attach(self, Segment segment):
        raise NotImplementedError

    def start(self, int64_t durable_offset):
        raise NotImplementedError

    def stop(self):
        raise NotImplementedError

    def request(self, int64_t upto):
        self.request_durable(upto)

    def write_through(self, int64_t upto):
        cdef bint done
        with nogil:
            done = self.write_here(upto)
        return done

    def wait_durable(self, int64_t upto, double timeout_s):
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
    cdef uint64_t one = 1
    pthread_cond_broadcast(&backend.moved)
    # Fails only when the counter is full, and then it is readable anyway.
    c_write(backend.event_fd, &one, sizeof(one))


def sync_file_system(folder):
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    cdef int fd = descriptor
    cdef int failed
    try:
        with nogil:
            failed = errno if syncfs(fd) != 0 else 0
    finally:
        os.close(descriptor)
    if failed:
        raise BackendError(f"cannot sync the file system of {folder}: {os.strerror(failed)}")


def sync_folder(folder):
    descriptor = os.open(folder or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
