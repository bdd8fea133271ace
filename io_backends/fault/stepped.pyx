"""A backend for simulations: nothing becomes durable before its owner says so."""

cimport cython
from libc.stdint cimport int64_t

from congreve.base.pthread cimport pthread_mutex_lock, pthread_mutex_unlock
from congreve.io_backends.backend cimport Backend, Segment, new_file, old_file
from congreve.io_backends.mapped.mapped cimport MappedSegment


@cython.final
cdef class SteppedBackend(Backend):
    """Mapped files without a thread: sync() and fail_with() decide what the disk does, and when.

    Nothing is synced: `durable_offset` alone says what a power cut would leave.
    """

    name = "stepped"

    def __cinit__(self):
        self.attached = []

    def create(self, str path, int64_t base_offset, int64_t size):
        """Create and map a zeroed file. Raises BackendError."""
        return MappedSegment(new_file(path, size), base_offset, 0)

    def open(self, str path, int64_t base_offset, int64_t size, int64_t written):
        """Map an existing file of which [0, written) is meaningful. Raises BackendError."""
        return MappedSegment(old_file(path, size, written), base_offset, written)

    def attach(self, Segment segment):
        """Be responsible for `segment`."""
        self.attached = [segment]

    def start(self, int64_t durable_offset):
        """Begin with what recovery has made durable."""
        self.target = durable_offset
        self.sync()

    def stop(self):
        """Make all appended bytes durable."""
        cdef Segment segment
        for segment in self.attached:
            self.request_durable(segment.published_end())
        self.sync()

    cdef void request_durable(self, int64_t upto) noexcept nogil:
        pthread_mutex_lock(&self.lock)
        self.target = max(self.target, upto)
        pthread_mutex_unlock(&self.lock)

    @property
    def waits(self):
        """Whether something was requested that is not durable."""
        return self.target > self.durable and not self.failure

    def sync(self):
        """Make durable what was requested."""
        pthread_mutex_lock(&self.lock)
        self.succeed(self.target)
        pthread_mutex_unlock(&self.lock)

    def fail_with(self, int error):
        """Let the disk fail with this errno from now on."""
        pthread_mutex_lock(&self.lock)
        self.fail(error)
        pthread_mutex_unlock(&self.lock)

    def wait_durable(self, int64_t upto, double timeout_s):
        """Make `upto` durable now; False after a failure."""
        self.request_durable(upto)
        self.sync()
        return self.durable >= upto
