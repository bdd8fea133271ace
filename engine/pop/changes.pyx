"""What pops and acknowledgements change in windows, heap and journal (changes.pxd)."""

from libc.stdint cimport INT16_MAX, int8_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t
from libc.string cimport memset

from congreve.base.cursor cimport load_i16, load_i32, load_i64
from congreve.engine.pop.journal cimport (
    DROPPED_SIZE,
    EXTENDED,
    EXTENDED_SIZE,
    RESET,
    RESET_SIZE,
    RUN_SIZE,
    SETTLED,
    SETTLED_SIZE,
    TAKEN,
    TAKEN_SIZE,
    put_dropped,
    put_extended,
    put_reset,
    put_run,
    put_settled,
    put_taken,
    put_window,
    reserve,
)
from congreve.engine.pop.state cimport Out, Place, Window, out_at
from congreve.engine.pop.window cimport (
    add_out,
    begin_of,
    change_out,
    clear_window,
    find_out,
    out_from,
    prefetch_out,
    settle_out,
    wait_out,
)
from congreve.engine.pop.window_table cimport remove_window, window_named

cdef enum:
    PREFETCHED = 32     # messages, in different places of memory


cdef Outcome add(Pops *pops, Window *window, const Out *out) noexcept nogil:
    if window.out >= pops.window_max or pops.out >= pops.store_max:
        return FULL
    if not add_out(&pops.heap, window, out):
        return NO_MEMORY
    pops.out += 1
    return DONE


cdef Outcome take(Pops *pops, Window *window, const Out *like, const int64_t *offsets,
                  int64_t count, int64_t upto) noexcept nogil:
    cdef Journal *journal = &pops.journal
    cdef Outcome outcome = DONE
    cdef Out out = like[0]
    cdef int64_t i, begin = 0
    if window.dropped:
        return DROPPED_WINDOW
    if upto < window.next or (count and offsets[0] < window.next):
        return MOVED
    if window.out + count > pops.window_max or pops.out + count > pops.store_max:
        return FULL
    if not reserve(journal, window, TAKEN_SIZE + runs_of(offsets, count) * RUN_SIZE):
        return NO_MEMORY
    put_window(journal, window, begin_of(window))
    for i in range(count):
        out.offset = offsets[i]
        outcome = add(pops, window, &out)
        if outcome != DONE:
            # The first ones are taken.
            count, upto = i, window.next
            break
    window.next = upto
    put_taken(journal, &out, upto, runs_of(offsets, count))
    for i in range(count):
        if i + 1 == count or offsets[i + 1] != offsets[i] + 1:
            put_run(journal, offsets[begin], i + 1 - begin)
            begin = i + 1
    return outcome


cdef Outcome take_in_lane(Pops *pops, Window *window, const Out *like, const int64_t *offsets,
                          int64_t count, int64_t upto) noexcept nogil:
    if window.dropped:
        return DROPPED_WINDOW
    note(pops, window)
    return take(pops, window, like, offsets, count, upto)


# Lets settled_windows() return the window, whose begin stays the same for the loop before that.
cdef void note(Pops *pops, Window *window) noexcept nogil:
    if not window.noted:
        window.noted, window.noted_after, pops.noted = True, pops.noted, window
        window.noted_begin = begin_of(window)


# How many runs of offsets without a gap there are.
cdef int64_t runs_of(const int64_t *offsets, int64_t count) noexcept nogil:
    cdef int64_t i, runs = count > 0
    for i in range(1, count):
        runs += offsets[i] != offsets[i - 1] + 1
    return runs


# The place of the message that is out at an offset since `pop_ms`: DONE; or why there is none.
cdef Outcome find(const Window *window, int64_t offset, int64_t pop_ms,
                  Place *place) noexcept nogil:
    if not find_out(window, offset, place):
        return UNKNOWN if offset >= window.next else REPEATED
    return DONE if place.run.pop_ms == pop_ms else STALE


