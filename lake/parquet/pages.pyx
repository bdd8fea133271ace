"""Columns of Arrow batches as the pages of a Parquet file, filled without the GIL.

A page has levels (which elements begin a row, which are null) and values: those of a chunk that
repeat as indexes of a dictionary, all others in plain encoding.
"""

cimport cython
from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy, memset

from congreve.lake.parquet.arrow_array cimport ArrowArray
from congreve.lake.parquet.dictionary cimport OUT_OF_MEMORY, TOO_MANY, Dictionary, Filled
from congreve.lake.parquet.hybrid cimport (
    put_groups_header, put_indexes, put_run, room_of_indexes,
)
from congreve.lake.parquet.leaf cimport (
    COLUMN, Leaf, Part, Text, element_of, is_null, look_at_leaf, text_of,
)
from congreve.lake.parquet.statistics cimport Bounds, take_elements, take_value
from congreve.records.columns.buffer cimport ColumnBuffer

cdef enum:
    PAGE_BYTES = 1 << 20    # of values; a page has at least one row
    INDEX_BYTES = 4         # an index counts as so many, whatever its width
    SPARE = 32              # bytes behind a short text that its copy may touch
    LEVELS = 32             # the most bytes of a page's levels beyond their bits


@cython.final
cdef class ArrowRows:
    """The columns of a pyarrow.RecordBatch, kept alive."""

    cdef object capsule
    cdef const ArrowArray *array
    cdef readonly int64_t rows
    """Number of rows."""

    def __cinit__(self, batch):
        _, self.capsule = batch.__arrow_c_array__()
        self.array = <const ArrowArray *> PyCapsule_GetPointer(self.capsule, b"arrow_array")
        self.rows = self.array.length


@cython.final
cdef class PageScratch:
    """Memory that all columns of a file use one after the other."""

    cdef readonly ColumnBuffer page
    """The page that PageEncoder.next_page() has filled."""
    cdef readonly ColumnBuffer dictionary_page
    """The values of a chunk's dictionary, if it has one."""
    cdef Dictionary dictionary

    def __cinit__(self):
        self.page, self.dictionary_page = ColumnBuffer(), ColumnBuffer()
        self.dictionary = Dictionary()


