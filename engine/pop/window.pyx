"""The messages of one queue that are out for one group, by offset (window.pxd)."""

from libc.stdint cimport INT64_MAX, UINT32_MAX, int32_t, int64_t, uint32_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy, memmove

from congreve.base.cursor cimport prefetch_to_write
from congreve.engine.pop.due_heap cimport add_chunk, move_chunk, remove_chunk
from congreve.engine.pop.state cimport (
    Chunk,
    DueHeap,
    Out,
    Place,
    Run,
    Slot,
    Window,
    bits_of,
    due_of,
    is_out_as,
    lowest_bit,
)

cdef enum:
    RUN_MAX = 32        # offsets, as many as bits
    CHUNK_MAX = 64      # runs
    # Neighbours with fewer runs together become one chunk, so that few messages that are far
    # from each other do not take a chunk each.
    MERGED_MAX = CHUNK_MAX // 2
    ROOM_MIN = 1
    # A chunk is made smaller when one of so many places is in use: 128 bytes a run.
    SPARSE = 4


cdef int64_t begin_of(const Window *window) noexcept nogil:
    cdef const Chunk *chunk
    cdef const Run *run
    if not window.out:
        return window.next
    chunk = window.slots[window.slot_first].chunk
    run = &chunk.runs[chunk.first]
    return run.first + lowest_bit(bits_of(run))


# --- runs

# Whether a message is one more of the run before it.
cdef inline bint takes_in(const Run *run, const Out *out) noexcept nogil:
    return bits_of(run) and out.offset - run.first < RUN_MAX and is_out_as(run, out)


cdef inline void begin_run(Run *run, const Out *out) noexcept nogil:
    run.first, run.pop_ms, run.invisible_ms = out.offset, out.pop_ms, out.invisible_ms
    run.attempts, run.ordered = out.attempts, out.ordered
    run.waiting, run.given = 1, 0


# Leaves the messages of a run from bit `bit` on, which is not its first one.
cdef inline void cut_before(Run *run, int32_t bit) noexcept nogil:
    run.first += bit
    run.waiting >>= bit
    run.given >>= bit


# --- chunks

# The chunk with other room, which stands in the place of the former one; NULL without memory.
cdef Chunk *resize(DueHeap *heap, Slot *slot, int32_t room) noexcept nogil:
    cdef Chunk *chunk = <Chunk *> realloc(slot.chunk, chunk_size(room))
    if chunk != NULL:
        chunk.room = room
        slot.chunk = heap.chunks[chunk.heap_at] = chunk
    return chunk


cdef inline size_t chunk_size(int32_t room) noexcept nogil:
    return sizeof(Chunk) + (room - 1) * sizeof(Run)


# Moves the runs that have messages to the beginning.
cdef void compact(Chunk *chunk) noexcept nogil:
    cdef int32_t i, kept = 0
    for i in range(chunk.first, chunk.end):
        if bits_of(&chunk.runs[i]):
            chunk.runs[kept] = chunk.runs[i]
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


# A chunk without runs, in a slot that `place` slots are before; NULL without memory.
cdef Chunk *new_chunk(DueHeap *heap, Window *window, int64_t place, int64_t lowest,
                      int32_t room) noexcept nogil:
    cdef Chunk *chunk
    cdef Slot *slot
    if not slot_room(window):
        return NULL
    chunk = <Chunk *> calloc(1, chunk_size(room))
    if chunk == NULL:
        return NULL
    chunk.window = window
    chunk.room = room
    chunk.due_ms = INT64_MAX
    if not add_chunk(heap, chunk):
        free(chunk)
        return NULL
    slot = &window.slots[window.slot_first + place]
    memmove(slot + 1, slot, (window.slot_end - window.slot_first - place) * sizeof(Slot))
    slot.lowest, slot.chunk = lowest, chunk
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


# Puts the runs of the slot after this one into its chunk, if they are few.
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
    memcpy(chunk.runs + chunk.count, after.runs, after.count * sizeof(Run))
    chunk.count += after.count
    chunk.end = chunk.count
    if after.due_ms < chunk.due_ms:
        chunk.due_ms = after.due_ms
        move_chunk(heap, chunk)
    free_chunk(heap, after)
    remove_slot(window, slot + 1)
    return True


