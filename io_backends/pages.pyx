"""Which pages of a mapped segment are in memory, and advice to the kernel about them."""

from libc.stdint cimport int64_t, uint8_t
from posix.mman cimport MADV_WILLNEED

from congreve.io_backends.backend cimport Segment
from congreve.io_backends.page cimport PAGE

cdef extern from "<sys/mman.h>" nogil:
    int mincore(void *addr, size_t length, unsigned char *vec)
    int madvise(void *addr, size_t length, int advice)

cdef enum:
    PAGES_MAX = 65          # 256 KiB that begin anywhere
    MADV_COLD = 20
    MADV_POPULATE_READ = 22


cdef bint in_memory(const uint8_t *data, int64_t length) noexcept nogil:
    cdef unsigned char there[PAGES_MAX]
    cdef int64_t before = <int64_t> (<size_t> data % PAGE)
    cdef int64_t pages = min((before + length + PAGE - 1) // PAGE, PAGES_MAX)
    cdef int64_t i
    if mincore(<void *> (data - before), pages * PAGE, there) != 0:
        return True
    for i in range(pages):
        if not there[i] & 1:
            return False
    return True


def is_in_memory(Segment segment not None, int64_t start, int64_t end):
    """Whether an access to [start, end) of the segment, 256 KiB at most, needs no disk."""
    return in_memory(segment.data + start, min(end, segment.size) - start)


def fetch(Segment segment not None, int64_t start, int64_t end):
    """Read [start, end) of the segment from disk; returns when the bytes are in memory.

    It releases the GIL. It skips pages that the disk cannot read; a later access to them fails.
    """
    cdef uint8_t *at = segment.data + start - start % PAGE
    cdef int64_t length = min(end, segment.size) - (start - start % PAGE)
    if length > 0:
        with nogil:
            # The first call starts the read of the whole range, the second one waits for it.
            madvise(at, length, MADV_WILLNEED)
            madvise(at, length, MADV_POPULATE_READ)


def retire(Segment segment not None, int64_t start, int64_t end):
    """Let the kernel reclaim the pages of [start, end) before others, because they were read."""
    cdef int64_t length = min(end, segment.size) - (start - start % PAGE)
    if length > 0:
        with nogil:
            madvise(segment.data + start - start % PAGE, length, MADV_COLD)
