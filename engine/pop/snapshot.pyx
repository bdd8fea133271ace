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
from congreve.engine.pop.state cimport Out, Place, Window, is_out_as, out_at
from congreve.engine.pop.window cimport begin_of, out_from


cdef bint put_state(Journal *journal, const Window *window) noexcept nogil:
    cdef int64_t begin = begin_of(window)
    cdef Out none
    cdef Place place
    cdef bint more = out_from(window, begin, &place)
    if not reserve(journal, window, RESET_SIZE):
        return False
    put_window(journal, window, begin)
    put_reset(journal, begin)
    while more:
        if not put_alike(journal, window, &place, &more):
            return False
    if not reserve(journal, window, TAKEN_SIZE):
        return False
    memset(&none, 0, sizeof(Out))
    put_taken(journal, &none, window.next, 0)
    return True


# An entry of those from a place on that are out alike; moves the place after them, and says whether
# there are more. False without memory.
cdef bint put_alike(Journal *journal, const Window *window, Place *place,
                    bint *more) noexcept nogil:
    cdef int64_t first, next = 0, runs = 0
    cdef int64_t entry = journal.entries.used
    cdef Out like = out_at(place)
    if not reserve(journal, window, TAKEN_SIZE):
        return False
    put_taken(journal, &like, 0, 0)
    while more[0] and is_out_as(place.run, &like):
        first = next = place.offset
        while more[0] and place.offset == next and is_out_as(place.run, &like):
            next += 1
            more[0] = out_from(window, next, place)
        if not reserve(journal, window, RUN_SIZE):
            return False
        put_run(journal, first, next - first)
        runs += 1
    store_i64(journal.entries.data + entry + TAKEN_NEXT, next)
    store_i32(journal.entries.data + entry + TAKEN_RUNS, runs)
    return True