# Makes room for one more slot and for `count` more runs in the chunk of a message, whose place may
# be another one after it. False without memory.
cdef bint run_room(DueHeap *heap, Window *window, Place *place, int32_t count) noexcept nogil:
    cdef int64_t before = place.slot - window.slot_first
    cdef Chunk *chunk = window.slots[place.slot].chunk
    cdef Chunk *upper
    cdef int32_t half
    if chunk.end + count > CHUNK_MAX:
        compact(chunk)
    if chunk.end + count > CHUNK_MAX:
        half = chunk.end // 2
        upper = new_chunk(heap, window, before + 1, chunk.runs[half].first, chunk.end - half)
        if upper == NULL:
            return False
        upper.end = upper.count = chunk.end - half
        memcpy(upper.runs, chunk.runs + half, upper.count * sizeof(Run))
        chunk.end = chunk.count = half
        upper.due_ms = chunk.due_ms
        move_chunk(heap, upper)
        place.slot = window.slot_first + before
        if place.offset >= upper.runs[0].first:
            place.slot += 1
            chunk = upper
    if chunk.end + count > chunk.room:
        chunk = resize(
            heap, &window.slots[place.slot], min(max(2 * chunk.room, chunk.end + count), CHUNK_MAX)
        )
        if chunk == NULL:
            return False
    place.run = &chunk.runs[find_run(chunk, place.offset)]
    return True


# --- messages

cdef bint add_out(DueHeap *heap, Window *window, const Out *out) noexcept nogil:
    cdef Chunk *chunk = NULL
    cdef Run *run = NULL
    if window.slot_end > window.slot_first:
        chunk = window.slots[window.slot_end - 1].chunk
        run = &chunk.runs[chunk.end - 1]
        if not takes_in(run, out):
            run = NULL
        if run == NULL and chunk.end == CHUNK_MAX:
            chunk = NULL
    if run != NULL:
        run.waiting |= <uint32_t> 1 << (out.offset - run.first)
    else:
        if chunk == NULL:
            chunk = new_chunk(
                heap, window, window.slot_end - window.slot_first, out.offset, ROOM_MIN
            )
            if chunk == NULL:
                return False
        if chunk.end == chunk.room:
            chunk = resize(heap, &window.slots[window.slot_end - 1], min(2 * chunk.room, CHUNK_MAX))
            if chunk == NULL:
                return False
        run = &chunk.runs[chunk.end]
        begin_run(run, out)
        chunk.end += 1
        chunk.count += 1
    window.out += 1
    window.next = out.offset + 1
    note_due(heap, chunk, run)
    return True


cdef inline void note_due(DueHeap *heap, Chunk *chunk, const Run *run) noexcept nogil:
    if due_of(run) < chunk.due_ms:
        chunk.due_ms = due_of(run)
        move_chunk(heap, chunk)


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


# The place of the run that begins at an offset or nearest before it, else of the first one.
cdef int32_t find_run(const Chunk *chunk, int64_t offset) noexcept nogil:
    cdef int32_t low = chunk.first
    cdef int32_t high = chunk.end
    cdef int64_t middle
    if offset <= chunk.runs[low].first:
        return low
    # Where all runs are full it is here.
    middle = low + (offset - chunk.runs[low].first) // RUN_MAX
    if middle < high and chunk.runs[middle].first <= offset:
        low = <int32_t> middle
        if low + 1 == high or chunk.runs[low + 1].first > offset:
            return low
    while high - low > 1:
        middle = (low + high) // 2
        if chunk.runs[middle].first <= offset:
            low = <int32_t> middle
        else:
            high = <int32_t> middle
    return low


