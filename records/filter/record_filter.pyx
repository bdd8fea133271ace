"""The base of filters that test the bytes of a record."""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, realloc

from congreve.base.cursor cimport load_i64
from congreve.records.layout cimport AT_PHYSICAL_OFFSET
from congreve.records.record cimport RECORD_OK, RecordView, check


@cython.final
cdef class FilterMemory:
    """The working memory of one thread that runs filters."""

    def __dealloc__(self):
        free(self.values)

    cdef bint fit(self, RecordFilter records) noexcept nogil:
        cdef Value *values
        if self.count < records.values:
            values = <Value *> realloc(self.values, records.values * sizeof(Value))
            if values == NULL:
                return False
            self.values, self.count = values, records.values
        return True


cdef class RecordFilter:
    """A filter of messages by their properties; compiled classes derive from it."""

    cdef bint accepts(self, const uint8_t *record, int32_t size,
                      FilterMemory memory) noexcept nogil:
        cdef RecordView view
        cdef int64_t offset = load_i64(record + AT_PHYSICAL_OFFSET)
        if check(record, size, offset, False, &view) != RECORD_OK:
            return False
        return self.accepts_properties(view.properties, view.properties_length, memory)

    cdef bint accepts_properties(self, const uint8_t *properties, int32_t length,
                                 FilterMemory memory) noexcept nogil:
        return True
