"""A leaf column of a batch: its values and nulls, whatever the batch was sliced from."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from congreve.lake.parquet.arrow_array cimport ArrowArray


cdef void look_at_leaf(Leaf *leaf, const ArrowArray *column, Part part,
                       int32_t width) noexcept nogil:
    cdef const ArrowArray *array = column
    cdef int64_t elements
    leaf.rows = column.length
    leaf.first = column.offset
    leaf.width = width
    leaf.entries = NULL
    elements = leaf.rows
    if part != COLUMN:
        leaf.entries = <const int32_t *> column.buffers[1] + column.offset
        array = column.children[0].children[0 if part == KEYS else 1]
        leaf.first = leaf.entries[0] + column.children[0].offset + array.offset
        elements = leaf.entries[leaf.rows] - leaf.entries[0]
    leaf.validity = <const uint8_t *> array.buffers[0] if array.null_count else NULL
    leaf.offsets = NULL
    leaf.values = leaf.values_end = <const uint8_t *> array.buffers[1]
    if width == 0:
        leaf.offsets = <const int32_t *> array.buffers[1]
        leaf.values = leaf.values_end = <const uint8_t *> array.buffers[2]
        if elements:
            leaf.values_end = leaf.values + leaf.offsets[leaf.first + elements]
