# The entries of the journal of pops: what changed in which window, for replay() after a restart and
# on a slave. A body is a sequence of entries, numbers are big-endian.
#
#   WINDOW    int32 queue id, int16 bytes of the group, int16 bytes of the topic, group, topic,
#             int64 begin: the entries after it are of this window, which begins there if it is new
#   TAKEN     uint8 ordered, uint16 attempts, uint32 invisible ms, int64 pop ms, int64 next,
#             uint32 runs, then for each run int64 first offset, uint32 messages
#   SETTLED   int64 first offset, uint32 messages, int64 pop ms
#   EXTENDED  uint16 attempts, uint32 invisible ms, int64 offset, int64 old pop ms,
#             int64 new pop ms
#   RESET     int64 offset
#   DROPPED
#
# A kind is one byte. Entries that are read a second time, in order and up to the last, change
# nothing.
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t

from congreve.base.byte_buffer cimport ByteBuffer
from congreve.engine.pop.state cimport Out, Window


cdef enum Kind:
    WINDOW = 1
    TAKEN
    SETTLED
    EXTENDED
    RESET
    DROPPED


# Bytes of the entries, with their kinds; a window's without its names, TAKEN without its runs.
cdef enum Size:
    WINDOW_SIZE = 17
    TAKEN_SIZE = 28
    TAKEN_NEXT = 16     # where a field is in it
    TAKEN_RUNS = 24
    RUN_SIZE = 12
    SETTLED_SIZE = 21
    EXTENDED_SIZE = 31
    RESET_SIZE = 9
    DROPPED_SIZE = 1


cdef struct Journal:
    ByteBuffer entries
    const Window *window    # of the last entry
    int64_t settled_at      # of the last entry, if it is SETTLED; else -1


# Room for entries of `size` bytes of a window, and for its name. False without memory.
cdef bint reserve(Journal *journal, const Window *window, int64_t size) noexcept nogil
# Names the window, if the last entry was of another one. What follows needs reserved room.
cdef void put_window(Journal *journal, const Window *window, int64_t begin) noexcept nogil
# The runs follow by put_run(), as many as `runs` says.
cdef void put_taken(Journal *journal, const Out *out, int64_t next, int64_t runs) noexcept nogil
cdef void put_run(Journal *journal, int64_t first, int64_t count) noexcept nogil
cdef void put_settled(Journal *journal, int64_t offset, int64_t pop_ms) noexcept nogil
cdef void put_extended(Journal *journal, const Out *out, int64_t old_pop_ms) noexcept nogil
cdef void put_reset(Journal *journal, int64_t offset) noexcept nogil
cdef void put_dropped(Journal *journal) noexcept nogil
# Moves the entries to the end of `taken`. False without memory: nothing is moved.
cdef bint move_entries(Journal *journal, ByteBuffer *taken) noexcept nogil
# The size of the entry at `at`, of which `left` bytes are there; 0 if it is damaged.
cdef int64_t entry_size(const uint8_t *at, int64_t left) noexcept nogil


# Offsets and pop times are in this range, so that no sum overflows.
cdef inline bint in_range(int64_t number) noexcept nogil:
    return 0 <= number <= INT64_MAX // 2
