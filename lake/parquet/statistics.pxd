# The least and the greatest value of a column chunk.
from libc.stdint cimport int64_t

from congreve.lake.parquet.leaf cimport Leaf, Text

cdef struct Bounds:
    Text least              # `at` is NULL before the first value
    Text greatest

# Take a value, as numbers of 4 or 8 bytes, or as text by its bytes if `width` is 0.
cdef void take_value(Bounds *bounds, const Text *value, int width) noexcept nogil

# Take the values of the elements [first, last) that are not null.
cdef void take_elements(Bounds *bounds, const Leaf *leaf, int64_t first,
                        int64_t last) noexcept nogil
