"""The mmap backend: appends write to mapped memory, and a thread makes them durable."""

cimport cython
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free, malloc
from posix.fcntl cimport O_CLOEXEC, O_RDONLY, open as c_open
from posix.mman cimport MADV_DONTNEED
from posix.unistd cimport close as c_close

from congreve.base.pthread cimport (
    pthread_cond_destroy, pthread_cond_init, pthread_cond_signal, pthread_cond_wait,
    pthread_mutex_lock, pthread_mutex_unlock, sched_yield,
)
from congreve.io_backends.backend cimport Backend, FileSegment, Segment, new_file, old_file
from congreve.io_backends.mapping cimport Mapping, sync_range

import os
import threading

from congreve.io_backends.errors import BackendError

cdef extern from "<sys/mman.h>" nogil:
    int madvise(void *addr, size_t length, int advice)

cdef enum:
    MADV_POPULATE_WRITE = 23
    PREFAULT_STEP = 256 << 10  # bytes a call, which locks the address space
    KEPT_BEHIND = 32 << 20  # bytes behind the writer that stay mapped, because they are read soon
    FORGET_STEP = 4 << 20


@cython.final
cdef class MappedSegment(FileSegment):
    """A segment in the page cache (RocketMQ: MappedFile)."""

    def __cinit__(self, Mapping mapping, int64_t base_offset, int64_t written):
        self.ready = self.size
        self.file = -1

    def __dealloc__(self):
        if self.file >= 0:
            c_close(self.file)

    cdef int descriptor(self) noexcept:
        if self.file < 0:
            self.file = c_open(os.fsencode(self.path), O_RDONLY | O_CLOEXEC)
        return self.file

    @property
    def is_sent_from(self):
        """Whether descriptor() opened the file: sockets may still hold its pages."""
        return self.file >= 0

    def forget_pages(self, int64_t end):
        """Remove the pages of [0, end) from this process's memory; the page cache keeps them."""
        self.mapping.forget_pages(end)


@cython.final
cdef class MmapBackend(Backend):
    """msync of the dirty range in groups, on a thread that does not hold the GIL while it works.

    RocketMQ: MappedFile and CommitLog.GroupCommitService. A group is everything requested before
    the previous group ended. After the first failed sync no further bytes become durable.

    `prefault`: bytes of fresh pages that are populated ahead of the writer; 0 for none.
    `prewrites`: set it with SYNC_FLUSH; a sync of blocks that were never written also commits the
    file system's journal.
    """

    name = "mmap"

    def __cinit__(self, int64_t prefault=16 << 20, *, bint prewrites=False):
        self.prewrites = prewrites
        pthread_cond_init(&self.wake, NULL)
        pthread_cond_init(&self.approach, NULL)
        self.prefault = prefault
        self.attached = []
        self.threads = []

    def __dealloc__(self):
        cdef Extent *extent
        while self.first != NULL:
            extent = self.first
            self.first = extent.next
            free(extent)
        pthread_cond_destroy(&self.wake)
        pthread_cond_destroy(&self.approach)

    def create(self, str path, int64_t base_offset, int64_t size):
        """Create and map a zeroed file with reserved blocks, its first pages in memory.

        Raises BackendError, and then leaves no file.
        """
        cdef Mapping mapping = new_file(path, size)
        cdef int64_t at_once = min(self.prefault, size)
        with nogil:
            mapping.advise(0, at_once, MADV_POPULATE_WRITE)
        return MappedSegment(mapping, base_offset, 0)

    def open(self, str path, int64_t base_offset, int64_t size, int64_t written):
        """Map an existing file of which [0, written) is meaningful. Raises BackendError."""
        return MappedSegment(old_file(path, size, written), base_offset, written)

    def attach(self, Segment segment):
        """Sync `segment` from now on, after the segments that were attached before."""
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
        """Start the flush thread, and with `prefault` the one that populates pages.

        Raises BackendError if it has been started before.
        """
        if self.threads:
            raise BackendError("the backend has already been started: create a new one")
        pthread_mutex_lock(&self.lock)
        self.succeed(durable_offset)
        pthread_mutex_unlock(&self.lock)
        # Daemon threads: a program that exits without stop() must not wait for them.
        self.threads = [threading.Thread(target=self.run_flush, name="flush", daemon=True)]
        if self.prefault:
            self.threads.append(
                threading.Thread(target=self.run_prefault, name="prefault", daemon=True)
            )
        for thread in self.threads:
            thread.start()

    def run_flush(self):
        """The body of the flush thread; start() runs it."""
        with nogil:
            self.sync_groups()

    def run_prefault(self):
        """The body of the thread that populates pages ahead of the writer; start() runs it."""
        with nogil:
            self.prefault_pages()

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

    cdef void sync_groups(self) noexcept nogil:
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

    cdef void reached(self, int64_t position) noexcept nogil:
        pthread_mutex_lock(&self.lock)
        self.position = position
        if self.resting:
            pthread_cond_signal(&self.approach)
        pthread_mutex_unlock(&self.lock)

    cdef Extent *last_extent(self) noexcept nogil:
        cdef Extent *extent = self.first
        while extent != NULL and extent.next != NULL:
            extent = extent.next
        return extent

    # The first write to a page of a file costs a page fault, the file system's journal and, in a
    # virtual machine, often a page from the host. The writer must not wait for these.
    cdef void prefault_pages(self) noexcept nogil:
        cdef Extent *extent
        cdef uint8_t *data
        cdef int64_t base, position, start, end
        pthread_mutex_lock(&self.lock)
        while not self.stopping:
            extent = self.last_extent()
            if (extent == NULL
                    or min(self.position + self.prefault, extent.end) <= self.prefaulted):
                self.resting = True
                pthread_cond_wait(&self.approach, &self.lock)
                self.resting = False
                continue
            # The writer has populated the pages that it has passed by now.
            start = max(self.prefaulted, self.position, extent.base) - extent.base
            start -= start % PREFAULT_STEP
            end = min(start + PREFAULT_STEP, extent.end - extent.base)
            data, base, position = extent.data, extent.base, self.position
            self.prefaulted = base + end
            pthread_mutex_unlock(&self.lock)
            madvise(data + start, end - start, MADV_POPULATE_WRITE)
            self.forget_behind(data, base, position)
            sched_yield()
            pthread_mutex_lock(&self.lock)
        pthread_mutex_unlock(&self.lock)

    # Otherwise hundreds of MB a second count as resident memory until the kernel reclaims them.
    cdef void forget_behind(self, uint8_t *data, int64_t base, int64_t position) noexcept nogil:
        cdef int64_t begin = max(self.forgotten, base)
        cdef int64_t length = position - KEPT_BEHIND - begin
        if length >= FORGET_STEP:
            length -= length % FORGET_STEP
            madvise(data + (begin - base), length, MADV_DONTNEED)
            self.forgotten = begin + length

    def stop(self):
        """Sync all appended bytes, then end the threads; idempotent."""
        cdef Segment last
        if not self.threads or self.stopping:
            return
        if self.attached:
            last = self.attached[len(self.attached) - 1]
            self.request_durable(last.published_end())
        pthread_mutex_lock(&self.lock)
        self.stopping = True
        pthread_cond_signal(&self.wake)
        pthread_cond_signal(&self.approach)
        pthread_mutex_unlock(&self.lock)
        for thread in self.threads:
            thread.join()
