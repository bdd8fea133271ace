# What pops and acknowledgements change, for code without the GIL. The caller holds the mutex, and
# does not wait for the GIL meanwhile.
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t

from congreve.base.pthread cimport pthread_mutex_t
from congreve.engine.pop.journal cimport Journal
from congreve.engine.pop.state cimport DueHeap, Out, Place, Window, WindowTable


# As Answer of results.py; then what is an exception in Python.
cdef enum Outcome:
    DONE
    REPEATED
    STALE
    UNKNOWN
    MOVED               # another thread has taken some of the messages
    FULL
    DROPPED_WINDOW
    NO_MEMORY


# All windows of a store.
cdef struct Pops:
    pthread_mutex_t mutex
    DueHeap heap
    Journal journal
    WindowTable windows
    Window *noted       # the first of those that lanes have changed
    int64_t look_ms     # when the event loop looks at what is due, at the latest
    int64_t out         # messages
    int64_t store_max   # messages
    int64_t window_max


# Takes `count` messages like `like`, and settles the offsets between them and below `upto`. They
# are in order and below `upto`. MOVED: `upto` or one of them is before window.next.
cdef Outcome take(Pops *pops, Window *window, const Out *like, const int64_t *offsets,
                  int64_t count, int64_t upto) noexcept nogil
# The same for lanes, whose changes settled_windows() shows to the event loop.
cdef Outcome take_in_lane(Pops *pops, Window *window, const Out *like, const int64_t *offsets,
                          int64_t count, int64_t upto) noexcept nogil
cdef Outcome settle(Pops *pops, Window *window, int64_t offset, int64_t pop_ms) noexcept nogil
# The same in the window of this name, for lanes: DONE only for a message that waits and is in no
# ordered pop, else nothing is changed.
cdef Outcome settle_named(Pops *pops, const uint8_t *name, int32_t length, int64_t offset,
                          int64_t pop_ms) noexcept nogil
# DONE for a message that waits and is in no ordered pop.
cdef Outcome find_waiting(const Window *window, int64_t offset, int64_t pop_ms,
                          Place *place) noexcept nogil
# settle() for lanes, as settle_named().
cdef Outcome settle_in_lane(Pops *pops, Window *window, int64_t offset,
                            int64_t pop_ms) noexcept nogil
# extend() as settle_named().
cdef Outcome extend_named(Pops *pops, const uint8_t *name, int32_t length, int64_t offset,
                          int64_t pop_ms, int64_t new_pop_ms,
                          int64_t invisible_ms) noexcept nogil
# Whether a message of a lane is due before the event loop looks, which is to look then.
cdef bint is_sooner(Pops *pops, int64_t due_ms) noexcept nogil
# settle() of many; their outcomes.
cdef void settle_all(Pops *pops, Window *window, const int64_t *offsets, int64_t count,
                     int64_t pop_ms, int8_t *outcomes) noexcept nogil
# `again`: it is one more attempt.
cdef Outcome extend(Pops *pops, Window *window, int64_t offset, int64_t pop_ms,
                    int64_t new_pop_ms, int64_t invisible_ms, bint again) noexcept nogil
cdef Outcome give_back(Pops *pops, Window *window, int64_t offset, int64_t pop_ms) noexcept nogil
cdef Outcome reset(Pops *pops, Window *window, int64_t offset) noexcept nogil
cdef Outcome drop(Pops *pops, Window *window) noexcept nogil
# Repeats an entry of the journal that is neither WINDOW nor DROPPED.
cdef Outcome repeat(Pops *pops, Window *window, const uint8_t *entry) noexcept nogil
# Drops the window, without an entry of the journal.
cdef void discard(Pops *pops, Window *window) noexcept nogil
# Drops what is out, without an entry of the journal.
cdef void clear(Pops *pops, Window *window, int64_t next) noexcept nogil
