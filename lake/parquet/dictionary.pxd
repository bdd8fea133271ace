# The different values of a column chunk, and for each element the place of its value among them.
from libc.stdint cimport int32_t, int64_t, uint16_t, uint64_t

from congreve.lake.parquet.leaf cimport Leaf, Text

cdef enum:
    MOST_VALUES = 4096
    SLOTS = 4 * MOST_VALUES
    SLOT_BITS = 14
    PROBES = 32
    GUESSES = 32            # positions in a map whose last value is kept

cdef enum Filled:
    FILLED = 1
    TOO_MANY = 0            # the values repeat too little
    OUT_OF_MEMORY = -1


cdef class Dictionary:
    cdef int32_t count              # of different values
    cdef bint constant              # one value in all elements: there are no indexes
    cdef uint16_t *indexes          # of the elements that are not null
    cdef Text values[MOST_VALUES]
    cdef int64_t index_capacity
    cdef int32_t most
    cdef uint16_t slots[SLOTS]      # 1 + the place of a value, 0: free
    cdef int32_t guesses[GUESSES]

    cdef Filled fill(self, const Leaf *leaf) noexcept nogil
    cdef int32_t width(self) noexcept nogil
    cdef bint make_room(self, int64_t elements) noexcept nogil
    cdef Filled fill_numbers(self, const Leaf *leaf, int64_t elements) noexcept nogil
    cdef Filled fill_texts(self, const Leaf *leaf) noexcept nogil
    cdef int32_t place_of(self, const Text *value, uint64_t hash_code) noexcept nogil
