"""The pool backend: appends go to locked buffers, one thread writes and syncs them to the file."""

cimport cython
from libc.errno cimport errno
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy
from posix.fcntl cimport O_CLOEXEC, O_RDWR, open as c_open
from posix.mman cimport (
    MAP_ANONYMOUS, MAP_FAILED, MAP_PRIVATE, PROT_NONE, mlock, mmap, munmap,
)
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec
from posix.unistd cimport close as c_close, fdatasync

from congreve.base.atomic cimport load_acquire
from congreve.base.pthread cimport (
    pthread_cond_destroy, pthread_cond_init, pthread_cond_signal, pthread_cond_timedwait,
    pthread_cond_wait, pthread_condattr_init, pthread_condattr_setclock, pthread_condattr_t,
    pthread_mutex_lock, pthread_mutex_unlock,
)
from congreve.io_backends.backend cimport Backend, FileSegment, Segment, new_file, old_file
from congreve.io_backends.page cimport PAGE
from congreve.io_backends.window cimport Window, show_file
from congreve.io_backends.write_group cimport write_group

import logging
import os
import threading
import weakref

from congreve.io_backends.errors import BackendError, NoBufferError

cdef extern from "<sys/mman.h>" nogil:
    int MAP_NORESERVE
    int MLOCK_ONFAULT
    int mlock2(const void *addr, size_t length, int flags)


logger = logging.getLogger(__name__)


cdef inline int64_t now_ms() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return now.tv_sec * 1000 + now.tv_nsec // 1000000


cdef inline int64_t pages_end(int64_t position) noexcept nogil:
    return (position + PAGE - 1) // PAGE * PAGE


# Checks, without allocating, that this process may lock this much more memory: 0 or errno.
cdef int lock_refusal(int64_t size) noexcept nogil:
    cdef int failed = 0
    cdef void *at = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
    if at == MAP_FAILED:
        return errno
    if mlock2(at, size, MLOCK_ONFAULT) != 0:
        failed = errno
    munmap(at, size)
    return failed


@cython.final
cdef class PoolSegment(FileSegment):
    """A segment in a buffer of the pool, and in the page cache once all of it is on disk."""