# Where all runs of the chunk are full the offset is here.
cdef inline const Run *likely_run(const Slot *slot, int64_t offset) noexcept nogil:
    return &slot.chunk.runs[max(0, min((offset - slot.lowest) // RUN_MAX, CHUNK_MAX))]


cdef void prefetch_out(const Window *window, int64_t offset) noexcept nogil:
    cdef const Slot *slot
    if window.out:
        slot = &window.slots[find_slot(window, offset)]
        prefetch_to_write(slot.chunk)
        prefetch_to_write(likely_run(slot, offset))


cdef bint find_out(const Window *window, int64_t offset, Place *place) noexcept nogil:
    cdef Chunk *chunk
    if not window.out or offset >= window.next:
        return False
    place.offset, place.slot = offset, find_slot(window, offset)
    chunk = window.slots[place.slot].chunk
    prefetch_to_write(likely_run(&window.slots[place.slot], offset))
    place.run = &chunk.runs[find_run(chunk, offset)]
    if not 0 <= offset - place.run.first < RUN_MAX:
        return False
    place.bit = <uint32_t> 1 << (offset - place.run.first)
    return bits_of(place.run) & place.bit != 0


cdef bint out_from(const Window *window, int64_t offset, Place *place) noexcept nogil:
    cdef Chunk *chunk
    cdef uint32_t bits
    cdef int32_t at
    if not window.out or offset >= window.next:
        return False
    place.slot = find_slot(window, offset)
    chunk = window.slots[place.slot].chunk
    at = find_run(chunk, offset)
    bits = bits_of(&chunk.runs[at])
    if offset - chunk.runs[at].first >= RUN_MAX:
        bits = 0
    elif offset > chunk.runs[at].first:
        bits &= UINT32_MAX << (offset - chunk.runs[at].first)
    while not bits:
        at += 1
        if at == chunk.end:
            place.slot += 1
            if place.slot == window.slot_end:
                return False
            chunk = window.slots[place.slot].chunk
            at = chunk.first
        bits = bits_of(&chunk.runs[at])
    place.run, place.bit = &chunk.runs[at], bits & -bits
    place.offset = place.run.first + lowest_bit(bits)
    return True


cdef bint change_out(DueHeap *heap, Window *window, Place *place, const Out *out) noexcept nogil:
    cdef uint32_t others = bits_of(place.run) ^ place.bit
    cdef bint before = others & (place.bit - 1) != 0
    cdef bint after = others >= place.bit
    cdef int32_t bit = lowest_bit(place.bit)
    cdef Chunk *chunk
    cdef Run *run
    if not run_room(heap, window, place, before + after):
        return False
    chunk, run = window.slots[place.slot].chunk, place.run
    run.waiting &= ~place.bit
    run.given &= ~place.bit
    if after and not before and run != &chunk.runs[chunk.first] and takes_in(run - 1, out):
        cut_before(run, bit + 1)
        run -= 1
        run.waiting |= <uint32_t> 1 << (out.offset - run.first)
        note_due(heap, chunk, run)
        return True
    if before or after:     # run, then the message, then what is after it
        memmove(run + before + after, run, (&chunk.runs[chunk.end] - run) * sizeof(Run))
        chunk.end += before + after
        chunk.count += before + after
        if before:
            run.waiting &= place.bit - 1
            run.given &= place.bit - 1
            run += 1
        if after:
            cut_before(run + 1, bit + 1)
    begin_run(run, out)
    note_due(heap, chunk, run)
    return True


cdef void wait_out(DueHeap *heap, Window *window, const Place *place) noexcept nogil:
    place.run.given &= ~place.bit
    place.run.waiting |= place.bit
    note_due(heap, window.slots[place.slot].chunk, place.run)


cdef void settle_out(DueHeap *heap, Window *window, const Place *place) noexcept nogil:
    cdef Chunk *chunk = window.slots[place.slot].chunk
    place.run.waiting &= ~place.bit
    place.run.given &= ~place.bit
    window.out -= 1
    if bits_of(place.run):
        return
    chunk.count -= 1
    if not chunk.count:
        free_chunk(heap, chunk)
        remove_slot(window, place.slot)
        return
    # Another run is not looked at: it may be out of cache.
    if place.run == &chunk.runs[chunk.first]:
        while not bits_of(&chunk.runs[chunk.first]):
            chunk.first += 1
    if chunk.room > ROOM_MIN and chunk.count * SPARSE <= chunk.room:
        if not merge(heap, window, place.slot) and not merge(heap, window, place.slot - 1):
            compact(chunk)
            resize(heap, &window.slots[place.slot], max(chunk.count * 2, ROOM_MIN))


cdef void clear_window(DueHeap *heap, Window *window) noexcept nogil:
    cdef int64_t i
    for i in range(window.slot_first, window.slot_end):
        free_chunk(heap, window.slots[i].chunk)
    free(window.slots)
    window.slots = NULL
    window.slot_first = window.slot_end = window.slot_room = 0
    window.out = 0
