"""Writes through io_uring: several in flight, done in the order of the log.

Two writes in flight never share a block: a write that begins inside the last block of the previous
write waits for it, so that older bytes cannot overwrite newer ones. Writes after that block do not
wait. A partial last block is padded with zeros after the write's end. Callers hold the backend's
lock.
"""

cimport cython
from libc.errno cimport EINTR, EIO, errno
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcpy, memset
from posix.mman cimport (
    MAP_ANONYMOUS, MAP_FAILED, MAP_PRIVATE, PROT_READ, PROT_WRITE, mmap, munmap,
)

from congreve.io_backends.uring.liburing cimport (
    IORING_SETUP_COOP_TASKRUN, IOSQE_FIXED_FILE, RWF_DSYNC, io_uring_cqe, io_uring_cqe_seen,
    io_uring_get_sqe, io_uring_peek_cqe, io_uring_prep_write, io_uring_prep_write_fixed,
    io_uring_prep_writev, io_uring_queue_exit, io_uring_queue_init, io_uring_register_buffers,
    io_uring_register_eventfd, io_uring_register_files, io_uring_register_files_update,
    io_uring_sqe, io_uring_submit, iovec,
)
from congreve.io_backends.window cimport Window

import logging
import os

from congreve.io_backends.errors import BackendError

cdef extern from "<errno.h>" nogil:
    int ECANCELED

cdef extern from "<sys/uio.h>" nogil:
    ssize_t pwritev2(int fd, const iovec *blocks, int count, int64_t at, int flags)

cdef extern from "<poll.h>" nogil:
    struct pollfd:
        int fd
        short events
        short revents
    int POLLIN
    int poll(pollfd *fds, unsigned long count, int timeout_ms)

logger = logging.getLogger(__name__)


