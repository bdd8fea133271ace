# What is out, in memory. A window keeps its messages in the order of their offsets, in chunks; the
# heap of all chunks says which of them has the next message that is due.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t

from congreve.records.byte_table cimport Key


cdef enum OutState:
    WAITING             # for its acknowledgement, or for its time
    GIVEN               # due() has returned it
    FREE                # settled: its place is not in use


# A message that a pop has taken.
cdef struct Out:
    int64_t offset      # in the queue
    int64_t pop_ms      # since 1970
    uint32_t invisible_ms
    uint16_t attempts   # how often it was taken again in place
    uint8_t state       # of OutState
    uint8_t ordered


cdef struct Chunk:
    Window *window
    int64_t due_ms      # none of its messages is due before
    int64_t heap_at
    int32_t first       # outs[first] is not settled; none before it is used
    int32_t end
    int32_t room        # of outs
    int32_t count       # of those that are not settled
    Out outs[1]         # in fact `room`: in one piece, so that the memory of both is asked at once


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


# A message that is due.
cdef struct Found:
    void *owner         # of its window
    Out out


# All windows, by their names.
cdef struct WindowTable:
    Key **slots
    int64_t capacity
    int64_t count


# The chunk with the least due_ms first.
cdef struct DueHeap:
    Chunk **chunks
    int64_t count
    int64_t room


cdef inline int64_t due_of(const Out *out) noexcept nogil:
    return out.pop_ms + out.invisible_ms