@cython.final
cdef class PageEncoder:
    """Encodes one leaf column: the column `column`, or its keys (`part` 1) or values (2).

    `width` is 4 or 8 bytes for numbers, 0 for texts. After begin(), next_page() is called until it
    returns 0; then the next chunk may begin. Only flat columns may be `optional`. With
    `dictionary` a chunk gets a dictionary if its values repeat; once they do not, none has one.
    """

    cdef readonly bint has_dictionary
    """True if the chunk has a dictionary, of `dictionary_values` values."""
    cdef readonly int32_t dictionary_values
    """Number of different values in the chunk's dictionary."""
    cdef readonly int64_t null_count
    """Number of null elements in the pages so far."""
    cdef ColumnBuffer page
    cdef ColumnBuffer dictionary_page
    cdef Dictionary values
    cdef int32_t column
    cdef int32_t width
    cdef Part part
    cdef bint optional
    cdef bint dictionary
    cdef bint statistics
    cdef ArrowRows rows
    cdef Leaf leaf
    cdef int64_t row            # the next page begins here
    cdef int64_t encoded        # elements with an index in the pages so far
    cdef Bounds bounds

    def __cinit__(self, PageScratch scratch not None, int32_t column, int part, int32_t width, *,
                  bint optional, bint dictionary, bint statistics):
        self.page, self.dictionary_page = scratch.page, scratch.dictionary_page
        self.values = scratch.dictionary
        self.column, self.part, self.width = column, <Part> part, width
        self.optional, self.dictionary, self.statistics = optional, dictionary, statistics

    @property
    def minimum(self):
        """The least value of the pages so far, as bytes; None without one, or without statistics.
        """
        return bytes_of(&self.bounds.least)

    @property
    def maximum(self):
        """The greatest value, as `minimum`."""
        return bytes_of(&self.bounds.greatest)

    def begin(self, ArrowRows rows not None):
        """Begin a chunk with the column's part of these rows.

        Raises ValueError for a null in a column that is not optional.
        """
        cdef Filled filled
        self.rows = rows
        look_at_leaf(&self.leaf, rows.array.children[self.column], self.part, self.width)
        if self.leaf.validity != NULL and not self.optional and has_null(&self.leaf):
            raise ValueError(f"column {self.column} has nulls, but is required")
        self.row = self.encoded = self.null_count = 0
        memset(&self.bounds, 0, sizeof(self.bounds))
        self.has_dictionary = False
        if self.dictionary:
            with nogil:
                filled = self.values.fill(&self.leaf)
            if filled == OUT_OF_MEMORY:
                raise MemoryError()
            self.dictionary = filled != TOO_MANY
            self.dictionary_values = self.values.count
            # Where all elements are null, readers expect no dictionary.
            self.has_dictionary = self.dictionary and self.dictionary_values > 0
            if self.has_dictionary and not self.put_dictionary():
                raise MemoryError()

    def next_page(self):
        """Fill the page with the next rows; returns the number of its elements, 0 at the end."""
        cdef int64_t stop
        cdef int64_t elements
        with nogil:
            stop = self.page_end()
            elements = self.fill(stop)
        if elements < 0:
            raise MemoryError()
        self.row = stop
        return elements

    cdef int64_t page_end(self) noexcept nogil:
        """The end of the next page's rows: the first one that does not fit, or the last."""
        cdef int64_t begin = self.size_before(self.row)
        cdef int64_t low = self.row
        cdef int64_t high = self.leaf.rows
        cdef int64_t middle
        while low < high:
            middle = (low + high + 1) // 2
            if self.size_before(middle) - begin <= PAGE_BYTES:
                low = middle
            else:
                high = middle - 1
        return min(max(low, self.row + 1), self.leaf.rows)

    cdef int64_t size_before(self, int64_t row) noexcept nogil:
        """Bytes of the values before a row."""
        cdef int64_t elements = element_of(&self.leaf, row)
        if self.has_dictionary:
            return INDEX_BYTES * elements
        if self.width or elements == 0:
            return self.width * elements
        return (
            4 * elements + self.leaf.offsets[self.leaf.first + elements]
            - self.leaf.offsets[self.leaf.first]
        )

    cdef int64_t fill(self, int64_t stop) noexcept nogil:
        """Fill the page with the rows up to `stop`; returns its elements, -1 without memory."""
        cdef int64_t first = element_of(&self.leaf, self.row)
        cdef int64_t last = element_of(&self.leaf, stop)
        cdef int64_t begin = self.size_before(self.row)
        cdef int64_t size = self.size_before(stop) - begin
        cdef int64_t count = last - first
        self.page.length = 0
        if self.has_dictionary:
            size = room_of_indexes(count, self.values.width())
        if not self.page.reserve(size + (count + stop - self.row) // 4 + 2 * LEVELS + SPARE):
            return -1
        if self.part != COLUMN:
            count = put_map_levels(self.page, &self.leaf, self.row, stop)
        elif self.optional:
            self.null_count += put_null_levels(self.page, &self.leaf, first, last)
        if self.has_dictionary:
            self.put_dictionary_indexes(first, last)
        elif self.width:
            put_numbers(self.page, &self.leaf, first, last)
        else:
            put_texts(self.page, &self.leaf, first, last)
        if self.statistics and not self.has_dictionary:
            take_elements(&self.bounds, &self.leaf, first, last)
        return count

    cdef bint put_dictionary(self) noexcept nogil:
        """The dictionary's page: all values in plain encoding. False without memory."""
        cdef const Text *value
        cdef int32_t length, i
        self.dictionary_page.length = 0
        for i in range(self.values.count):
            value = &self.values.values[i]
            if not self.dictionary_page.reserve(4 + value.length):
                return False
            if self.width == 0:
                length = <int32_t> value.length
                memcpy(self.dictionary_page.data + self.dictionary_page.length, &length, 4)
                self.dictionary_page.length += 4
            memcpy(self.dictionary_page.data + self.dictionary_page.length, value.at, value.length)
            self.dictionary_page.length += value.length
            if self.statistics:
                take_value(&self.bounds, value, self.width)
        return True

    cdef void put_dictionary_indexes(self, int64_t first, int64_t last) noexcept nogil:
        cdef int32_t width = self.values.width()
        cdef int64_t count = last - first
        cdef uint8_t *at = self.page.data + self.page.length
        cdef int64_t i
        if self.leaf.validity != NULL:
            for i in range(first, last):
                count -= is_null(&self.leaf, i)
        at[0] = <uint8_t> width
        if self.values.constant:
            at = put_run(at + 1, count, 0, width)
        else:
            at = put_indexes(at + 1, self.values.indexes + self.encoded, count, width)
        self.encoded += count
        self.page.length = at - self.page.data


cdef bint has_null(const Leaf *leaf) noexcept nogil:
    cdef int64_t i
    for i in range(element_of(leaf, leaf.rows)):
        if is_null(leaf, i):
            return True
    return False


cdef bytes bytes_of(const Text *value):
    return None if value.at == NULL else value.at[:value.length]


cdef void end_levels(ColumnBuffer page, int64_t begin, const uint8_t *end) noexcept nogil:
    """Levels begin with the number of their bytes."""
    cdef int32_t length
    page.length = end - page.data
    length = <int32_t> (page.length - begin - 4)
    memcpy(page.data + begin, &length, 4)


cdef void put_ones(ColumnBuffer page, int64_t count) noexcept nogil:
    """Levels that are all 1."""
    cdef int64_t begin = page.length
    end_levels(page, begin, put_run(page.data + begin + 4, count, 1, 1))


cdef int64_t put_null_levels(ColumnBuffer page, const Leaf *leaf, int64_t first,
                             int64_t last) noexcept nogil:
    """A level 0 for each null; returns the number of nulls."""
    cdef int64_t begin = page.length
    cdef int64_t groups = (last - first + 7) // 8
    cdef int64_t nulls = 0
    cdef int64_t i
    cdef uint8_t *bits
    if leaf.validity == NULL:
        put_ones(page, last - first)
        return 0
    bits = put_groups_header(page.data + begin + 4, groups)
    memset(bits, 0xFF, groups)
    for i in range(first, last):
        if is_null(leaf, i):
            bits[(i - first) >> 3] ^= <uint8_t> (1 << ((i - first) & 7))
            nulls += 1
    end_levels(page, begin, bits + groups)
    return nulls


cdef int64_t put_map_levels(ColumnBuffer page, const Leaf *leaf, int64_t row,
                            int64_t stop) noexcept nogil:
    """Repetition 0 where a row begins, definition 0 for a map without entries, otherwise 1.

    Returns the number of levels: one for each entry, and one for each map without entries.
    """
    cdef int64_t begin = page.length
    cdef int64_t count = element_of(leaf, stop) - element_of(leaf, row)
    cdef int64_t empty = 0
    cdef int64_t groups, i
    cdef int64_t place = 0
    cdef uint8_t *repetition
    cdef uint8_t *definition
    for i in range(row, stop):
        empty += leaf.entries[i + 1] == leaf.entries[i]
    count += empty
    groups = (count + 7) // 8
    repetition = put_groups_header(page.data + begin + 4, groups)
    memset(repetition, 0xFF, groups)
    end_levels(page, begin, repetition + groups)
    begin = page.length
    if not empty:
        put_ones(page, count)
    else:
        definition = put_groups_header(page.data + begin + 4, groups)
        memset(definition, 0xFF, groups)
        end_levels(page, begin, definition + groups)
    for i in range(row, stop):
        repetition[place >> 3] ^= <uint8_t> (1 << (place & 7))
        if leaf.entries[i + 1] == leaf.entries[i]:
            definition[place >> 3] ^= <uint8_t> (1 << (place & 7))
            place += 1
        else:
            place += leaf.entries[i + 1] - leaf.entries[i]
    return count


cdef void put_numbers(ColumnBuffer page, const Leaf *leaf, int64_t first,
                      int64_t last) noexcept nogil:
    cdef const uint8_t *at = leaf.values + (leaf.first + first) * leaf.width
    cdef int64_t i
    if leaf.validity == NULL:
        memcpy(page.data + page.length, at, (last - first) * leaf.width)
        page.length += (last - first) * leaf.width
        return
    for i in range(first, last):
        if not is_null(leaf, i):
            memcpy(page.data + page.length, at + (i - first) * leaf.width, leaf.width)
            page.length += leaf.width


cdef void put_texts(ColumnBuffer page, const Leaf *leaf, int64_t first,
                    int64_t last) noexcept nogil:
    """Each text behind its length."""
    cdef uint8_t *to = page.data + page.length
    cdef Text text
    cdef int32_t length
    cdef int64_t i
    for i in range(first, last):
        if is_null(leaf, i):
            continue
        text = text_of(leaf, i)
        length = <int32_t> text.length
        memcpy(to, &length, 4)
        to += 4
        # A copy of constant length is quicker than a call, if there are so many bytes to read.
        if length <= SPARE and leaf.values_end - text.at >= SPARE:
            memcpy(to, text.at, SPARE)
        else:
            memcpy(to, text.at, length)
        to += length
    page.length = to - page.data