cdef void settle_found(Pops *pops, Window *window, const Place *place) noexcept nogil:
    settle_out(&pops.heap, window, place)
    pops.out -= 1


cdef Outcome settle(Pops *pops, Window *window, int64_t offset, int64_t pop_ms) noexcept nogil:
    cdef Place place
    cdef Outcome outcome = find(window, offset, pop_ms, &place)
    return settle_at(pops, window, &place) if outcome == DONE else outcome


cdef Outcome settle_at(Pops *pops, Window *window, const Place *place) noexcept nogil:
    if not reserve(&pops.journal, window, SETTLED_SIZE):
        return NO_MEMORY
    put_window(&pops.journal, window, begin_of(window))
    put_settled(&pops.journal, place.offset, place.run.pop_ms)
    settle_found(pops, window, place)
    return DONE


cdef Outcome settle_named(Pops *pops, const uint8_t *name, int32_t length, int64_t offset,
                          int64_t pop_ms) noexcept nogil:
    return settle_in_lane(pops, window_named(&pops.windows, name, length), offset, pop_ms)


cdef Outcome settle_in_lane(Pops *pops, Window *window, int64_t offset,
                            int64_t pop_ms) noexcept nogil:
    cdef Place place
    cdef Outcome outcome = find_waiting(window, offset, pop_ms, &place)
    if outcome != DONE:
        return outcome
    note(pops, window)
    return settle_at(pops, window, &place)


cdef Outcome extend_named(Pops *pops, const uint8_t *name, int32_t length, int64_t offset,
                          int64_t pop_ms, int64_t new_pop_ms,
                          int64_t invisible_ms) noexcept nogil:
    cdef Window *window = window_named(&pops.windows, name, length)
    cdef Place place
    cdef Outcome outcome = find_waiting(window, offset, pop_ms, &place)
    if outcome != DONE:
        return outcome
    return extend(pops, window, offset, pop_ms, new_pop_ms, invisible_ms, False)


cdef Outcome find_waiting(const Window *window, int64_t offset, int64_t pop_ms,
                          Place *place) noexcept nogil:
    cdef Outcome outcome
    if window == NULL:
        return UNKNOWN
    outcome = find(window, offset, pop_ms, place)
    if outcome == DONE and (not place.run.waiting & place.bit or place.run.ordered):
        return STALE
    return outcome


cdef bint is_sooner(Pops *pops, int64_t due_ms) noexcept nogil:
    if due_ms >= pops.look_ms:
        return False
    pops.look_ms = due_ms
    return True


cdef void settle_all(Pops *pops, Window *window, const int64_t *offsets, int64_t count,
                     int64_t pop_ms, int8_t *outcomes) noexcept nogil:
    cdef int64_t i
    for i in range(count):
        if i % PREFETCHED == 0:
            for j in range(i, min(i + PREFETCHED, count)):
                prefetch_out(window, offsets[j])
        outcomes[i] = settle(pops, window, offsets[i], pop_ms)


cdef Outcome extend(Pops *pops, Window *window, int64_t offset, int64_t pop_ms,
                    int64_t new_pop_ms, int64_t invisible_ms, bint again) noexcept nogil:
    cdef Place place
    cdef Out out
    cdef Outcome outcome = find(window, offset, pop_ms, &place)
    if outcome != DONE:
        return outcome
    out = out_at(&place)
    out.pop_ms, out.invisible_ms = new_pop_ms, <uint32_t> invisible_ms
    if again and out.attempts < INT16_MAX:
        out.attempts += 1
    if not (
        reserve(&pops.journal, window, EXTENDED_SIZE)
        and change_out(&pops.heap, window, &place, &out)
    ):
        return NO_MEMORY
    put_window(&pops.journal, window, begin_of(window))
    put_extended(&pops.journal, &out, pop_ms)
    return DONE


cdef Outcome give_back(Pops *pops, Window *window, int64_t offset, int64_t pop_ms) noexcept nogil:
    cdef Place place
    cdef Outcome outcome = find(window, offset, pop_ms, &place)
    if outcome == DONE:
        wait_out(&pops.heap, window, &place)
    return outcome


