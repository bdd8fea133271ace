"""CRC-32 of bodies and Java's string hash of tags and keys."""

from libc.stdint cimport INT32_MIN, int32_t, uint8_t, uint32_t
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer

cdef extern from "checksum_crc32.h" nogil:
    void crc32_setup()
    uint32_t c_by_tables "crc32_by_tables"(uint32_t crc, const uint8_t *data, size_t length)
    uint32_t c_by_folding "crc32_by_folding"(uint32_t crc, const uint8_t *data, size_t length)
    uint32_t crc32_best(uint32_t crc, const uint8_t *data, size_t length)


cdef enum:
    REPLACEMENT = 0xFFFD  # Java's decoder replaces invalid UTF-8 by it

crc32_setup()


cdef uint32_t crc32(uint32_t crc, const uint8_t *data, size_t length) noexcept nogil:
    return crc32_best(crc, data, length)


cdef int32_t body_crc(const uint8_t *body, size_t length) noexcept nogil:
    return <int32_t> (crc32_best(0, body, length) & 0x7FFFFFFF)


cdef inline bint continues(uint8_t byte) noexcept nogil:
    return byte & 0xC0 == 0x80


cdef int32_t string_hash(int32_t h, const uint8_t *utf8, size_t length) noexcept nogil:
    cdef uint32_t sum = <uint32_t> h
    cdef uint32_t code
    cdef const uint8_t *at = utf8
    cdef const uint8_t *end = utf8 + length
    while at < end:
        if end - at >= 4 and (at[0] | at[1] | at[2] | at[3]) < 0x80:
            # four letters cost one multiplication in the dependency chain
            sum = sum * 923521 + at[0] * 29791u + at[1] * 961u + at[2] * 31u + at[3]
            at += 4
        elif at[0] < 0x80:
            sum = sum * 31 + at[0]
            at += 1
        elif at[0] & 0xE0 == 0xC0 and end - at >= 2 and continues(at[1]):
            sum = sum * 31 + ((at[0] & 0x1Fu) << 6 | at[1] & 0x3Fu)
            at += 2
        elif (at[0] & 0xF0 == 0xE0 and end - at >= 3
                and continues(at[1]) and continues(at[2])):
            sum = sum * 31 + ((at[0] & 0x0Fu) << 12 | (at[1] & 0x3Fu) << 6 | at[2] & 0x3Fu)
            at += 3
        elif (at[0] & 0xF8 == 0xF0 and end - at >= 4
                and continues(at[1]) and continues(at[2]) and continues(at[3])):
            code = ((at[0] & 0x07u) << 18 | (at[1] & 0x3Fu) << 12
                    | (at[2] & 0x3Fu) << 6 | at[3] & 0x3Fu) - 0x10000u
            sum = sum * 31 + (0xD800u + (code >> 10))
            sum = sum * 31 + (0xDC00u + (code & 0x3FFu))
            at += 4
        else:
            sum = sum * 31 + <uint32_t> REPLACEMENT
            at += 1
    return <int32_t> sum


cdef int32_t index_hash(const uint8_t *topic, size_t topic_length,
                        const uint8_t *key, size_t key_length) noexcept nogil:
    cdef int32_t h = string_hash(0, topic, topic_length)
    h = string_hash(h, b"#", 1)
    h = string_hash(h, key, key_length)
    if h == INT32_MIN:
        return 0
    return -h if h < 0 else h


cdef object crc_of(Way way, object data, uint32_t crc):
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        return way(crc, <const uint8_t *> view.buf, view.len)
    finally:
        PyBuffer_Release(&view)


def crc32_by_tables(data, uint32_t crc=0):
    """zlib.crc32 with tables, on any CPU; crc32() falls back to it."""
    return crc_of(c_by_tables, data, crc)


def crc32_by_folding(data, uint32_t crc=0):
    """zlib.crc32 with carry-less multiplication of 16 bytes, or with tables if the CPU lacks it."""
    return crc_of(c_by_folding, data, crc)
