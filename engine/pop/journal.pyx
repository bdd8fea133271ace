"""Entries of the journal of pops (journal.pxd has their form)."""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy

from congreve.base.byte_buffer cimport append_bytes, make_room
from congreve.base.cursor cimport load_i16, load_i32, load_i64, store_i16, store_i32, store_i64
from congreve.engine.pop.state cimport Out, Window


cdef bint reserve(Journal *journal, const Window *window, int64_t size) noexcept nogil:
    cdef int64_t wanted = journal.entries.used + window.key.length + 8 + size
    return wanted <= journal.entries.size or make_room(&journal.entries, wanted * 2)


cdef inline uint8_t *put(Journal *journal, int64_t size) noexcept nogil:
    cdef uint8_t *at = journal.entries.data + journal.entries.used
    journal.entries.used += size
    journal.settled_at = -1
    return at


cdef void put_window(Journal *journal, const Window *window, int64_t begin) noexcept nogil:
    cdef uint8_t *at
    if journal.window == window:
        return
    at = put(journal, window.key.length + 8)
    memcpy(at, window.key.bytes, window.key.length)
    store_i64(at + window.key.length, begin)
    journal.window = window


cdef void put_taken(Journal *journal, const Out *out, int64_t next, int64_t runs) noexcept nogil:
    cdef uint8_t *at = put(journal, TAKEN_SIZE)
    at[0] = TAKEN
    at[1] = out.ordered
    store_i16(at + 2, <int16_t> out.attempts)
    store_i32(at + 4, <int32_t> out.invisible_ms)
    store_i64(at + 8, out.pop_ms)
    store_i64(at + 16, next)
    store_i32(at + 24, runs)


cdef void put_run(Journal *journal, int64_t first, int64_t count) noexcept nogil:
    cdef uint8_t *at = put(journal, RUN_SIZE)
    store_i64(at, first)
    store_i32(at + 8, count)


cdef void put_settled(Journal *journal, int64_t offset, int64_t pop_ms) noexcept nogil:
    cdef uint8_t *at
    cdef int64_t settled_at = journal.settled_at
    if settled_at >= 0:
        at = journal.entries.data + settled_at
        if load_i64(at + 1) + load_i32(at + 9) == offset and load_i64(at + 13) == pop_ms:
            store_i32(at + 9, load_i32(at + 9) + 1)
            return
    settled_at = journal.entries.used
    at = put(journal, SETTLED_SIZE)
    at[0] = SETTLED
    store_i64(at + 1, offset)
    store_i32(at + 9, 1)
    store_i64(at + 13, pop_ms)
    journal.settled_at = settled_at


cdef void put_extended(Journal *journal, const Out *out, int64_t old_pop_ms) noexcept nogil:
    cdef uint8_t *at = put(journal, EXTENDED_SIZE)
    at[0] = EXTENDED
    store_i16(at + 1, <int16_t> out.attempts)
    store_i32(at + 3, <int32_t> out.invisible_ms)
    store_i64(at + 7, out.offset)
    store_i64(at + 15, old_pop_ms)
    store_i64(at + 23, out.pop_ms)


cdef void put_reset(Journal *journal, int64_t offset) noexcept nogil:
    cdef uint8_t *at = put(journal, RESET_SIZE)
    at[0] = RESET
    store_i64(at + 1, offset)


cdef void put_dropped(Journal *journal) noexcept nogil:
    put(journal, DROPPED_SIZE)[0] = DROPPED
    journal.window = NULL


cdef bint move_entries(Journal *journal, ByteBuffer *taken) noexcept nogil:
    cdef ByteBuffer empty = taken[0]
    if taken.used:
        if not append_bytes(taken, journal.entries.data, journal.entries.used):
            return False
        journal.entries.used = 0
    else:
        taken[0], journal.entries = journal.entries, empty
    journal.window = NULL
    journal.settled_at = -1
    return True


# --- reading

cdef int64_t entry_size(const uint8_t *at, int64_t left) noexcept nogil:
    cdef int64_t size = 0
    cdef bint valid = False
    if at[0] == WINDOW and left >= WINDOW_SIZE:
        # A negative length makes the entry too short.
        size = WINDOW_SIZE + <int64_t> load_i16(at + 5) + load_i16(at + 7)
        valid = (
            load_i32(at + 1) >= 0
            and load_i16(at + 5) >= 0
            and load_i16(at + 7) >= 0
            and size <= left
            and in_range(load_i64(at + size - 8))
        )
    elif at[0] == TAKEN and left >= TAKEN_SIZE:
        size = TAKEN_SIZE + RUN_SIZE * <int64_t> <uint32_t> load_i32(at + 24)
        valid = (
            size <= left
            and in_range(load_i64(at + 8))
            and in_range(load_i64(at + 16))
            and runs_fit(at)
        )
    elif at[0] == SETTLED and left >= SETTLED_SIZE:
        size = SETTLED_SIZE
        valid = in_range(load_i64(at + 1)) and in_range(load_i64(at + 13))
    elif at[0] == EXTENDED and left >= EXTENDED_SIZE:
        size = EXTENDED_SIZE
        valid = (
            in_range(load_i64(at + 7))
            and in_range(load_i64(at + 15))
            and in_range(load_i64(at + 23))
        )
    elif at[0] == RESET and left >= RESET_SIZE:
        size = RESET_SIZE
        valid = in_range(load_i64(at + 1))
    elif at[0] == DROPPED:
        size = DROPPED_SIZE
        valid = True
    return size if valid else 0


# The runs of a TAKEN entry are in order and below its `next`.
cdef bint runs_fit(const uint8_t *at) noexcept nogil:
    cdef const uint8_t *run = at + TAKEN_SIZE
    cdef int64_t after = 0
    cdef int64_t _
    for _ in range(<int64_t> <uint32_t> load_i32(at + 24)):
        if not in_range(load_i64(run)) or load_i64(run) < after:
            return False
        after = load_i64(run) + <uint32_t> load_i32(run + 8)
        run += RUN_SIZE
    return after <= load_i64(at + 16)
