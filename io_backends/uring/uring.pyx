"""The backend that writes through io_uring: O_DIRECT with RWF_DSYNC, several writes in flight.

Appended bytes are in a window of locked memory that is mapped into the address range of every open
segment (`window_extents.pyx`). A write takes full blocks from there; this module chooses them, and
`ring.pyx` sends them. `zeros.pyx` writes zeros to segments ahead.
"""

cimport cython
from libc.stdint cimport int64_t

from congreve.base.atomic cimport load_acquire
from congreve.base.pthread cimport pthread_mutex_lock, pthread_mutex_unlock
from congreve.io_backends.backend cimport (
    Backend, FileSegment, Segment, new_file, old_file, signal,
)
from congreve.io_backends.mapping cimport Mapping
from congreve.io_backends.uring.ring cimport (
    BLOCK, WRITE_DONE, Write, WriteRing, block_of, blocks_end,
)
from congreve.io_backends.uring.window_extents cimport Extent, WindowExtents, written_end
from congreve.io_backends.uring.zeros cimport ZeroWriter
from congreve.io_backends.window cimport Window

import time

from congreve.io_backends.errors import BackendError

cdef enum:
    STEP = 256 << 10        # bytes of the window that are mapped at once
    WRITE_MAX = 256 << 10   # a longer group is split, so that several writes are in flight
    ALONE_MAX = 128 << 10   # a shorter group waits for the previous write, and shares one write
    WAIT_MS = 2             # another thread may take the completion that this one waits for


