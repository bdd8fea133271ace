from libc.stdint cimport int32_t, int64_t, uint8_t


# Growing bytes of one column; callers reserve memory before they write.
cdef class ColumnBuffer:
    cdef uint8_t *data
    cdef int64_t length
    cdef int64_t capacity
    cdef int64_t promised       # end of the most recently reserved memory
    cdef Py_ssize_t shape[1]
    cdef Py_ssize_t strides[1]

    # Reserves memory for `more` bytes after the present ones; False without memory.
    cdef bint reserve(self, int64_t more) noexcept nogil

    # The same, in addition to the memory that was reserved before for later bytes.
    cdef bint reserve_besides(self, int64_t more) noexcept nogil


cdef inline bint put_i32(ColumnBuffer buffer, int64_t value) noexcept nogil:
    (<int32_t *> (buffer.data + buffer.length))[0] = <int32_t> value
    buffer.length += 4
    return True


cdef inline void put_byte(ColumnBuffer buffer, uint8_t byte) noexcept nogil:
    buffer.data[buffer.length] = byte
    buffer.length += 1


# Text as valid UTF-8: invalid bytes become U+FFFD, for which it reserves memory; False without it.
cdef bint put_text(ColumnBuffer values, const uint8_t *at, int64_t length) noexcept nogil

# The same as a JSON string, which takes at most JSON_GROWTH times the bytes, and two quotes.
cdef enum:
    JSON_GROWTH = 6
cdef bint put_quoted(ColumnBuffer values, const uint8_t *at, int64_t length) noexcept nogil