@cython.final
cdef class PoolBackend(Backend):
    """Appends to locked buffers, and writes them to the file with pwrite and fdatasync.

    RocketMQ: TransientStorePool, with MappedFile.commit and CommitRealTimeService. Unlike there,
    readers see buffered bytes at once, SYNC_FLUSH works, buffers are allocated on demand, and
    without a free buffer messages are refused instead of written to the file.

    `buffers`: the most buffers, each of a segment's size. `locked`: raise an error if a buffer
    cannot be locked in memory (RLIMIT_MEMLOCK). Commits write full pages to the kernel; request()
    syncs. Raises BackendError for fewer than one buffer.
    """

    name = "pool"

    def __cinit__(self, *, int64_t buffers=5, bint locked=True, bint prewrites=False,
                  int64_t commit_interval_ms=200, int64_t commit_least_pages=4,
                  int64_t commit_thorough_ms=200):
        cdef pthread_condattr_t attributes
        if buffers < 1:
            raise BackendError(f"buffers={buffers}: use at least 1")
        pthread_condattr_init(&attributes)
        pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC)
        pthread_cond_init(&self.wake, &attributes)
        self.limit, self.locked, self.prewrites = buffers, locked, prewrites
        self.commit_interval_ms = max(commit_interval_ms, 1)
        self.commit_least_pages = commit_least_pages
        self.commit_thorough_ms = commit_thorough_ms
        self.buffers, self.attached, self.borrowing = [], [], threading.Lock()

    def __dealloc__(self):
        cdef Extent *extent
        while self.first != NULL:
            extent = self.first
            self.first = extent.next
            c_close(extent.fd)
            free(extent)
        pthread_cond_destroy(&self.wake)

    # --- segments

    def create(self, str path, int64_t base_offset, int64_t size):
        """Create a zeroed file with reserved blocks, and take a buffer for it.

        Raises NoBufferError if none is free, else BackendError, and then leaves no file.
        """
        cdef PoolSegment segment = PoolSegment(new_file(path, size), base_offset, 0)
        try:
            self.show_buffer(segment)
        except BackendError:
            os.unlink(path)
            raise
        return segment

    def open(self, str path, int64_t base_offset, int64_t size, int64_t written):
        """Map an existing file of which [0, written) is meaningful. Raises BackendError."""
        return PoolSegment(old_file(path, size, written), base_offset, written)

    def attach(self, Segment segment):
        """Write and sync `segment` from now on. Raises BackendError, NoBufferError."""
        if self.thread is not None:
            self.join(<PoolSegment?> segment)
        self.attached.append(<PoolSegment?> segment)
        while len(self.attached) > 1 and (<PoolSegment> self.attached[0]).released:
            del self.attached[0]

    cdef object join(self, PoolSegment segment):
        cdef Extent *extent
        cdef Extent **at = &self.first
        cdef int fd, failed
        if segment.ready == 0:
            self.show_buffer(segment)
        fd = c_open(os.fsencode(segment.path), O_RDWR | O_CLOEXEC)
        if fd < 0:
            failed = errno
            raise BackendError(f"cannot open {segment.path}: {os.strerror(failed)}", failed)
        extent = <Extent *> malloc(sizeof(Extent))
        if extent == NULL:
            c_close(fd)
            raise MemoryError
        extent.data, extent.base, extent.next = segment.data, segment.base_offset, NULL
        extent.end = segment.base_offset + segment.size
        extent.length = pages_end(segment.size)
        extent.written, extent.released, extent.fd = &segment.written, &segment.released, fd
        pthread_mutex_lock(&self.lock)
        while at[0] != NULL:
            at = &at[0].next
        at[0] = extent
        pthread_mutex_unlock(&self.lock)

    # --- buffers

    @property
    def free_buffers(self):
        """Buffers that a new segment may still get (RocketMQ: remainTransientStoreBufferNumbs)."""
        cdef PoolSegment holder
        busy = 0
        for _, reference in self.buffers:
            holder = reference()
            busy += holder is not None and not holder.released
        return self.limit - busy

    cdef object show_buffer(self, PoolSegment segment):
        # The bytes before `written` in its page stay; what is after them is zero.
        cdef Window window = self.borrow(segment)
        cdef int64_t start = segment.written - segment.written % PAGE
        cdef int64_t head = segment.written - start
        cdef uint8_t kept[4096]
        cdef int error
        with nogil:
            memcpy(kept, segment.data + start, head)
            error = window.show(segment.data + start, start, pages_end(segment.size) - start)
            if error == 0:
                memcpy(segment.data + start, kept, head)
        if error:
            segment.released = True
            raise BackendError(f"cannot map a buffer into {segment.path}: {os.strerror(error)}")
        segment.ready = segment.size

    def borrow(self, PoolSegment segment):
        """Take a free buffer for the segment. Raises NoBufferError, BackendError."""
        cdef PoolSegment holder
        cdef Window window
        with self.borrowing:
            for i, (window, reference) in enumerate(self.buffers):
                holder = reference()
                if (holder is None or holder.released) and window.size >= segment.size:
                    self.buffers[i] = (window, weakref.ref(segment))
                    return window
            if len(self.buffers) >= self.limit:
                raise NoBufferError(
                    f"all {self.limit} buffers wait for the disk: send more slowly, or raise "
                    "transientStorePoolSize"
                )
            window = self.new_buffer(pages_end(segment.size))
            self.buffers.append((window, weakref.ref(segment)))
        return window

    def new_buffer(self, int64_t size):
        """Allocate a buffer, and lock it if the pool is locked. Raises BackendError."""
        cdef Window window = Window(size)
        cdef int64_t wanted = (self.limit - len(self.buffers)) * size
        cdef int failed = 0
        if self.locked:
            with nogil:
                # The other buffers follow later, but the start must fail if they cannot be locked.
                failed = lock_refusal(wanted)
                if failed == 0 and mlock(window.data, size) != 0:
                    failed = errno
        if failed:
            raise BackendError(
                f"cannot lock {self.limit} buffers of {size} bytes in memory "
                f"({os.strerror(failed)}): raise RLIMIT_MEMLOCK (ulimit -l), lower "
                "transientStorePoolSize, or set transientStorePoolLocked=false"
            )
        return window

    # --- life

    def start(self, int64_t durable_offset):
        """Sync the attached segments, give the last one a buffer, and start the flush thread.

        Raises BackendError, NoBufferError.
        """
        cdef Segment segment
        if self.thread is not None:
            raise BackendError("the backend has already been started: create a new one")
        for segment in self.attached:
            segment.flush()
            durable_offset = max(durable_offset, segment.base_offset + segment.written)
        del self.attached[:max(len(self.attached) - 1, 0)]
        if self.attached:
            self.join(self.attached[0])
        pthread_mutex_lock(&self.lock)
        self.target = self.committed = durable_offset
        self.succeed(durable_offset)
        pthread_mutex_unlock(&self.lock)
        self.thread = threading.Thread(target=self.run_writes, name="flush", daemon=True)
        self.thread.start()

    def run_writes(self):
        """Write and sync; the body of the thread that start() runs."""
        with nogil:
            self.write_groups()

    def stop(self):
        """Write and sync all appended bytes, then end the thread; idempotent."""
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

    # --- writes

    cdef void skip(self, int64_t offset) noexcept nogil:
        self.target = self.committed = offset

    cdef void request_durable(self, int64_t upto) noexcept nogil:
        pthread_mutex_lock(&self.lock)
        if upto > self.target:
            self.target = upto
            pthread_cond_signal(&self.wake)
        pthread_mutex_unlock(&self.lock)

    cdef void reached(self, int64_t position) noexcept nogil:
        pthread_mutex_lock(&self.lock)
        pthread_cond_signal(&self.wake)
        pthread_mutex_unlock(&self.lock)

    cdef Extent *extent_at(self, int64_t position) noexcept nogil:
        cdef Extent *extent = self.first
        while extent != NULL and extent.end <= position:
            extent = extent.next
        return extent

    cdef void write_groups(self) noexcept nogil:
        cdef int64_t last_ms = now_ms()
        cdef int64_t upto = 0
        pthread_mutex_lock(&self.lock)
        while True:
            self.release_written()
            if (self.failure == 0 and self.target > self.durable
                    and self.extent_at(self.durable) != NULL):
                self.write_until(self.target, True)
            elif self.stopping:
                break
            elif self.failure == 0 and self.commit_due(last_ms, &upto):
                last_ms = now_ms()
                self.write_until(upto, False)
            else:
                self.pause()
        pthread_mutex_unlock(&self.lock)

    # RocketMQ: CommitRealTimeService. The kernel decides when it writes committed bytes to disk.
    cdef bint commit_due(self, int64_t last_ms, int64_t *upto) noexcept nogil:
        cdef Extent *extent = self.extent_at(self.committed)
        if extent == NULL:
            return False
        upto[0] = extent.base + load_acquire(extent.written)
        if upto[0] <= self.committed:
            return False
        return (upto[0] == extent.end or now_ms() - last_ms >= self.commit_thorough_ms
                or upto[0] // PAGE - self.committed // PAGE >= max(self.commit_least_pages, 1))

    # Writes one segment and releases `lock` meanwhile; only this thread frees the extent.
    cdef void write_until(self, int64_t upto, bint synced) noexcept nogil:
        cdef Extent *extent = self.extent_at(self.durable if synced else self.committed)
        cdef int64_t end = min(upto, extent.end)
        cdef int64_t start = max(self.committed, extent.base)
        cdef int error = 0
        pthread_mutex_unlock(&self.lock)
        if start < end:
            error = write_group(extent.fd, extent.data, start - extent.base, end - extent.base)
        if error == 0 and synced and fdatasync(extent.fd) != 0:
            error = errno
        pthread_mutex_lock(&self.lock)
        if error != 0:
            self.fail(error)
            return
        self.committed = max(self.committed, end)
        if synced:
            self.succeed(end)

    # Full segments that are on disk show their files, which hold the same bytes.
    cdef void release_written(self) noexcept nogil:
        cdef Extent *extent = self.first
        while extent != NULL and extent.end <= self.durable and self.failure == 0:
            self.first = extent.next
            pthread_mutex_unlock(&self.lock)
            if show_file(extent.data, extent.fd, 0, extent.length) == 0:
                extent.released[0] = True
            c_close(extent.fd)
            free(extent)
            pthread_mutex_lock(&self.lock)
            extent = self.first

    cdef void pause(self) noexcept nogil:
        cdef timespec until
        if self.failure != 0:
            pthread_cond_wait(&self.wake, &self.lock)
            return
        clock_gettime(CLOCK_MONOTONIC, &until)
        until.tv_sec += self.commit_interval_ms // 1000
        until.tv_nsec += self.commit_interval_ms % 1000 * 1000000
        if until.tv_nsec >= 1000000000:
            until.tv_sec += 1
            until.tv_nsec -= 1000000000
        pthread_cond_timedwait(&self.wake, &self.lock, &until)
