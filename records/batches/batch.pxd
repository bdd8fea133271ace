# How one element of a batch is written, for all encoders of batches.
from libc.stdint cimport int32_t, uint8_t, uint32_t
from libc.string cimport memcpy

from congreve.base.cursor cimport store_i16, store_i32
from congreve.records cimport layout

# One element, big endian: size i32, magic i32 (0), CRC i32 (0), flag i32, body length i32, body,
# properties length i16, properties. read_batch_element() of `record` reads it.
cdef enum:
    AT_ELEMENT_BODY = 20
    ID_LENGTH = 32          # hex digits of a message id


cdef inline uint8_t *properties_place(uint8_t *element, int32_t body_length) noexcept nogil:
    """The address at which the properties of an element begin."""
    return element + AT_ELEMENT_BODY + body_length + 2


cdef inline uint8_t *put_body(uint8_t *out, const uint8_t *body, int32_t length, int32_t flag,
                              int32_t properties_length) noexcept nogil:
    """Write an element up to its properties."""
    store_i32(out, layout.BATCH_ELEMENT_FIXED + length + properties_length)
    store_i32(out + 4, 0)
    store_i32(out + 8, 0)
    store_i32(out + 12, flag)
    store_i32(out + 16, length)
    memcpy(out + AT_ELEMENT_BODY, body, length)
    store_i16(out + AT_ELEMENT_BODY + length, <short> properties_length)
    return properties_place(out, length)


cdef inline void put_hex(uint8_t *out, uint32_t number) noexcept nogil:
    """Write the last four hex digits of a number."""
    cdef const char *digits = b"0123456789ABCDEF"
    out[0] = digits[number >> 12 & 15]
    out[1] = digits[number >> 8 & 15]
    out[2] = digits[number >> 4 & 15]
    out[3] = digits[number & 15]
