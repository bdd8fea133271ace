"""The backend that writes through io_uring: O_DIRECT with RWF_DSYNC, several writes in flight.

Appended bytes are in a window of locked memory that is mapped into the address range of every open
segment. A write takes full blocks from there; `ring.pyx` sends them.
"""

cimport cython
from libc.errno cimport EIO, errno
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from posix.fcntl cimport O_CLOEXEC, O_RDWR, open as c_open
from posix.mman cimport (
    MAP_ANONYMOUS, MAP_FAILED, MAP_PRIVATE, PROT_READ, mmap, munmap,
)
from posix.unistd cimport close as c_close, fdatasync, pwrite

from congreve.io_backends.atomic cimport load_acquire, store_release
from congreve.io_backends.backend cimport Backend, Segment
from congreve.io_backends.mapping cimport Mapping
from congreve.io_backends.pthread cimport pthread_mutex_lock, pthread_mutex_unlock
from congreve.io_backends.uring.ring cimport (
    BLOCK, FILE_SLOTS, WRITE_DONE, WriteRing, block_of, blocks_end,
)
from congreve.io_backends.window cimport Window, show_file

import os
import threading
import time

from congreve.io_backends.backend import sync_folder
from congreve.io_backends.errors import BackendError

cdef extern from "<fcntl.h>" nogil:
    int O_DIRECT

cdef enum:
    STEP = 256 << 10        # bytes of the window that are mapped at once
    WRITE_MAX = 256 << 10   # a longer group is split, so that several writes are in flight
    ALONE_MAX = 128 << 10   # a shorter group waits for the previous write, and shares one write
    ZERO_STEP = 512 << 10   # longer writes of zeros delay other writes, shorter ones take longer
    ZERO_RUN = 64 << 20     # bytes of zeros that are synced at once
    WAIT_MS = 2             # another thread may take the completion that this one waits for


cdef inline int64_t written_end(const Extent *extent) noexcept nogil:
    return extent.base + load_acquire(extent.written)


# Zeros from `at` on, a step or less: 0 or errno.
cdef int zero_step(int fd, const uint8_t *zeros, int64_t at, int64_t end) noexcept nogil:
    cdef int64_t length = min(ZERO_STEP, end - at)
    cdef int64_t done = pwrite(fd, zeros, length, at)
    if done == length:
        return 0
    return errno if done < 0 else EIO


@cython.final
cdef class UringSegment(Segment):
    """A segment with its newest bytes in the backend's window and all others in its file."""

    def __cinit__(self, Mapping mapping, UringBackend backend, int64_t base_offset,
                  int64_t written):
        self.mapping = mapping
        self.backend = backend
        self.path = mapping.path
        self.base_offset = base_offset
        self.size = mapping.size
        self.data = mapping.data
        self.written = written

    cdef bint extend(self, int64_t upto) noexcept nogil:
        if upto > self.ready:
            self.ready = self.backend.make_room(self.base_offset + upto) - self.base_offset
        return upto <= self.ready

    def zero_tail(self):
        self.mapping.zero_from(self.written)
        self.mapping.reserve(self.written, self.size)

    def forget_pages(self, int64_t end):
        self.mapping.forget_pages(end)

    def flush(self):
        self.mapping.flush(0, self.written)

    def write_zeros(self, int64_t start, int64_t end):
        cdef int fd = c_open(os.fsencode(self.path), O_RDWR | O_DIRECT | O_CLOEXEC)
        cdef int64_t at = blocks_end(start)
        cdef int failed = EIO if fd < 0 else 0
        cdef const uint8_t *zeros = self.backend.zeros
        with nogil:
            while failed == 0 and at < end:
                failed = zero_step(fd, zeros, at, end)
                at += ZERO_STEP
            if failed == 0 and fdatasync(fd) != 0:
                failed = errno
            if fd >= 0:
                c_close(fd)
        if failed:
            raise BackendError(f"cannot write zeros to {self.path}: {os.strerror(failed)}")


