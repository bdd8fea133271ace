"""Growing memory that Arrow uses without a copy, and text written into it."""

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy
from cpython.buffer cimport PyBUF_WRITABLE
from cpython.bytes cimport PyBytes_AS_STRING
from cpython.unicode cimport PyUnicode_DecodeUTF8


@cython.final
cdef class ColumnBuffer:
    """Bytes of one column, exported through the buffer protocol (1-d, read-only)."""

    def __dealloc__(self):
        free(self.data)

    def __len__(self):
        return self.length

    cdef bint reserve(self, int64_t more) noexcept nogil:
        cdef int64_t wanted = self.length + more
        cdef void *data
        self.promised = wanted
        if wanted <= self.capacity:
            return True
        wanted = max(wanted, 2 * self.capacity)
        data = realloc(self.data, wanted)
        if data == NULL:
            return False
        self.data = <uint8_t *> data
        self.capacity = wanted
        return True

    cdef bint reserve_besides(self, int64_t more) noexcept nogil:
        return self.reserve(self.promised - self.length + more)

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        if flags & PyBUF_WRITABLE:
            raise BufferError("columns are read-only")
        self.shape[0] = self.length
        self.strides[0] = 1
        buffer.buf = self.data if self.data != NULL else <void *> self.shape
        buffer.obj = self
        buffer.len = self.length
        buffer.itemsize = 1
        buffer.readonly = True
        buffer.ndim = 1
        buffer.format = NULL
        buffer.shape = self.shape
        buffer.strides = self.strides
        buffer.suboffsets = NULL
        buffer.internal = NULL


cdef bint is_ascii(const uint8_t *at, int64_t length) noexcept nogil:
    cdef uint64_t word
    cdef uint64_t seen = 0
    while length >= 8:
        memcpy(&word, at, 8)
        seen |= word
        at += 8
        length -= 8
    while length > 0:
        seen |= <uint64_t> at[0]
        at += 1
        length -= 1
    return not seen & 0x8080808080808080u


cdef bytes valid_utf8(const uint8_t *at, int64_t length):
    """Invalid UTF-8 becomes U+FFFD, as in the record codec; None if all bytes are valid."""
    try:
        PyUnicode_DecodeUTF8(<const char *> at, length, NULL)
        return None
    except UnicodeDecodeError:
        return PyUnicode_DecodeUTF8(<const char *> at, length, "replace").encode()


cdef bint put_foreign(ColumnBuffer values, const uint8_t *at, int64_t length) noexcept with gil:
    """Text beyond ASCII; room for `length` bytes was made, not for what takes more."""
    cdef bytes repaired
    try:
        repaired = valid_utf8(at, length)
    except MemoryError:
        return False
    if repaired is None:
        memcpy(values.data + values.length, at, length)
        values.length += length
        return True
    if not values.reserve_besides(len(repaired)):
        return False
    memcpy(values.data + values.length, PyBytes_AS_STRING(repaired), len(repaired))
    values.length += len(repaired)
    return True


cdef bint put_text(ColumnBuffer values, const uint8_t *at, int64_t length) noexcept nogil:
    cdef uint8_t *to = values.data + values.length
    cdef uint8_t seen = 0
    cdef int64_t i
    if length < 8:
        # most tags, and cheaper than two calls
        for i in range(length):
            seen |= at[i]
            to[i] = at[i]
        if seen & 0x80:
            return put_foreign(values, at, length)
    else:
        if not is_ascii(at, length):
            return put_foreign(values, at, length)
        memcpy(to, at, length)
    values.length += length
    return True


cdef bint put_quoted(ColumnBuffer values, const uint8_t *at, int64_t length) noexcept nogil:
    cdef const uint8_t *end = at + length
    cdef const uint8_t *plain
    put_byte(values, c'"')
    while at < end:
        plain = at
        while at < end and at[0] >= 0x20 and at[0] != c'"' and at[0] != c"\\":
            at += 1
        if not put_text(values, plain, at - plain):
            return False
        if at < end:
            put_byte(values, c"\\")
            if at[0] >= 0x20:
                put_byte(values, at[0])
            else:
                memcpy(values.data + values.length, b"u00", 3)
                values.length += 3
                put_byte(values, b"0123456789abcdef"[at[0] >> 4])
                put_byte(values, b"0123456789abcdef"[at[0] & 15])
            at += 1
    put_byte(values, c'"')
    return True
