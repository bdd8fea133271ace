"""The base of filters that test the bytes of a record."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from congreve.records.cursor cimport load_i64
from congreve.records.layout cimport AT_PHYSICAL_OFFSET
from congreve.records.record cimport RECORD_OK, RecordView, check


cdef class RecordFilter:
    """A filter of messages by their properties; compiled classes derive from it."""

    cdef bint accepts(self, const uint8_t *record, int32_t size) noexcept nogil:
        cdef RecordView view
        cdef int64_t offset = load_i64(record + AT_PHYSICAL_OFFSET)
        if check(record, size, offset, False, &view) != RECORD_OK:
            return False
        return self.accepts_properties(view.properties, view.properties_length)

    cdef bint accepts_properties(self, const uint8_t *properties, int32_t length) noexcept nogil:
        return True