@cython.final
cdef class UringBackend(Backend):
    """O_DIRECT writes with RWF_DSYNC, several in flight, without a write thread.

    The kernel signals the eventfd; a read of `durable_offset` takes the completed writes and
    submits the waiting ones. After the first failed write no further bytes become durable.
    Segments must be multiples of 4096 bytes, on a file system that supports O_DIRECT.

    `window`: bytes of locked memory for appended bytes, a multiple of 1 MiB; when the disk is
    that far behind, segments provide no more memory. `depth`: writes in flight, 1 to 16. Raises
    BackendError if the kernel refuses io_uring. (RocketMQ has no counterpart.)
    """

    name = "uring"

    def __cinit__(self, *, int64_t window=64 << 20, int depth=8):
        cdef void *zeros
        if window <= 0 or window % (1 << 20):
            raise BackendError(f"window={window}: use a multiple of {1 << 20} bytes")
        self.window, self.attached = Window(window), []
        self.ring = WriteRing(self.window, depth, self.event_fd)
        self.prewrites = True
        zeros = mmap(NULL, ZERO_STEP, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
        if zeros == MAP_FAILED:
            raise BackendError(f"cannot map {ZERO_STEP} zeros: {os.strerror(errno)}")
        self.zeros = <const uint8_t *> zeros

    def __dealloc__(self):
        cdef Extent *extent
        if self.zeros != NULL:
            munmap(<void *> self.zeros, ZERO_STEP)
        while self.first != NULL:
            extent = self.first
            self.first = extent.next
            c_close(extent.file.fd)
            free(extent)

    # --- segments

    def create(self, str path, int64_t base_offset, int64_t size):
        cdef Mapping mapping
        self.check_size(path, size)
        mapping = Mapping(path, size, create=True)
        try:
            mapping.reserve(0, size)
            mapping.flush()
            sync_folder(os.path.dirname(path))
        except (BackendError, OSError) as error:
            os.unlink(path)
            raise BackendError(
                f"cannot create {path} of {size} bytes: {error}", error.errno or 0
            ) from error
        return UringSegment(mapping, self, base_offset, 0)

    def open(self, str path, int64_t base_offset, int64_t size, int64_t written):
        self.check_size(path, size)
        if not 0 <= written <= size:
            raise BackendError(f"{path} has {size} bytes, of which {written} cannot be written")
        return UringSegment(Mapping(path, size), self, base_offset, written)

    def check_size(self, path, int64_t size):
        """Raises BackendError if io_uring cannot write segments of `size` bytes."""
        if size % BLOCK:
            raise BackendError(
                f"io_uring cannot write {path} of {size} bytes: "
                f"mappedFileSizeCommitLog must be a multiple of {BLOCK}"
            )

    def attach(self, Segment segment):
        cdef Extent *extent
        if not self.running:
            self.attached.append(segment)
            return
        extent = self.extent_of(<UringSegment?> segment)
        self.attached.append(segment)
        pthread_mutex_lock(&self.lock)
        self.join(extent)
        pthread_mutex_unlock(&self.lock)
        if segment.prewritten < segment.size:
            self.prewrite(segment)
        while (<Segment> self.attached[0]).base_offset < self.first.base:
            del self.attached[0]

    cdef Extent *extent_of(self, UringSegment segment) except NULL:
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

    # For a segment whose zeros could not be written before its first use.
    def prewrite(self, UringSegment segment):
        """Start a thread that writes zeros behind the appended bytes of a segment in use."""
        thread = threading.Thread(
            target=self.run_prewrite, args=(segment, self.prewriter), name="prewrite", daemon=True
        )
        try:
            thread.start()
        except RuntimeError:
            return  # without a thread, writes only wait for the journal
        self.prewriter = thread

    def run_prewrite(self, UringSegment segment, before):
        """Write the zeros; the body of the thread, which first waits for the thread `before`."""
        cdef int64_t base = segment.base_offset
        cdef int fd = c_open(os.fsencode(segment.path), O_RDWR | O_DIRECT | O_CLOEXEC)
        cdef int failed
        if before is not None:
            before.join()
        if fd < 0:
            return  # without a descriptor, writes only wait for the journal
        with nogil:
            pthread_mutex_lock(&self.lock)
            failed = self.write_zeros_behind(fd, base, base + segment.size)
            if failed != 0:
                self.fail(failed)
            pthread_mutex_unlock(&self.lock)
            c_close(fd)

    # The caller holds `lock`, which is released during disk writes. Returns 0 or errno.
    cdef int write_zeros_behind(self, int fd, int64_t base, int64_t end) noexcept nogil:
        cdef int64_t unsynced = 0
        cdef int failed = 0
        self.zero_from = self.zero_upto = base
        while failed == 0 and self.plan_zeros(base, end):
            pthread_mutex_unlock(&self.lock)
            failed = zero_step(fd, self.zeros, self.zero_from - base, self.zero_upto - base)
            pthread_mutex_lock(&self.lock)
            unsynced += self.zero_upto - self.zero_from
            self.zero_from = self.zero_upto
            self.advance()
            # Without it later writes wait for the file system's journal.
            if failed == 0 and (unsynced >= ZERO_RUN or self.zero_upto == end):
                pthread_mutex_unlock(&self.lock)
                failed = errno if fdatasync(fd) != 0 else 0
                pthread_mutex_lock(&self.lock)
                unsynced = 0
        return failed

    # The next step of zeros, behind the mapped window, which is written anyway; false if none.
    cdef bint plan_zeros(self, int64_t base, int64_t end) noexcept nogil:
        cdef Extent *extent = self.extent_at(base)
        if self.stopping or self.failure != 0 or extent == NULL or extent.base != base:
            return False
        self.zero_from = max(self.zero_upto, extent.ready)
        self.zero_upto = min(self.zero_from + ZERO_STEP, end)
        return self.zero_from < end

    cdef void join(self, Extent *extent) noexcept nogil:
        cdef Extent **at = &self.first
        while at[0] != NULL:
            at = &at[0].next
        at[0] = extent

    cdef Extent *extent_at(self, int64_t position) noexcept nogil:
        cdef Extent *extent = self.first
        while extent != NULL and extent.end <= position:
            extent = extent.next
        return extent

    # --- the window

    # Maps the window at least up to `upto`; returns the end of the mapped range.
    cdef int64_t make_room(self, int64_t upto) noexcept nogil:
        cdef Extent *extent
        cdef int64_t start, end
        cdef int error
        pthread_mutex_lock(&self.lock)
        extent = self.extent_at(upto - 1)
        start = extent.ready
        end = min(max(upto, start + STEP) + STEP - 1, extent.end)
        end = max(min(end - end % STEP, extent.end), blocks_end(upto))
        if self.may_retire(end - self.window.size):
            error = self.show_window(extent, start, end)
            if error == 0:
                extent.ready = end
            else:
                self.fail(error)
        end = extent.ready
        pthread_mutex_unlock(&self.lock)
        return end

    # Whether all bytes of the window below `upto` are durable.
    cdef bint may_retire(self, int64_t upto) noexcept nogil:
        cdef Extent *extent
        if upto <= self.shown:
            return True
        self.advance()
        if upto <= block_of(self.durable):
            return True
        extent = self.extent_at(self.submitted)
        if extent != NULL:
            self.target = max(self.target, written_end(extent))
        self.advance()
        return False

    # Maps the window at [start, end), and files at the addresses that it had one window before;
    # returns 0 or errno. Moving pages costs half as much as unmapping and mapping them again.
    cdef int show_window(self, Extent *extent, int64_t start, int64_t end) noexcept nogil:
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

    # --- writes

    cdef void request_durable(self, int64_t upto) noexcept nogil:
        pthread_mutex_lock(&self.lock)
        if upto > self.target:
            self.target = upto
        self.advance()
        pthread_mutex_unlock(&self.lock)

    cdef bint write_here(self, int64_t upto) noexcept nogil:
        cdef bint done
        pthread_mutex_lock(&self.lock)
        if upto > self.target:
            self.target = upto
        if self.renew():
            if self.ring.count == 1 and self.ring.flying == 0:
                self.settle(self.ring.write_oldest())
            else:
                self.send()
        done = self.failure == 0 and self.durable >= upto
        pthread_mutex_unlock(&self.lock)
        return done

    # Takes completions and sends writes. The caller holds `lock`, here and below.
    cdef void advance(self) noexcept nogil:
        if self.renew():
            self.send()

    # Takes completions and plans writes; false if no write may be sent.
    cdef bint renew(self) noexcept nogil:
        if not self.running:
            return False
        self.settle(self.ring.reap())
        if self.failure != 0:
            return False
        self.plan()
        return True

    # Advances `durable` behind completed writes; `failed` is 0 or the errno of a failed one.
    cdef void settle(self, int failed) noexcept nogil:
        if failed != 0:
            self.fail(failed)
        if self.failure == 0 and not self.lost_page():
            # The completion itself has signalled the eventfd.
            store_release(&self.durable, self.ring.done_upto(self.durable))

    cdef void send(self) noexcept nogil:
        cdef int failed = self.ring.submit()
        if failed != 0:
            self.fail(failed)

    cdef void plan(self) noexcept nogil:
        cdef Extent *extent
        cdef int64_t start, end
        while self.ring.count < self.ring.depth and self.submitted < self.target:
            extent = self.extent_at(self.submitted)
            if extent == NULL:
                return
            # The padding behind the end must not count as written: records follow there.
            end = min(self.target, written_end(extent))
            start = block_of(self.submitted)
            # A partly written group may end inside a batch: the full group waits for the zeros.
            if end <= self.submitted or (
                start < self.zero_upto and min(end, start + WRITE_MAX) > self.zero_from
            ):
                return
            if (start < self.submitted and self.ring.count > 0
                    and self.ring.at(self.ring.count - 1).state != WRITE_DONE):
                # The first block is in flight and must wait. The rest of a long group is sent
                # now; a short one waits with the block for one write, and is done as soon.
                if end <= start + ALONE_MAX or self.ring.count + 1 >= self.ring.depth:
                    return
                end = start + BLOCK
            end = min(end, start + WRITE_MAX, start + self.window.stretch(start))
            self.ring.add(&extent.file, start, end)
            self.submitted = end

    # --- life

    @property
    def durable_offset(self):
        pthread_mutex_lock(&self.lock)
        self.advance()
        pthread_mutex_unlock(&self.lock)
        return load_acquire(&self.durable)

    @property
    def depth(self):
        """Writes in flight at most."""
        return self.ring.depth

    @property
    def in_flight(self):
        """Physical offsets [start, end) of the blocks of each write in flight."""
        pthread_mutex_lock(&self.lock)
        found = self.ring.in_flight()
        pthread_mutex_unlock(&self.lock)
        return found

    def start(self, int64_t durable_offset):
        cdef Segment segment
        cdef UringSegment last
        cdef Extent *extent
        if self.running:
            raise BackendError("the backend has already been started: create a new one")
        for segment in self.attached:
            segment.flush()
            durable_offset = max(durable_offset, segment.base_offset + segment.written)
        del self.attached[:max(len(self.attached) - 1, 0)]
        if self.attached:
            last = self.attached[0]
            extent = self.extent_of(last)
            self.join(extent)
            self.show_tail(last, extent)
        pthread_mutex_lock(&self.lock)
        self.submitted = self.target = durable_offset
        self.shown = block_of(durable_offset)
        self.succeed(durable_offset)
        self.running = True
        pthread_mutex_unlock(&self.lock)
        if self.attached and last.prewritten < last.size:
            self.prewrite(last)

    # The window begins at the block that contains the end of the log.
    cdef int show_tail(self, UringSegment segment, Extent *extent) except -1:
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

    def wait_durable(self, int64_t upto, double timeout_s):
        cdef bint going = True
        cdef double deadline = time.monotonic() + timeout_s
        self.request_durable(upto)
        while going and self.durable_offset < upto:
            if self.failure != 0 or time.monotonic() >= deadline:
                going = False
            else:
                self.await_completion()
        return going

    cdef void await_completion(self):
        with nogil:
            self.ring.await_completion(WAIT_MS)

    def stop(self):
        cdef Segment last
        if not self.running:
            return
        pthread_mutex_lock(&self.lock)
        self.stopping = True
        if self.attached:
            last = self.attached[len(self.attached) - 1]
            self.target = last.base_offset + last.published()
        pthread_mutex_unlock(&self.lock)
        while not self.idle():
            self.await_completion()
        if self.prewriter is not None:
            self.prewriter.join()
        pthread_mutex_lock(&self.lock)
        self.running = False
        pthread_mutex_unlock(&self.lock)

    # The memory of a write in flight must stay mapped; after a failure no write is sent.
    cdef bint idle(self) noexcept nogil:
        cdef bint found
        pthread_mutex_lock(&self.lock)
        self.advance()
        found = self.ring.flying == 0 and (
            self.failure != 0 or (self.ring.count == 0 and self.submitted >= self.target)
        )
        pthread_mutex_unlock(&self.lock)
        return found
