# Shared by the writers of frames: each function writes its bytes at `out` and returns the end.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy


cdef inline uint8_t *put(uint8_t *out, const char *text, Py_ssize_t length) noexcept nogil:
    memcpy(out, text, length)
    return out + length


cdef inline uint8_t *put_i16(uint8_t *out, int32_t value) noexcept nogil:
    out[0] = <uint8_t> (value >> 8)
    out[1] = <uint8_t> value
    return out + 2


cdef inline uint8_t *put_i32(uint8_t *out, int32_t value) noexcept nogil:
    out[0] = <uint8_t> (value >> 24)
    out[1] = <uint8_t> (value >> 16)
    out[2] = <uint8_t> (value >> 8)
    out[3] = <uint8_t> value
    return out + 4


cdef inline uint8_t *put_decimal(uint8_t *out, int64_t value) noexcept nogil:
    cdef uint8_t digits[20]
    cdef uint64_t left = <uint64_t> value
    cdef uint32_t pair, tens
    cdef int32_t at = 20
    if value < 0:
        left = 0 - left
        out[0] = c"-"
        out += 1
    while left >= 10:
        pair = <uint32_t> (left % 100)
        left //= 100
        tens = pair * 103 >> 10     # pair // 10, for all below 100
        at -= 2
        digits[at] = <uint8_t> (c"0" + tens)
        digits[at + 1] = <uint8_t> (c"0" + pair - 10 * tens)
    if left or at == 20:
        at -= 1
        digits[at] = <uint8_t> (c"0" + left)
    memcpy(out, &digits[at], 20 - at)
    return out + 20 - at
