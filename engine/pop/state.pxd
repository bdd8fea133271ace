# What is out, in memory. A window keeps its messages in runs, in the order of their offsets: each
# is a bit of the run of those that are out alike. Runs are in chunks; the heap of all chunks says
# which of them has the next message that is due.
from libc.stdint cimport int32_t, int64_t, uint16_t, uint32_t

from congreve.records.byte_table cimport Key


cdef extern from * nogil:
    int lowest_bit "__builtin_ctz"(uint32_t bits)   # its number; there must be one


# A message that a pop has taken.
cdef struct Out:
    int64_t offset      # in the queue
    int64_t pop_ms      # since 1970
    uint32_t invisible_ms
    uint16_t attempts   # how often it was taken again in place
    bint ordered


# Messages that are out alike. Bit i is the message at first + i; one that is settled has none.
cdef struct Run:
    int64_t first
    int64_t pop_ms
    uint32_t invisible_ms
    uint16_t attempts
    uint16_t ordered
    uint32_t waiting    # for its acknowledgement, or for its time
    uint32_t given      # due() has returned it


cdef struct Chunk:
    Window *window
    int64_t due_ms      # none of its messages is due before
    int64_t heap_at
    int32_t first       # runs[first] has messages; none before it is used
    int32_t end
    int32_t room        # of runs
    int32_t count       # of those that have messages
    Run runs[1]         # in fact `room`: in one piece, so that the memory of both is asked at once


# Where a message is, until a message of its window is added, changed or settled.
cdef struct Place:
    int64_t offset
    int64_t slot
    Run *run
    uint32_t bit


cdef struct Slot:
    int64_t lowest      # no message of the chunk has a lower offset
    Chunk *chunk


cdef struct Window:
    Key key             # its name: how an entry of the journal begins
    Slot *slots         # in use: from `slot_first` to `slot_end`
    int64_t slot_first
    int64_t slot_end
    int64_t slot_room
    int64_t next        # the first offset that no pop has taken
    int64_t out         # messages
    void *owner         # the PopWindow
    bint dropped
    bint noted          # it is in the list of those that lanes have changed
    int64_t noted_begin     # its begin before that
    Window *noted_after
    Window *newer       # all windows, in the order in which they were made
    Window *older


# A message that is due.
cdef struct Found:
    void *owner         # of its window
    Out out


# All windows, by their names.
cdef struct WindowTable:
    Key **slots
    int64_t capacity
    int64_t count
    Window *newest
    Window *to_copy     # the next one of a snapshot


# The chunk with the least due_ms first.
cdef struct DueHeap:
    Chunk **chunks
    int64_t count
    int64_t room


cdef inline int64_t due_of(const Run *run) noexcept nogil:
    return run.pop_ms + run.invisible_ms


cdef inline uint32_t bits_of(const Run *run) noexcept nogil:
    return run.waiting | run.given


# Whether all of a run are out as this message.
cdef inline bint is_out_as(const Run *run, const Out *out) noexcept nogil:
    return (
        run.pop_ms == out.pop_ms
        and run.invisible_ms == out.invisible_ms
        and run.attempts == out.attempts
        and run.ordered == out.ordered
    )


cdef inline Out out_at(const Place *place) noexcept nogil:
    cdef Out out
    out.offset, out.pop_ms = place.offset, place.run.pop_ms
    out.invisible_ms, out.attempts = place.run.invisible_ms, place.run.attempts
    out.ordered = place.run.ordered
    return out
