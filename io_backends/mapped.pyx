"""The backend that maps files: appends are stores to memory, a thread makes them durable."""

cimport cython
from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc

from congreve.io_backends.backend cimport Backend, Segment
from congreve.io_backends.mapping cimport Mapping, sync_range
from congreve.io_backends.pthread cimport (
    pthread_cond_destroy, pthread_cond_init, pthread_cond_signal, pthread_cond_wait,
    pthread_mutex_lock, pthread_mutex_unlock,
)

import os
import threading

from congreve.io_backends.backend import sync_folder
from congreve.io_backends.errors import BackendError


@cython.final
cdef class MappedSegment(Segment):
    def __cinit__(self, Mapping mapping, int64_t base_offset, int64_t written):
        self.mapping = mapping
        self.path = mapping.path
        self.base_offset = base_offset
        self.size = mapping.size
        self.data = mapping.data
        self.written = written

    def zero_tail(self):
        self.mapping.zero_from(self.written)
        self.mapping.reserve(self.written, self.size)

    def flush(self):
        self.mapping.flush(0, self.written)


@cython.final
cdef class MmapBackend(Backend):
    def __cinit__(self):
        pthread_cond_init(&self.wake, NULL)
        self.attached = []

    def __dealloc__(self):
        cdef Extent *extent
        while self.first != NULL:
            extent = self.first
            self.first = extent.next
            free(extent)
        pthread_cond_destroy(&self.wake)

    def create(self, str path, int64_t base_offset, int64_t size):
        mapping = Mapping(path, size, create=True)
        try:
            mapping.reserve(0, size)
            mapping.flush()
            sync_folder(os.path.dirname(path))
        except (BackendError, OSError) as error:
            os.unlink(path)
            raise BackendError(f"cannot create {path} of {size} bytes: {error}") from error
        return MappedSegment(mapping, base_offset, 0)

    def open(self, str path, int64_t base_offset, int64_t size, int64_t written):
        if not 0 <= written <= size:
            raise BackendError(f"{path} has {size} bytes, of which {written} cannot be written")
        return MappedSegment(Mapping(path, size), base_offset, written)

    def attach(self, Segment segment):
        cdef Extent *extent = <Extent *> malloc(sizeof(Extent))
        cdef Extent *old
        cdef Extent **at = &self.first
        cdef Py_ssize_t forgotten = 0
        if extent == NULL:
            raise MemoryError
        extent.data, extent.base, extent.next = segment.data, segment.base_offset, NULL
        extent.end = segment.base_offset + segment.size
        self.attached.append(segment)
        pthread_mutex_lock(&self.lock)
        while self.first != NULL and self.first.end <= self.durable:
            old = self.first
            self.first = old.next
            free(old)
            forgotten += 1
        while at[0] != NULL:
            at = &at[0].next
        at[0] = extent
        if self.asleep:
            pthread_cond_signal(&self.wake)
        pthread_mutex_unlock(&self.lock)
        del self.attached[:forgotten]

    def start(self, int64_t durable_offset):
        if self.thread is not None:
            raise BackendError("the backend was started already: make a new one")
        pthread_mutex_lock(&self.lock)
        self.succeed(durable_offset)
        pthread_mutex_unlock(&self.lock)
        # A daemon: a program that ends without stop() must not hang on the wait for more work.
        self.thread = threading.Thread(target=self.run, name="flush", daemon=True)
        self.thread.start()

    def run(self):
        with nogil:
            self.serve()

    cdef void request_durable(self, int64_t upto) noexcept nogil:
        pthread_mutex_lock(&self.lock)
        if upto > self.target:
            self.target = upto
            if self.asleep:
                pthread_cond_signal(&self.wake)
        pthread_mutex_unlock(&self.lock)

    cdef Extent *next_extent(self) noexcept nogil:
        cdef Extent *extent = self.first
        if self.failure != 0 or self.target <= self.durable:
            return NULL
        while extent != NULL and extent.end <= self.durable:
            extent = extent.next
        return extent

    cdef void serve(self) noexcept nogil:
        cdef Extent *extent
        cdef int64_t start, end
        cdef int error
        pthread_mutex_lock(&self.lock)
        while True:
            extent = self.next_extent()
            if extent == NULL:
                if self.stopping:
                    break
                self.asleep = True
                pthread_cond_wait(&self.wake, &self.lock)
                self.asleep = False
                continue
            start = max(self.durable, extent.base)
            end = min(self.target, extent.end)
            # attach() frees no extent that `durable` has not passed, so this one stays.
            pthread_mutex_unlock(&self.lock)
            error = sync_range(extent.data, start - extent.base, end - extent.base)
            pthread_mutex_lock(&self.lock)
            if error != 0:
                self.fail(error)
            else:
                self.succeed(end)
        pthread_mutex_unlock(&self.lock)

    def stop(self):
        cdef Segment last
        if self.thread is None:
            return
        if self.attached:
            last = self.attached[len(self.attached) - 1]
            self.request_durable(last.base_offset + last.published())
        pthread_mutex_lock(&self.lock)
        self.stopping = True
        pthread_cond_signal(&self.wake)
        pthread_mutex_unlock(&self.lock)
        self.thread.join()
