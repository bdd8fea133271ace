"""The messages of one queue that are out for one group, by offset (window.pxd)."""

from libc.stdint cimport INT64_MAX, int32_t, int64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy, memmove

from congreve.base.cursor cimport prefetch_to_write
from congreve.engine.pop.due_heap cimport add_chunk, move_chunk, remove_chunk
from congreve.engine.pop.state cimport (
    FREE,
    WAITING,
    Chunk,
    DueHeap,
    Out,
    Slot,
    Window,
    due_of,
)

cdef enum:
    CHUNK_MAX = 256     # messages
    # Neighbours with fewer messages together become one chunk, so that few messages that are far
    # from each other do not take a chunk each.
    MERGED_MAX = CHUNK_MAX // 2
    ROOM_MIN = 4
    # A chunk is made smaller when one of so many places is in use: 96 bytes a message.
    SPARSE = 4


cdef int64_t begin_of(const Window *window) noexcept nogil:
    cdef Chunk *chunk
    if not window.out:
        return window.next
    chunk = window.slots[window.slot_first].chunk
    return chunk.outs[chunk.first].offset


# --- chunks

# The chunk with other room, which stands in the place of the former one; NULL without memory.
cdef Chunk *resize(DueHeap *heap, Slot *slot, int32_t room) noexcept nogil:
    cdef Chunk *chunk = <Chunk *> realloc(slot.chunk, chunk_size(room))
    if chunk != NULL:
        chunk.room = room
        slot.chunk = heap.chunks[chunk.heap_at] = chunk
    return chunk


cdef inline size_t chunk_size(int32_t room) noexcept nogil:
    return sizeof(Chunk) + (room - 1) * sizeof(Out)


# Moves the messages that are not settled to the beginning.
cdef void compact(Chunk *chunk) noexcept nogil:
    cdef int32_t i, kept = 0
    for i in range(chunk.first, chunk.end):
        if chunk.outs[i].state != FREE:
            chunk.outs[kept] = chunk.outs[i]
            kept += 1
    chunk.first, chunk.end = 0, kept


cdef void free_chunk(DueHeap *heap, Chunk *chunk) noexcept nogil:
    remove_chunk(heap, chunk)
    free(chunk)


# --- slots

# Room for one more slot at the end.
cdef bint slot_room(Window *window) noexcept nogil:
    cdef int64_t used = window.slot_end - window.slot_first
    cdef int64_t room
    cdef Slot *grown
    if window.slot_end < window.slot_room:
        return True
    if used * 2 <= window.slot_room and window.slot_first:
        memmove(window.slots, window.slots + window.slot_first, used * sizeof(Slot))
        window.slot_first, window.slot_end = 0, used
        return True
    room = max(window.slot_room * 2, 1)
    grown = <Slot *> realloc(window.slots, room * sizeof(Slot))
    if grown == NULL:
        return False
    window.slots, window.slot_room = grown, room
    return True


cdef Chunk *new_chunk(DueHeap *heap, Window *window, int64_t lowest) noexcept nogil:
    cdef Chunk *chunk
    if not slot_room(window):
        return NULL
    chunk = <Chunk *> calloc(1, chunk_size(ROOM_MIN))
    if chunk == NULL:
        return NULL
    chunk.window = window
    chunk.room = ROOM_MIN
    chunk.due_ms = INT64_MAX
    if not add_chunk(heap, chunk):
        free(chunk)
        return NULL
    window.slots[window.slot_end].lowest = lowest
    window.slots[window.slot_end].chunk = chunk
    window.slot_end += 1
    return chunk


cdef void remove_slot(Window *window, int64_t slot) noexcept nogil:
    if slot == window.slot_first:
        window.slot_first += 1
    else:
        memmove(
            window.slots + slot, window.slots + slot + 1,
            (window.slot_end - slot - 1) * sizeof(Slot),
        )
        window.slot_end -= 1
    if window.slot_first == window.slot_end:
        free(window.slots)
        window.slots = NULL
        window.slot_first = window.slot_end = window.slot_room = 0


# Puts the messages of the slot after this one into its chunk, if they are few.
cdef bint merge(DueHeap *heap, Window *window, int64_t slot) noexcept nogil:
    cdef Chunk *chunk
    cdef Chunk *after
    if slot < window.slot_first or slot + 1 >= window.slot_end:
        return False
    chunk, after = window.slots[slot].chunk, window.slots[slot + 1].chunk
    if chunk.count + after.count > MERGED_MAX:
        return False
    compact(chunk)
    compact(after)
    chunk = resize(heap, &window.slots[slot], chunk.count + after.count)
    if chunk == NULL:
        return False
    memcpy(chunk.outs + chunk.count, after.outs, after.count * sizeof(Out))
    chunk.count += after.count
    chunk.end = chunk.count
    if after.due_ms < chunk.due_ms:
        chunk.due_ms = after.due_ms
        move_chunk(heap, chunk)
    free_chunk(heap, after)
    remove_slot(window, slot + 1)
    return True


# --- messages

