"""Fault injection: a backend that wraps another one, injects planned faults and records writes."""

cimport cython
from libc.errno cimport EIO
from libc.stdint cimport int64_t

from congreve.base.pthread cimport (
    pthread_cond_destroy, pthread_cond_init, pthread_cond_signal, pthread_cond_wait,
    pthread_mutex_lock, pthread_mutex_unlock,
)
from congreve.io_backends.backend cimport Backend, Segment

import os
import threading
import time

from congreve.io_backends.errors import BackendError
from congreve.io_backends.fault.plan import Fault, Group

cdef double WAIT_S = 60.0


@cython.final
cdef class FaultBackend(Backend):
    """Injects the faults of a FaultPlan into the backend `inner`, for tests.

    `inner` holds the bytes; this backend starts and stops it. `note(call, path, size)` is called
    for each segment that is created, opened or renamed, and for each group of bytes that is synced.
    """

    def __cinit__(self, Backend inner, plan, note=None):
        pthread_cond_init(&self.wake, NULL)
        self.inner, self.plan, self.prewrites = inner, plan, inner.prewrites
        self.note = note if note is not None else (lambda call, path, size: None)
        self.recorded, self.attached = [], []

    def __dealloc__(self):
        pthread_cond_destroy(&self.wake)

    @property
    def name(self):
        """The name of the wrapped backend."""
        return self.inner.name

    # --- segments

    def create(self, str path, int64_t base_offset, int64_t size):
        """Create a segment of the wrapped backend. Raises BackendError if the plan says so."""
        error = self.plan.creates.get(self.creates, 0)
        self.creates += 1
        if error:
            raise BackendError(f"cannot create {path} of {size} bytes: {os.strerror(error)}")
        self.note("create_segment", path, size)
        return self.inner.create(path, base_offset, size)

    def open(self, str path, int64_t base_offset, int64_t size, int64_t written):
        """Open a segment of the wrapped backend. Raises BackendError."""
        self.note("open_segment", path, size)
        return self.inner.open(path, base_offset, size, written)

    def rename(self, Segment segment, str path, int64_t base_offset):
        """Move a segment of the wrapped backend. Raises BackendError."""
        self.note("rename_segment", path, 0)
        self.inner.rename(segment, path, base_offset)

    def attach(self, Segment segment):
        """Make both backends responsible for `segment`."""
        self.attached.append(segment)
        self.inner.attach(segment)

    # --- life

    def start(self, int64_t durable_offset):
        """Start the wrapped backend and the thread that injects faults. Raises BackendError."""
        if self.thread is not None:
            raise BackendError("the backend has already been started: create a new one")
        self.inner.start(durable_offset)
        pthread_mutex_lock(&self.lock)
        self.succeed(self.inner.durable_offset)
        pthread_mutex_unlock(&self.lock)
        self.thread = threading.Thread(target=self.run_groups, name="faults", daemon=True)
        self.thread.start()

    def stop(self):
        """Make appended bytes durable unless a fault prevents it, and stop both; idempotent."""
        cdef Segment last
        if self.thread is None or self.stopping:
            return
        if self.attached:
            last = self.attached[len(self.attached) - 1]
            self.request_durable(last.published_end())
        pthread_mutex_lock(&self.lock)
        self.stopping = True
        pthread_cond_signal(&self.wake)
        pthread_mutex_unlock(&self.lock)
        self.thread.join()
        self.inner.stop()

    # --- groups

    cdef void request_durable(self, int64_t upto) noexcept nogil:
        pthread_mutex_lock(&self.lock)
        if upto > self.target:
            self.target = upto
            pthread_cond_signal(&self.wake)
        pthread_mutex_unlock(&self.lock)

    cdef void reached(self, int64_t position) noexcept nogil:
        self.inner.reached(position)

    # The end of the next group; -1 when the thread is to stop.
    cdef int64_t await_request(self) noexcept nogil:
        cdef int64_t upto
        pthread_mutex_lock(&self.lock)
        while (self.failure != 0 or self.target <= self.durable) and not self.stopping:
            pthread_cond_wait(&self.wake, &self.lock)
        upto = self.target if self.failure == 0 and self.target > self.durable else -1
        pthread_mutex_unlock(&self.lock)
        return upto

    def run_groups(self):
        """The body of the thread; start() runs it."""
        cdef int64_t upto
        while True:
            with nogil:
                upto = self.await_request()
            if upto < 0:
                return
            self.pass_group(upto)

    def pass_group(self, int64_t upto):
        """Make one group durable, or inject its planned fault."""
        fault = self.plan.groups.get(self.groups, Fault())
        self.groups += 1
        time.sleep(fault.delay_s)
        if self.plan.record:
            self.recorded.append(Group(self.durable, self.written_between(self.durable, upto)))
        self.note("sync_segments", self.attached[len(self.attached) - 1].path, upto - self.durable)
        if fault.error:
            self.finish(upto, fault.error)
        elif fault.lost or self.inner.wait_durable(upto, WAIT_S):
            self.finish(upto, 0)
        else:
            self.finish(upto, self.inner.failure_errno or EIO)

    cdef object finish(self, int64_t upto, int error):
        pthread_mutex_lock(&self.lock)
        if error:
            self.fail(error)
        else:
            self.succeed(upto)
        pthread_mutex_unlock(&self.lock)

    def written_between(self, int64_t start, int64_t end):
        """The bytes appended in [start, end), physical offsets."""
        cdef Segment segment
        pieces = []
        for segment in self.attached:
            first = max(start - segment.base_offset, 0)
            last = min(end - segment.base_offset, segment.size)
            if first < last:
                pieces.append(bytes(memoryview(segment)[first:last]))
        return b"".join(pieces)