@cython.final
cdef class WriteRing:
    """The writes in flight of one UringBackend, in log order.

    Compiled code uses it; Python has only the constructor.
    """

    def __cinit__(self, Window window not None, int depth, int event_fd):
        cdef iovec memory[2]
        cdef void *tails
        cdef int files[FILE_SLOTS]
        cdef int failed, i
        if not 1 <= depth <= WRITES_MAX:
            raise BackendError(f"depth={depth}: use 1 to {WRITES_MAX} writes in flight")
        self.window, self.depth = window, depth
        failed = io_uring_queue_init(2 * WRITES_MAX, &self.ring, IORING_SETUP_COOP_TASKRUN)
        if failed < 0:
            raise BackendError(f"cannot create an io_uring: {os.strerror(-failed)}")
        self.made = True
        failed = io_uring_register_eventfd(&self.ring, event_fd)
        if failed < 0:
            raise BackendError(f"cannot register an eventfd with io_uring: {os.strerror(-failed)}")
        tails = mmap(NULL, WRITES_MAX * BLOCK, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
        if tails == MAP_FAILED:
            raise BackendError(f"cannot map {WRITES_MAX * BLOCK} bytes: {os.strerror(errno)}")
        self.tails = <uint8_t *> tails
        memory[0].iov_base, memory[0].iov_len = window.data, window.size
        memory[1].iov_base, memory[1].iov_len = tails, WRITES_MAX * BLOCK
        failed = io_uring_register_buffers(&self.ring, memory, 2)
        self.fixed_buffers = failed == 0
        if failed < 0:
            logger.warning(
                "io_uring cannot lock %d MiB (%s): writes will be slower; raise RLIMIT_MEMLOCK",
                window.size >> 20, os.strerror(-failed),
            )
        for i in range(FILE_SLOTS):
            files[i] = -1
        self.fixed_files = io_uring_register_files(&self.ring, files, FILE_SLOTS) == 0

    def __dealloc__(self):
        if self.made:
            io_uring_queue_exit(&self.ring)
        if self.tails != NULL:
            munmap(self.tails, WRITES_MAX * BLOCK)

    cdef int slot_for(self, int64_t number, int fd) noexcept nogil:
        cdef int slot = <int> (number % FILE_SLOTS)
        if not self.fixed_files:
            return -1
        return slot if io_uring_register_files_update(&self.ring, slot, &fd, 1) >= 0 else -1

    cdef Write *at(self, int place) noexcept nogil:
        return &self.writes[(self.oldest + place) % WRITES_MAX]

    cdef void add(self, const Target *target, int64_t start, int64_t end) noexcept nogil:
        cdef Write *write = self.at(self.count)
        write.target, write.start, write.end, write.state = target[0], start, end, WRITE_WAITS
        self.count += 1

    cdef int reap(self) noexcept nogil:
        cdef io_uring_cqe *cqe = NULL
        cdef Write *write
        cdef int failed = 0
        while io_uring_peek_cqe(&self.ring, &cqe) == 0:
            write = &self.writes[cqe.user_data]
            self.flying -= 1
            if cqe.res == -ECANCELED:
                write.state = WRITE_WAITS   # its thread ended before the kernel started the write
            elif cqe.res == blocks_end(write.end) - write.start:
                write.state = WRITE_DONE
            elif failed == 0:
                failed = -cqe.res if cqe.res < 0 else EIO
            io_uring_cqe_seen(&self.ring, cqe)
        return failed

    cdef int64_t done_upto(self, int64_t durable) noexcept nogil:
        while self.count > 0 and self.at(0).state == WRITE_DONE:
            durable = self.at(0).end
            self.oldest = (self.oldest + 1) % WRITES_MAX
            self.count -= 1
        return durable

    cdef int submit(self) noexcept nogil:
        cdef Write *write
        cdef Write *before = NULL
        cdef int i, done
        cdef int fresh = 0
        for i in range(self.count):
            write = self.at(i)
            if write.state == WRITE_WAITS and (
                before == NULL or before.state == WRITE_DONE
                or blocks_end(before.end) <= write.start
            ):
                if not self.fly((self.oldest + i) % WRITES_MAX):
                    return EIO
                fresh += 1
            before = write
        while fresh > 0:
            done = io_uring_submit(&self.ring)
            if done == -EINTR:
                continue
            if done <= 0:
                return -done if done < 0 else EIO
            fresh -= done
        return 0

    cdef bint fly(self, int index) noexcept nogil:
        cdef io_uring_sqe *sqe = io_uring_get_sqe(&self.ring)
        cdef Write *write = &self.writes[index]
        cdef iovec *parts = write.parts
        cdef int64_t at = write.start - write.target.base
        cdef int file = write.target.fd if write.target.slot < 0 else write.target.slot
        if sqe == NULL:
            return False
        self.lay_out(index)
        if write.parts_count > 1:
            io_uring_prep_writev(sqe, file, parts, 2, at)
        elif self.fixed_buffers:
            io_uring_prep_write_fixed(sqe, file, parts[0].iov_base, parts[0].iov_len, at,
                                      write.end % BLOCK != 0)
        else:
            io_uring_prep_write(sqe, file, parts[0].iov_base, parts[0].iov_len, at)
        sqe.rw_flags = RWF_DSYNC
        if write.target.slot >= 0:
            sqe.flags |= IOSQE_FIXED_FILE
        sqe.user_data = index
        write.state = WRITE_FLIES
        self.flying += 1
        return True

    cdef void lay_out(self, int index) noexcept nogil:
        cdef Write *write = &self.writes[index]
        cdef const uint8_t *data = self.window.data + write.start % self.window.size
        cdef int64_t whole = block_of(write.end) - write.start
        cdef int64_t rest = write.end % BLOCK
        cdef uint8_t *tail = self.tails + index * BLOCK
        cdef int count = 0
        if whole > 0:
            write.parts[0].iov_base, write.parts[0].iov_len = <void *> data, whole
            count = 1
        if rest > 0:
            memcpy(tail, data + whole, rest)
            memset(tail + rest, 0, BLOCK - rest)
            write.parts[count].iov_base, write.parts[count].iov_len = tail, BLOCK
            count += 1
        write.parts_count = count

    cdef Write *begin_oldest(self) noexcept nogil:
        cdef Write *write = self.at(0)
        self.lay_out(self.oldest)
        write.state = WRITE_FLIES
        self.flying += 1
        return write

    cdef int write_blocks(self, const Write *write) noexcept nogil:
        cdef int64_t size = blocks_end(write.end) - write.start
        cdef int64_t done
        while True:
            done = pwritev2(write.target.fd, write.parts, write.parts_count,
                            write.start - write.target.base, RWF_DSYNC)
            if done >= 0 or errno != EINTR:
                break
        if done < 0:
            return errno
        return 0 if done == size else EIO

    cdef void end_oldest(self, Write *write, int failed) noexcept nogil:
        self.flying -= 1
        if failed == 0:
            write.state = WRITE_DONE

    cdef list in_flight(self):
        cdef Write *write
        cdef int i
        found = []
        for i in range(self.count):
            write = self.at(i)
            if write.state == WRITE_FLIES:
                found.append((write.start, blocks_end(write.end)))
        return found

    cdef void await_completion(self, int timeout_ms) noexcept nogil:
        cdef pollfd ready
        ready.fd, ready.events = self.ring.ring_fd, POLLIN
        poll(&ready, 1, timeout_ms)