@cython.final
cdef class UringSegment(FileSegment):
    """A segment with its newest bytes in the backend's window and all others in its file."""

    def __cinit__(self, Mapping mapping, int64_t base_offset, int64_t written,
                  UringBackend backend):
        self.backend = backend

    cdef bint extend(self, int64_t upto) noexcept nogil:
        if upto > self.ready:
            self.ready = self.backend.make_room(self.base_offset + upto) - self.base_offset
        return upto <= self.ready

    def forget_pages(self, int64_t end):
        """Remove the pages of [0, end) from this process's memory; the window stays."""
        self.mapping.forget_pages(end)

    def write_zeros(self, int64_t start, int64_t end):
        """Write zeros to [start, end) of the file with O_DIRECT, and sync. Raises BackendError."""
        self.backend.zeros.fill(self.path, start, end)


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
        if window <= 0 or window % (1 << 20):
            raise BackendError(f"window={window}: use a multiple of {1 << 20} bytes")
        self.window, self.attached = Window(window), []
        self.ring = WriteRing(self.window, depth, self.event_fd)
        self.prewrites = True
        self.extents = WindowExtents(self.window, self.ring)
        self.zeros = ZeroWriter(self.extents)

    # --- segments

    def create(self, str path, int64_t base_offset, int64_t size):
        """Create and map a zeroed file with reserved blocks.

        Raises BackendError, also for a size that is not a multiple of 4096, and then leaves no
        file.
        """
        self.check_size(path, size)
        return UringSegment(new_file(path, size), base_offset, 0, self)

    def open(self, str path, int64_t base_offset, int64_t size, int64_t written):
        """Map an existing file of which [0, written) is meaningful. Raises BackendError."""
        self.check_size(path, size)
        return UringSegment(old_file(path, size, written), base_offset, written, self)

    def check_size(self, path, int64_t size):
        """Raises BackendError if io_uring cannot write segments of `size` bytes."""
        if size % BLOCK:
            raise BackendError(
                f"io_uring cannot write {path} of {size} bytes: "
                f"mappedFileSizeCommitLog must be a multiple of {BLOCK}"
            )

    def attach(self, Segment segment):
        """Write `segment` from now on; it opens the file for O_DIRECT. Raises BackendError."""
        cdef Extent *extent
        if not self.running:
            self.attached.append(segment)
            return
        extent = self.extents.open(<UringSegment?> segment)
        self.attached.append(segment)
        pthread_mutex_lock(&self.lock)
        self.extents.append(extent)
        pthread_mutex_unlock(&self.lock)
        self.zeros.start_behind(self, segment)
        while (<Segment> self.attached[0]).base_offset < self.extents.first.base:
            del self.attached[0]

    # --- the window

    # Maps the window at least up to `upto`; returns the end of the mapped range.
    cdef int64_t make_room(self, int64_t upto) noexcept nogil:
        cdef Extent *extent
        cdef int64_t start, end
        cdef int error
        pthread_mutex_lock(&self.lock)
        extent = self.extents.at(upto - 1)
        start = extent.ready
        end = min(max(upto, start + STEP) + STEP - 1, extent.end)
        end = max(min(end - end % STEP, extent.end), blocks_end(upto))
        if self.may_retire(end - self.window.size):
            error = self.extents.show(extent, start, end)
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
        if upto <= self.extents.shown:
            return True
        self.advance()
        if upto <= block_of(self.durable):
            return True
        extent = self.extents.at(self.submitted)
        if extent != NULL:
            self.target = max(self.target, written_end(extent))
        self.advance()
        return False

    # --- writes

    cdef void request_durable(self, int64_t upto) noexcept nogil:
        pthread_mutex_lock(&self.lock)
        if upto > self.target:
            self.target = upto
        self.advance()
        self.others_wait = True
        pthread_mutex_unlock(&self.lock)

    cdef bint write_here(self, int64_t upto) noexcept nogil:
        cdef bint done
        pthread_mutex_lock(&self.lock)
        if upto > self.target:
            self.target = upto
        if self.renew():
            if self.ring.count == 1 and self.ring.flying == 0:
                self.write_oldest()
            else:
                self.send()
        done = self.failure == 0 and self.durable >= upto
        pthread_mutex_unlock(&self.lock)
        return done

    # Other threads may request more meanwhile: the lock is free. Nothing else signals to them that
    # this write is done.
    cdef void write_oldest(self) noexcept nogil:
        cdef Write *write = self.ring.begin_oldest()
        cdef int failed
        pthread_mutex_unlock(&self.lock)
        failed = self.ring.write_blocks(write)
        pthread_mutex_lock(&self.lock)
        self.ring.end_oldest(write, failed)
        self.settle(failed)
        self.advance()
        if self.others_wait:
            self.others_wait = False
            signal(self.event_fd)

    cdef void skip(self, int64_t offset) noexcept nogil:
        self.extents.drop_before(offset)
        self.submitted = self.target = offset
        self.extents.shown = block_of(offset)

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

    # Advances `durable` after completed writes; `failed` is 0 or the errno of a failed one.
    cdef void settle(self, int failed) noexcept nogil:
        cdef int64_t durable
        if failed != 0:
            self.fail(failed)
        if self.failure == 0 and not self.lost_page():
            # The completion itself has signalled the eventfd.
            durable = self.ring.done_upto(self.durable)
            if durable > self.durable:
                self.advance_to(durable)

    cdef void send(self) noexcept nogil:
        cdef int failed = self.ring.submit()
        if failed != 0:
            self.fail(failed)

    cdef void plan(self) noexcept nogil:
        cdef Extent *extent
        cdef int64_t start, end
        while self.ring.count < self.ring.depth and self.submitted < self.target:
            extent = self.extents.at(self.submitted)
            if extent == NULL:
                return
            # The padding after the end must not count as written: records follow there.
            end = min(self.target, written_end(extent))
            start = block_of(self.submitted)
            # A partly written group may end inside a batch: the full group waits for the zeros.
            if end <= self.submitted or (
                start < self.zeros.end and min(end, start + WRITE_MAX) > self.zeros.start
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
        """Every byte below this physical offset survives a power cut.

        Reading it takes completed writes and submits waiting ones.
        """
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
        """Sync the attached segments, and show the window in the last one. Raises BackendError."""
        cdef Segment segment
        cdef UringSegment last
        if self.running:
            raise BackendError("the backend has already been started: create a new one")
        for segment in self.attached:
            segment.flush()
            durable_offset = max(durable_offset, segment.base_offset + segment.written)
        del self.attached[:max(len(self.attached) - 1, 0)]
        if self.attached:
            last = self.attached[0]
            self.extents.open_tail(last)
        pthread_mutex_lock(&self.lock)
        self.submitted = self.target = durable_offset
        self.extents.shown = block_of(durable_offset)
        self.succeed(durable_offset)
        self.running = True
        pthread_mutex_unlock(&self.lock)
        if self.attached:
            self.zeros.start_behind(self, last)

    def wait_durable(self, int64_t upto, double timeout_s):
        """Request `upto` and block: True once it is durable, False after a failure or timeout."""
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
        """Write all appended bytes, wait for the writes and for the zeros; idempotent."""
        cdef Segment last
        if not self.running:
            return
        pthread_mutex_lock(&self.lock)
        self.zeros.stopping = True
        if self.attached:
            last = self.attached[len(self.attached) - 1]
            self.target = last.published_end()
        pthread_mutex_unlock(&self.lock)
        while not self.idle():
            self.await_completion()
        self.zeros.join()
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
