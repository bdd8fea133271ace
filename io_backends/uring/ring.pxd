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
    WRITE_WAITS         # for the write before it, which holds the same block
    WRITE_FLIES
    WRITE_DONE


# One write of whole blocks. When it and all before it are done, the log is durable up to `end`.
cdef struct Write:
    Target target
    int64_t start       # physical offset of the first block
    int64_t end         # may lie inside the last block
    WriteState state
    iovec parts[2]      # its memory: blocks of the window, a copy of the last one


cdef class WriteRing:
    #   writes     in log order from `oldest` on, `count` of them, at most `depth`
    #   flying     of them are with the kernel
    #   tails      a block for each write: a last block that is not full is written from there,
    #              or what is appended meanwhile would be on disk in part
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

    # Registers the file that is the number-th of the log, in the place of the one FILE_SLOTS before
    # it; -1: the ring takes no files.
    cdef int slot_for(self, int64_t number, int fd) noexcept nogil
    # The write in this place; the oldest is in place 0.
    cdef Write *at(self, int place) noexcept nogil
    # A write behind all others; submit() sends it.
    cdef void add(self, const Target *target, int64_t start, int64_t end) noexcept nogil
    # Takes what has come back: 0 or errno.
    cdef int reap(self) noexcept nogil
    # Forgets the oldest writes that are done; returns where the last of them ends, else `durable`.
    cdef int64_t done_upto(self, int64_t durable) noexcept nogil
    # Sends all that need not wait: 0 or errno.
    cdef int submit(self) noexcept nogil
    cdef bint fly(self, int index) noexcept nogil
    # Fills in the parts of a write; how many they are.
    cdef int lay_out(self, int index) noexcept nogil
    # Does the oldest write without the ring, waiting for the disk: 0 or errno.
    cdef int write_oldest(self) noexcept nogil
    # (start, end) of the blocks of each write in flight.
    cdef list in_flight(self)
    cdef void await_completion(self, int timeout_ms) noexcept nogil
