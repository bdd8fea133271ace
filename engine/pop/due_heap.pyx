"""The chunks of all windows by the time at which a message of them is due (due_heap.pxd)."""

from libc.stdint cimport INT64_MAX, int32_t, int64_t
from libc.stdlib cimport realloc

from congreve.engine.pop.state cimport (
    Chunk,
    DueHeap,
    Found,
    Place,
    Run,
    due_of,
    lowest_bit,
    out_at,
)


cdef inline void place(DueHeap *heap, Chunk *chunk, int64_t at) noexcept nogil:
    heap.chunks[at] = chunk
    chunk.heap_at = at


cdef bint add_chunk(DueHeap *heap, Chunk *chunk) noexcept nogil:
    cdef int64_t room
    cdef Chunk **grown
    if heap.count == heap.room:
        room = max(heap.room * 2, 64)
        grown = <Chunk **> realloc(heap.chunks, room * sizeof(Chunk *))
        if grown == NULL:
            return False
        heap.chunks, heap.room = grown, room
    heap.count += 1
    place(heap, chunk, heap.count - 1)
    move_chunk(heap, chunk)
    return True


cdef void remove_chunk(DueHeap *heap, Chunk *chunk) noexcept nogil:
    cdef int64_t at = chunk.heap_at
    cdef Chunk *last
    heap.count -= 1
    last = heap.chunks[heap.count]
    if last != chunk:
        place(heap, last, at)
        move_chunk(heap, last)


cdef void move_chunk(DueHeap *heap, Chunk *chunk) noexcept nogil:
    cdef int64_t at = chunk.heap_at
    cdef int64_t other
    while at > 0:
        other = (at - 1) // 2
        if heap.chunks[other].due_ms <= chunk.due_ms:
            break
        place(heap, heap.chunks[other], at)
        at = other
    while True:
        other = 2 * at + 1
        if other >= heap.count:
            break
        if (
            other + 1 < heap.count
            and heap.chunks[other + 1].due_ms < heap.chunks[other].due_ms
        ):
            other += 1
        if heap.chunks[other].due_ms >= chunk.due_ms:
            break
        place(heap, heap.chunks[other], at)
        at = other
    place(heap, chunk, at)


cdef int64_t give_due(DueHeap *heap, int64_t now_ms, Found *found, int64_t most) noexcept nogil:
    cdef int64_t count = 0
    cdef int32_t i
    cdef Chunk *chunk
    cdef Run *run
    cdef Place place
    while count < most and heap.count and heap.chunks[0].due_ms <= now_ms:
        chunk = heap.chunks[0]
        chunk.due_ms = INT64_MAX
        for i in range(chunk.first, chunk.end):
            run = place.run = &chunk.runs[i]
            while run.waiting and due_of(run) <= now_ms and count < most:
                place.offset = run.first + lowest_bit(run.waiting)
                place.bit = run.waiting & -run.waiting
                run.waiting ^= place.bit
                run.given |= place.bit
                found[count].owner = chunk.window.owner
                found[count].out = out_at(&place)
                count += 1
            if run.waiting:
                chunk.due_ms = min(chunk.due_ms, due_of(run))
        move_chunk(heap, chunk)
    return count
