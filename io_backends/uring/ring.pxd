from libc.stdint cimport int64_t, uint8_t

from congreve.io_backends.uring.liburing cimport io_uring, iovec
from congreve.io_backends.window cimport Window

cdef enum:
    BLOCK = 4096
    WRITES_MAX = 16
    FILE_SLOTS = 16


cdef inline int64_t block_of(int64_t position) noexcept nogil:
    return position - position % BLOCK


cdef inline int64_t blocks_end(int64_t position) noexcept nogil:
    return block_of(position + BLOCK - 1)


# The file that a write goes to.
cdef struct Target:
    int64_t base        # physical offset where it begins
    int fd              # opened for O_DIRECT
    int slot            # of the ring's registered files; -1: none


cdef enum WriteState:
    WRITE_WAITS         # for the previous write, which contains the same block
    WRITE_FLIES
    WRITE_DONE


# One write of full blocks. When it and all previous ones are done, the log is durable up to `end`.
cdef struct Write:
    Target target
    int64_t start       # physical offset of the first block
    int64_t end         # may lie inside the last block
    WriteState state
    int parts_count
    iovec parts[2]      # its memory: blocks of the window, a copy of the last one


cdef class WriteRing:
    #   writes     `count` writes in log order from `oldest` on, at most `depth`
    #   flying     the number of writes that the kernel has
    #   tails      a block for each write: a copy of its partial last block, because the log may
    #              grow in that block during the write
    cdef io_uring ring
    cdef bint made
    cdef bint fixed_buffers
    cdef bint fixed_files
    cdef Window window
    cdef uint8_t *tails
    cdef readonly int depth
    """Writes in flight at most."""
    cdef Write writes[WRITES_MAX]
    cdef int oldest
    cdef int count
    cdef int flying

    # Registers the log's file with this number in the slot of the file FILE_SLOTS before it, and
    # returns the slot; -1 if the ring has no registered files.
    cdef int slot_for(self, int64_t number, int fd) noexcept nogil
    # The write at this place; the oldest is at place 0.
    cdef Write *at(self, int place) noexcept nogil
    # Adds a write after all others; submit() sends it.
    cdef void add(self, const Target *target, int64_t start, int64_t end) noexcept nogil
    # Takes the completions; returns 0 or errno.
    cdef int reap(self) noexcept nogil
    # Removes the oldest writes that are done; returns the end of the last one, else `durable`.
    cdef int64_t done_upto(self, int64_t durable) noexcept nogil
    # Sends all writes that need not wait; returns 0 or errno.
    cdef int submit(self) noexcept nogil
    cdef bint fly(self, int index) noexcept nogil
    # Fills in the parts of a write.
    cdef void lay_out(self, int index) noexcept nogil
    # The oldest write without the ring. write_blocks() waits for the disk, which needs no lock, and
    # returns 0 or errno.
    cdef Write *begin_oldest(self) noexcept nogil
    cdef int write_blocks(self, const Write *write) noexcept nogil
    cdef void end_oldest(self, Write *write, int failed) noexcept nogil
    # (start, end) of the blocks of each write in flight.
    cdef list in_flight(self)
    cdef void await_completion(self, int timeout_ms) noexcept nogil
