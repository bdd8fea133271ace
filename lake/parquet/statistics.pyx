"""Least and greatest values: signed numbers, and texts by their bytes, as Parquet orders them."""

from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.string cimport memcmp

from congreve.lake.parquet.leaf cimport Leaf, Text, is_null, load_u32, load_u64, text_of

cdef extern from *:
    uint64_t congreve_big_endian "__builtin_bswap64"(uint64_t word) noexcept nogil


cdef inline bint is_less(const Text *a, const Text *b) noexcept nogil:
    cdef int64_t shorter = min(a.length, b.length)
    cdef uint64_t left, right
    cdef int difference
    if shorter >= 8:
        left, right = load_u64(a.at), load_u64(b.at)
        if left != right:
            return congreve_big_endian(left) < congreve_big_endian(right)
    difference = memcmp(a.at, b.at, shorter)
    return difference < 0 if difference else a.length < b.length


cdef inline int64_t number_of(const Text *value) noexcept nogil:
    return <int64_t> load_u64(value.at) if value.length == 8 else <int32_t> load_u32(value.at)


cdef void take_value(Bounds *bounds, const Text *value, int width) noexcept nogil:
    if bounds.least.at == NULL:
        bounds.least = bounds.greatest = value[0]
    elif width:
        if number_of(value) < number_of(&bounds.least):
            bounds.least = value[0]
        if number_of(value) > number_of(&bounds.greatest):
            bounds.greatest = value[0]
    # Many ids and keys grow, so most values need one comparison.
    elif is_less(&bounds.greatest, value):
        bounds.greatest = value[0]
    elif is_less(value, &bounds.least):
        bounds.least = value[0]


cdef void take_elements(Bounds *bounds, const Leaf *leaf, int64_t first,
                        int64_t last) noexcept nogil:
    cdef Text value
    cdef int64_t i
    value.length = leaf.width
    for i in range(first, last):
        if is_null(leaf, i):
            continue
        if leaf.width:
            value.at = leaf.values + (leaf.first + i) * leaf.width
        else:
            value = text_of(leaf, i)
        take_value(bounds, &value, leaf.width)
