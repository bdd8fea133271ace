# Tables of entries by the bytes of their keys, for code without the GIL: open addressing in a power
# of two of slots, of which at most half are in use.
from cpython.mem cimport PyMem_Calloc
from libc.stdint cimport int32_t, uint8_t, uint64_t
from libc.string cimport memcpy

from congreve.records.byte_compare cimport same


# The first field of an entry.
cdef struct Key:
    uint64_t hash
    const uint8_t *bytes
    int32_t length


# FNV-1a, eight bytes at a time.
cdef inline uint64_t hash_bytes(const uint8_t *at, Py_ssize_t length) noexcept nogil:
    cdef uint64_t h = 0xCBF29CE484222325U
    cdef uint64_t word
    while length >= 8:
        memcpy(&word, at, 8)
        h = (h ^ word) * <uint64_t> 0x100000001B3
        h ^= h >> 29
        at += 8
        length -= 8
    while length > 0:
        h = (h ^ at[0]) * <uint64_t> 0x100000001B3
        at += 1
        length -= 1
    return h ^ (h >> 32)


cdef inline Key key_of(const uint8_t *at, int32_t length) noexcept nogil:
    cdef Key key
    key.hash, key.bytes, key.length = hash_bytes(at, length), at, length
    return key


# The slot that holds the key, or the empty one where it belongs.
cdef inline Key **slot_of(Key **slots, Py_ssize_t capacity, const Key *key) noexcept nogil:
    cdef Py_ssize_t mask = capacity - 1
    cdef Py_ssize_t i = key.hash & mask
    while slots[i] != NULL and not (
        slots[i].hash == key.hash
        and same(slots[i].bytes, slots[i].length, key.bytes, key.length)
    ):
        i = (i + 1) & mask
    return &slots[i]


# A new entry of `size` zeroed bytes, with a copy of its key behind them, in its slot; PyMem_Free()
# frees it. Needs the GIL, and a slot that is free.
cdef inline Key *add_entry(Key **slots, Py_ssize_t capacity, const Key *key,
                           Py_ssize_t size) except NULL:
    cdef Key *entry = <Key *> PyMem_Calloc(1, size + key.length)
    cdef uint8_t *copy = <uint8_t *> entry + size
    if entry == NULL:
        raise MemoryError()
    memcpy(copy, key.bytes, key.length)
    entry.hash, entry.bytes, entry.length = key.hash, copy, key.length
    slot_of(slots, capacity, key)[0] = entry
    return entry


# Empties a slot. The entries after it must stay findable: they are inserted again.
cdef inline void empty_slot(Key **slots, Py_ssize_t capacity, Key **slot) noexcept nogil:
    cdef Py_ssize_t mask = capacity - 1
    cdef Py_ssize_t i = slot - slots
    cdef Key *moved
    slot[0] = NULL
    i = (i + 1) & mask
    while slots[i] != NULL:
        moved = slots[i]
        slots[i] = NULL
        slot_of(slots, capacity, moved)[0] = moved
        i = (i + 1) & mask


# Puts the entries of `capacity` slots into twice as many, which are empty.
cdef inline void move_slots(Key **slots, Py_ssize_t capacity, Key **doubled) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(capacity):
        if slots[i] != NULL:
            slot_of(doubled, 2 * capacity, slots[i])[0] = slots[i]
