from libc.stdint cimport int32_t, int64_t

# When an entry is due, where its record is in the log, and which run it comes from.
cdef struct Entry:
    int64_t wake                # ms since 1970
    int64_t offset              # physical
    int64_t source              # slot of a run, or MEMORY

# The loaded part of a run: (wake, offset) pairs in order.
cdef struct Block:
    const int64_t *pairs
    int64_t at
    int64_t count

cdef enum:
    MEMORY = -1


cdef class TimerHeap:
    # A binary heap of entries in memory and the heads of sorted runs, least (wake, offset) first.
    cdef Entry *entries
    cdef int64_t capacity
    cdef readonly int64_t count
    """Loaded entries: those in memory and one of each run (more after give_back())."""
    cdef readonly int64_t memory_count
    """Entries that do not come from a run."""
    cdef Block *blocks                      # by slot
    cdef int32_t slots
    cdef list arrays                        # what the blocks point into
    cdef readonly int64_t starved
    """The slot whose block is used up; -1 without one."""

    cdef int reserve(self, int64_t wanted) except -1
    cdef void push(self, int64_t wake, int64_t offset, int64_t source) noexcept nogil
    cdef void pop(self) noexcept nogil
    cdef void sift_down(self, int64_t at) noexcept nogil
    cdef void advance(self, int64_t slot) noexcept nogil
    cdef int64_t pop_due(self, int64_t now, int64_t *rows, int64_t limit) noexcept nogil
