from libc.stdint cimport int64_t

from congreve.engine.pop.state cimport Chunk, DueHeap, Found

# False without memory.
cdef bint add_chunk(DueHeap *heap, Chunk *chunk) noexcept nogil
cdef void remove_chunk(DueHeap *heap, Chunk *chunk) noexcept nogil
# Puts a chunk in its place after its due_ms has changed.
cdef void move_chunk(DueHeap *heap, Chunk *chunk) noexcept nogil
# Makes at most `most` messages GIVEN that are due; their number.
cdef int64_t give_due(DueHeap *heap, int64_t now_ms, Found *found, int64_t most) noexcept nogil
