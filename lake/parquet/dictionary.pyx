"""A dictionary of a column chunk, abandoned as soon as its values repeat too little."""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memset

from congreve.lake.parquet.leaf cimport (
    Leaf, Text, element_of, is_null, load_u32, load_u64, same_text, text_of,
)

cdef enum:
    FEW = 64                # different values that any chunk may have
    SHARE = 4               # beyond them, one of so many elements may have a new value

cdef uint64_t MULTIPLIER = 0x9E3779B97F4A7C15u


cdef inline uint64_t hash_of(const Text *text) noexcept nogil:
    cdef const uint8_t *at = text.at
    cdef int64_t left = text.length
    cdef uint64_t code = <uint64_t> left * MULTIPLIER
    while left > 8:
        code = (code ^ load_u64(at)) * MULTIPLIER
        code ^= code >> 32
        at += 8
        left -= 8
    if text.length >= 8:
        code ^= load_u64(text.at + text.length - 8)
    elif left >= 4:
        code ^= load_u32(at) | <uint64_t> load_u32(at + left - 4) << 32
    elif left > 0:
        code ^= at[0] | <uint64_t> at[left // 2] << 8 | <uint64_t> at[left - 1] << 16
    return code * MULTIPLIER


cdef bint is_constant(const Leaf *leaf, int64_t elements) noexcept nogil:
    """True if all elements have one value: adjacent ones of equal length are equal bytes."""
    cdef const uint8_t *at
    cdef const int32_t *offsets
    cdef int64_t length = leaf.width
    cdef int64_t i
    if leaf.validity != NULL or elements == 0:
        return False
    if length:
        at = leaf.values + leaf.first * length
    else:
        offsets = leaf.offsets + leaf.first
        length = offsets[1] - offsets[0]
        if offsets[elements] - offsets[0] != length * elements:
            return False
        for i in range(elements):
            if offsets[i + 1] - offsets[i] != length:
                return False
        at = leaf.values + offsets[0]
    return memcmp(at, at + length, length * (elements - 1)) == 0


@cython.final
cdef class Dictionary:
    """The different values of one chunk at a time, in the order of their first elements."""

    def __dealloc__(self):
        free(self.indexes)

    cdef Filled fill(self, const Leaf *leaf) noexcept nogil:
        cdef int64_t elements = element_of(leaf, leaf.rows)
        self.constant = is_constant(leaf, elements)
        if self.constant:
            self.count = 1
            if leaf.width:
                self.values[0].at = leaf.values + leaf.first * leaf.width
                self.values[0].length = leaf.width
            else:
                self.values[0] = text_of(leaf, 0)
            return FILLED
        if not self.make_room(elements):
            return OUT_OF_MEMORY
        self.count = 0
        self.most = <int32_t> min(MOST_VALUES, FEW + elements // SHARE)
        memset(self.slots, 0, sizeof(self.slots))
        memset(self.guesses, 0xFF, sizeof(self.guesses))
        return self.fill_numbers(leaf, elements) if leaf.width else self.fill_texts(leaf)

    cdef int32_t width(self) noexcept nogil:
        """Bits of an index."""
        cdef int32_t bits = 1
        while 1 << bits < self.count:
            bits += 1
        return bits

    cdef bint make_room(self, int64_t elements) noexcept nogil:
        cdef void *more
        if elements > self.index_capacity:
            more = realloc(self.indexes, elements * sizeof(uint16_t))
            if more == NULL:
                return False
            self.indexes, self.index_capacity = <uint16_t *> more, elements
        return True

    cdef Filled fill_numbers(self, const Leaf *leaf, int64_t elements) noexcept nogil:
        cdef uint16_t *index = self.indexes
        cdef int32_t place = -1
        cdef uint64_t number
        cdef uint64_t last = 0
        cdef int64_t i
        cdef Text value
        value.length = leaf.width
        for i in range(elements):
            if is_null(leaf, i):
                continue
            value.at = leaf.values + (leaf.first + i) * leaf.width
            number = load_u64(value.at) if leaf.width == 8 else load_u32(value.at)
            if number != last or place < 0:
                place = self.place_of(&value, number * MULTIPLIER)
                if place < 0:
                    return TOO_MANY
                last = number
            index[0] = <uint16_t> place
            index += 1
        return FILLED

    cdef Filled fill_texts(self, const Leaf *leaf) noexcept nogil:
        cdef uint16_t *index = self.indexes
        cdef int32_t *guess
        cdef int64_t row, first, i
        cdef Text value
        for row in range(leaf.rows):
            first = element_of(leaf, row)
            for i in range(first, element_of(leaf, row + 1)):
                if is_null(leaf, i):
                    continue
                value = text_of(leaf, i)
                # Maps of one producer have the same names in the same order.
                guess = &self.guesses[(i - first) % GUESSES]
                if guess[0] < 0 or not same_text(&self.values[guess[0]], &value):
                    guess[0] = self.place_of(&value, hash_of(&value))
                    if guess[0] < 0:
                        return TOO_MANY
                index[0] = <uint16_t> guess[0]
                index += 1
        return FILLED

    cdef int32_t place_of(self, const Text *value, uint64_t hash_code) noexcept nogil:
        """The place of a value, which may be a new one; -1 if there are too many."""
        cdef uint64_t slot = hash_code >> (64 - SLOT_BITS)
        cdef int32_t _probe, place
        for _probe in range(PROBES):
            place = self.slots[slot] - 1
            if place < 0:
                if self.count == self.most:
                    return -1
                self.values[self.count] = value[0]
                self.count += 1
                self.slots[slot] = <uint16_t> self.count
                return self.count - 1
            if same_text(&self.values[place], value):
                return place
            slot = (slot + 1) % SLOTS
        return -1