cdef Outcome reset(Pops *pops, Window *window, int64_t offset) noexcept nogil:
    if window.dropped:
        return DROPPED_WINDOW
    if not reserve(&pops.journal, window, RESET_SIZE):
        return NO_MEMORY
    put_window(&pops.journal, window, begin_of(window))
    put_reset(&pops.journal, offset)
    clear(pops, window, offset)
    return DONE


cdef Outcome drop(Pops *pops, Window *window) noexcept nogil:
    if not reserve(&pops.journal, window, DROPPED_SIZE):
        return NO_MEMORY
    put_window(&pops.journal, window, begin_of(window))
    put_dropped(&pops.journal)
    discard(pops, window)
    return DONE


cdef void discard(Pops *pops, Window *window) noexcept nogil:
    cdef Window **at = &pops.noted
    clear(pops, window, window.next)
    remove_window(&pops.windows, window)
    while at[0] != NULL:
        if at[0] == window:
            at[0] = window.noted_after
        else:
            at = &at[0].noted_after
    window.noted, window.dropped = False, True
    # No entry continues one of it: a window at its address may be another one.
    pops.journal.window = NULL


cdef void clear(Pops *pops, Window *window, int64_t next) noexcept nogil:
    pops.out -= window.out
    clear_window(&pops.heap, window)
    window.next = window.noted_begin = next


# --- replay

cdef Outcome repeat(Pops *pops, Window *window, const uint8_t *entry) noexcept nogil:
    if entry[0] == TAKEN:
        return repeat_taken(pops, window, entry)
    if entry[0] == SETTLED:
        repeat_settled(pops, window, entry)
    elif entry[0] == EXTENDED:
        return repeat_extended(pops, window, entry)
    elif entry[0] == RESET:
        clear(pops, window, load_i64(entry + 1))
    return DONE


cdef Outcome repeat_extended(Pops *pops, Window *window, const uint8_t *entry) noexcept nogil:
    cdef Place place
    cdef Out out
    if find(window, load_i64(entry + 7), load_i64(entry + 15), &place) != DONE:
        return DONE
    out = out_at(&place)
    out.attempts, out.invisible_ms = <uint16_t> load_i16(entry + 1), <uint32_t> load_i32(entry + 3)
    out.pop_ms = load_i64(entry + 23)
    return DONE if change_out(&pops.heap, window, &place, &out) else NO_MEMORY


cdef Outcome repeat_taken(Pops *pops, Window *window, const uint8_t *entry) noexcept nogil:
    cdef const uint8_t *run = entry + TAKEN_SIZE
    cdef Outcome outcome
    cdef int64_t end
    cdef int64_t _
    cdef Out out
    memset(&out, 0, sizeof(Out))
    out.ordered, out.attempts = entry[1] != 0, load_i16(entry + 2)
    out.invisible_ms, out.pop_ms = load_i32(entry + 4), load_i64(entry + 8)
    for _ in range(<int64_t> <uint32_t> load_i32(entry + 24)):
        end = load_i64(run) + <uint32_t> load_i32(run + 8)
        # What was taken already stays as it is.
        out.offset = max(load_i64(run), window.next)
        while out.offset < end:
            outcome = add(pops, window, &out)
            if outcome != DONE:
                return outcome
            out.offset += 1
        run += RUN_SIZE
    window.next = max(window.next, load_i64(entry + 16))
    return DONE


cdef void repeat_settled(Pops *pops, Window *window, const uint8_t *entry) noexcept nogil:
    cdef int64_t offset = load_i64(entry + 1)
    cdef int64_t end = offset + <uint32_t> load_i32(entry + 9)
    cdef int64_t pop_ms = load_i64(entry + 13)
    cdef Place place
    while out_from(window, offset, &place) and place.offset < end:
        offset = place.offset + 1
        if place.run.pop_ms == pop_ms:
            settle_found(pops, window, &place)