cdef bint add_out(DueHeap *heap, Window *window, const Out *out) noexcept nogil:
    cdef Chunk *chunk = NULL
    if window.slot_end > window.slot_first:
        chunk = window.slots[window.slot_end - 1].chunk
        if chunk.end == CHUNK_MAX:
            chunk = NULL
    if chunk == NULL:
        chunk = new_chunk(heap, window, out.offset)
        if chunk == NULL:
            return False
    if chunk.end == chunk.room:
        chunk = resize(heap, &window.slots[window.slot_end - 1], min(2 * chunk.room, CHUNK_MAX))
        if chunk == NULL:
            return False
    chunk.outs[chunk.end] = out[0]
    chunk.end += 1
    chunk.count += 1
    window.out += 1
    window.next = out.offset + 1
    if due_of(out) < chunk.due_ms:
        chunk.due_ms = due_of(out)
        move_chunk(heap, chunk)
    return True


# The slot whose chunk has the offset, if any has.
cdef int64_t find_slot(const Window *window, int64_t offset) noexcept nogil:
    cdef const Slot *slots = window.slots
    cdef int64_t low = window.slot_first
    cdef int64_t high = window.slot_end
    cdef int64_t step = 1
    cdef int64_t middle
    if offset <= slots[low].lowest:
        return low
    # Where all chunks are as full the slot is here, else near: the search begins at this place.
    middle = low + <int64_t> (
        (high - low) * (<double> (offset - slots[low].lowest) / (window.next - slots[low].lowest))
    )
    while low <= middle < high:
        if slots[middle].lowest <= offset:
            low = middle
            middle += step
        else:
            high = middle
            middle -= step
        step *= 2
    while high - low > 1:
        middle = (low + high) // 2
        if slots[middle].lowest <= offset:
            low = middle
        else:
            high = middle
    return low


cdef inline int64_t highest_place(const Slot *slot, int64_t offset) noexcept nogil:
    return max(0, min(offset - slot.lowest, CHUNK_MAX))


cdef void prefetch_out(const Window *window, int64_t offset) noexcept nogil:
    cdef const Slot *slot
    if window.out:
        slot = &window.slots[find_slot(window, offset)]
        prefetch_to_write(slot.chunk)
        prefetch_to_write(&slot.chunk.outs[highest_place(slot, offset)])


# The place of the first message at or after an offset; chunk.end if all are before it.
cdef int32_t find_place(const Slot *slot, int64_t offset) noexcept nogil:
    cdef const Chunk *chunk = slot.chunk
    cdef int64_t low, high, middle
    # Where no offset is missing the message is here, else before.
    high = highest_place(slot, offset)
    prefetch_to_write(&chunk.outs[high])
    low = chunk.first
    if high <= low:
        return low
    if high < chunk.end and chunk.outs[high].offset == offset:
        return high
    high = min(high, chunk.end)
    while low < high:
        middle = (low + high) // 2
        if chunk.outs[middle].offset < offset:
            low = middle + 1
        else:
            high = middle
    return high


cdef Out *find_out(const Window *window, int64_t offset, int64_t *slot) noexcept nogil:
    cdef Chunk *chunk
    cdef int32_t at
    if not window.out or offset >= window.next:
        return NULL
    slot[0] = find_slot(window, offset)
    chunk = window.slots[slot[0]].chunk
    at = find_place(&window.slots[slot[0]], offset)
    if at == chunk.end or chunk.outs[at].offset != offset or chunk.outs[at].state == FREE:
        return NULL
    return &chunk.outs[at]


cdef Out *out_from(const Window *window, int64_t offset, int64_t *slot) noexcept nogil:
    cdef Chunk *chunk
    cdef int32_t at
    if not window.out or offset >= window.next:
        return NULL
    slot[0] = find_slot(window, offset)
    chunk = window.slots[slot[0]].chunk
    at = find_place(&window.slots[slot[0]], offset)
    while at < chunk.end and chunk.outs[at].state == FREE:
        at += 1
    if at < chunk.end:
        return &chunk.outs[at]
    slot[0] += 1
    if slot[0] == window.slot_end:
        return NULL
    chunk = window.slots[slot[0]].chunk
    return &chunk.outs[chunk.first]


cdef void set_due(DueHeap *heap, Window *window, const Out *out, int64_t slot) noexcept nogil:
    cdef Chunk *chunk = window.slots[slot].chunk
    if out.state == WAITING and due_of(out) < chunk.due_ms:
        chunk.due_ms = due_of(out)
        move_chunk(heap, chunk)


cdef void settle_out(DueHeap *heap, Window *window, Out *out, int64_t slot) noexcept nogil:
    cdef Chunk *chunk = window.slots[slot].chunk
    out.state = FREE
    chunk.count -= 1
    window.out -= 1
    if not chunk.count:
        free_chunk(heap, chunk)
        remove_slot(window, slot)
        return
    if out == &chunk.outs[chunk.first]:     # another one is not looked at: it may be out of cache
        while chunk.outs[chunk.first].state == FREE:
            chunk.first += 1
    if chunk.room > ROOM_MIN and chunk.count * SPARSE <= chunk.room:
        if not merge(heap, window, slot) and not merge(heap, window, slot - 1):
            compact(chunk)
            resize(heap, &window.slots[slot], max(chunk.count * 2, ROOM_MIN))


cdef void clear_window(DueHeap *heap, Window *window) noexcept nogil:
    cdef int64_t i
    for i in range(window.slot_first, window.slot_end):
        free_chunk(heap, window.slots[i].chunk)
    free(window.slots)
    window.slots = NULL
    window.slot_first = window.slot_end = window.slot_room = 0
    window.out = 0
