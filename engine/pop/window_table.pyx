"""The windows of a store by their names, for code without the GIL (window_table.pxd)."""

from libc.stdint cimport int16_t, int32_t, uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from congreve.base.cursor cimport store_i16, store_i32
from congreve.base.slices cimport Slice
from congreve.engine.pop.journal cimport WINDOW
from congreve.engine.pop.state cimport Window, WindowTable
from congreve.records.byte_table cimport Key, empty_slot, key_of, move_slots, slot_of

cdef enum:
    FIRST_CAPACITY = 64


cdef int32_t put_name(uint8_t *at, Slice group, Slice topic, int32_t queue_id) noexcept nogil:
    at[0] = WINDOW
    store_i32(at + 1, queue_id)
    store_i16(at + 5, <int16_t> group.length)
    store_i16(at + 7, <int16_t> topic.length)
    memcpy(at + NAME_FIXED, group.data, group.length)
    memcpy(at + NAME_FIXED + group.length, topic.data, topic.length)
    return NAME_FIXED + group.length + topic.length


cdef bint add_window(WindowTable *table, Window *window) noexcept nogil:
    cdef Key **slots
    if (table.count + 1) * 2 > table.capacity:
        slots = <Key **> calloc(max(table.capacity * 2, FIRST_CAPACITY), sizeof(Key *))
        if slots == NULL:
            return False
        if table.capacity:
            move_slots(table.slots, table.capacity, slots)
        free(table.slots)
        table.slots, table.capacity = slots, max(table.capacity * 2, FIRST_CAPACITY)
    slot_of(table.slots, table.capacity, &window.key)[0] = &window.key
    table.count += 1
    window.newer, window.older = NULL, table.newest
    if table.newest != NULL:
        table.newest.newer = window
    table.newest = window
    return True


cdef void remove_window(WindowTable *table, Window *window) noexcept nogil:
    empty_slot(table.slots, table.capacity, slot_of(table.slots, table.capacity, &window.key))
    table.count -= 1
    if table.to_copy == window:
        table.to_copy = window.older
    if window.newer == NULL:
        table.newest = window.older
    else:
        window.newer.older = window.older
    if window.older != NULL:
        window.older.newer = window.newer


cdef Window *window_named(const WindowTable *table, const uint8_t *name,
                          int32_t length) noexcept nogil:
    cdef Key key = key_of(name, length)
    if not table.capacity:
        return NULL
    return <Window *> slot_of(table.slots, table.capacity, &key)[0]
