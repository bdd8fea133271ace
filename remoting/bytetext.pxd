# What the writers of frames have in common: each puts its bytes at `out` and returns the end.
from libc.stdint cimport int32_t, int64_t, uint8_t
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
    cdef int32_t count = 0
    cdef bint negative = value < 0
    while True:
        digits[count] = <uint8_t> (c"0" + (-(value % 10) if negative else value % 10))
        count += 1
        value = value / 10
        if value == 0:
            break
    if negative:
        out[0] = c"-"
        out += 1
    while count:
        count -= 1
        out[0] = digits[count]
        out += 1
    return out
