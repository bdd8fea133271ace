"""A window as entries of the journal (snapshot.pxd)."""

from libc.stdint cimport int64_t
from libc.string cimport memset

from congreve.base.cursor cimport store_i32, store_i64
from congreve.engine.pop.journal cimport (
    RESET_SIZE,
    RUN_SIZE,
    TAKEN_NEXT,
    TAKEN_RUNS,
    TAKEN_SIZE,
    Journal,
    put_reset,
    put_run,
    put_taken,
    put_window,
    reserve,
)
from congreve.engine.pop.state cimport Out, Window
from congreve.engine.pop.window cimport begin_of, out_from


cdef bint put_state(Journal *journal, const Window *window) noexcept nogil:
    cdef int64_t slot, begin = begin_of(window)
    cdef Out none
    cdef const Out *out = out_from(window, begin, &slot)
    if not reserve(journal, window, RESET_SIZE):
        return False
    put_window(journal, window, begin)
    put_reset(journal, begin)
    while out != NULL:
        if not put_alike(journal, window, &out):
            return False
    if not reserve(journal, window, TAKEN_SIZE):
        return False
    memset(&none, 0, sizeof(Out))
    put_taken(journal, &none, window.next, 0)
    return True


# An entry of those from `at` on that are out in the same way; moves `at` after them.
cdef bint put_alike(Journal *journal, const Window *window, const Out **at) noexcept nogil:
    cdef int64_t slot, first, next = 0, runs = 0
    cdef int64_t entry = journal.entries.used
    cdef Out like = at[0][0]
    cdef const Out *out = at[0]
    if not reserve(journal, window, TAKEN_SIZE):
        return False
    put_taken(journal, &like, 0, 0)
    while out != NULL and alike(out, &like):
        first = next = out.offset
        while out != NULL and out.offset == next and alike(out, &like):
            next += 1
            out = out_from(window, next, &slot)
        if not reserve(journal, window, RUN_SIZE):
            return False
        put_run(journal, first, next - first)
        runs += 1
    store_i64(journal.entries.data + entry + TAKEN_NEXT, next)
    store_i32(journal.entries.data + entry + TAKEN_RUNS, runs)
    at[0] = out
    return True


cdef inline bint alike(const Out *out, const Out *other) noexcept nogil:
    return (
        out.pop_ms == other.pop_ms
        and out.invisible_ms == other.invisible_ms
        and out.attempts == other.attempts
        and out.ordered == other.ordered
    )
