# One leaf column of a batch: a column, or the keys or values of a column of maps.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from congreve.lake.parquet.arrow_array cimport ArrowArray

cdef enum Part:
    COLUMN = 0
    KEYS = 1
    VALUES = 2

cdef struct Leaf:
    int64_t rows
    int64_t first               # place of element 0 in the buffers
    const int32_t *entries      # of a map: rows + 1 offsets of elements; NULL: an element a row
    const uint8_t *validity     # a bit for each element, NULL if none is null
    const int32_t *offsets      # of texts
    const uint8_t *values
    const uint8_t *values_end
    int32_t width               # bytes of a number, 0 for texts

cdef struct Text:
    const uint8_t *at
    int64_t length

cdef void look_at_leaf(Leaf *leaf, const ArrowArray *column, Part part,
                       int32_t width) noexcept nogil


# Elements count from 0; those of the rows [a, b) are [element_of(a), element_of(b)).
cdef inline int64_t element_of(const Leaf *leaf, int64_t row) noexcept nogil:
    return row if leaf.entries == NULL else leaf.entries[row] - leaf.entries[0]


cdef inline bint is_null(const Leaf *leaf, int64_t element) noexcept nogil:
    cdef int64_t place = leaf.first + element
    return leaf.validity != NULL and not leaf.validity[place >> 3] >> (place & 7) & 1


cdef inline Text text_of(const Leaf *leaf, int64_t element) noexcept nogil:
    cdef const int32_t *offset = leaf.offsets + leaf.first + element
    cdef Text text
    text.at = leaf.values + offset[0]
    text.length = offset[1] - offset[0]
    return text


cdef inline uint64_t load_u64(const uint8_t *at) noexcept nogil:
    cdef uint64_t word
    memcpy(&word, at, 8)
    return word


cdef inline uint32_t load_u32(const uint8_t *at) noexcept nogil:
    cdef uint32_t word
    memcpy(&word, at, 4)
    return word


cdef inline bint same_text(const Text *a, const Text *b) noexcept nogil:
    cdef int64_t length = a.length
    if length != b.length:
        return False
    if length >= 8:
        if load_u64(a.at) != load_u64(b.at):
            return False
        if length <= 16:
            return load_u64(a.at + length - 8) == load_u64(b.at + length - 8)
        return memcmp(a.at + 8, b.at + 8, length - 8) == 0
    if length >= 4:
        return (
            load_u32(a.at) == load_u32(b.at)
            and load_u32(a.at + length - 4) == load_u32(b.at + length - 4)
        )
    return memcmp(a.at, b.at, length) == 0
