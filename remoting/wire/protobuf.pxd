# Fields of protobuf messages, for compiled codecs
# (https://protobuf.dev/programming-guides/encoding).
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from congreve.base.slices cimport Slice

cdef enum WireType:
    VARINT = 0
    FIXED64 = 1
    BYTES = 2                   # and text, messages, packed numbers
    FIXED32 = 5

cdef struct ProtoField:
    int32_t number
    int32_t wire_type
    uint64_t value              # of VARINT
    Slice bytes                 # of BYTES


# Reads a number at `at`; NULL if it is not complete or has more than ten bytes.
cdef inline const uint8_t *read_varint(const uint8_t *at, const uint8_t *end,
                                       uint64_t *value) noexcept nogil:
    cdef int shift
    value[0] = 0
    for shift in range(0, 70, 7):
        if at == end:
            return NULL
        value[0] |= <uint64_t> (at[0] & 0x7F) << shift
        if at[0] < 0x80:
            return at + 1
        at += 1
    return NULL


# Reads the next field; NULL for bytes that are none, and for groups, which nothing sends.
cdef inline const uint8_t *read_field(const uint8_t *at, const uint8_t *end,
                                      ProtoField *field) noexcept nogil:
    cdef uint64_t key, length
    at = read_varint(at, end, &key)
    if at == NULL or key < 8 or key >> 32:
        return NULL
    field.number, field.wire_type = <int32_t> (key >> 3), <int32_t> (key & 7)
    if field.wire_type == VARINT:
        return read_varint(at, end, &field.value)
    if field.wire_type == BYTES:
        at = read_varint(at, end, &length)
        if at == NULL or length > <uint64_t> (end - at):
            return NULL
        field.bytes.data, field.bytes.length = at, <int32_t> length
        return at + length
    length = 8 if field.wire_type == FIXED64 else 4
    if field.wire_type != FIXED64 and field.wire_type != FIXED32:
        return NULL
    return at + length if length <= <uint64_t> (end - at) else NULL


cdef inline uint8_t *put_varint(uint8_t *out, uint64_t value) noexcept nogil:
    while value >= 0x80:
        out[0] = <uint8_t> (value | 0x80)
        value >>= 7
        out += 1
    out[0] = <uint8_t> value
    return out + 1


cdef inline int varint_size(uint64_t value) noexcept nogil:
    cdef int size = 1
    while value >= 0x80:
        value >>= 7
        size += 1
    return size


cdef inline uint8_t *put_number(uint8_t *out, int32_t field, uint64_t value) noexcept nogil:
    return put_varint(put_varint(out, <uint64_t> field << 3 | VARINT), value)


# The head of a field of `length` bytes, which the caller writes behind it.
cdef inline uint8_t *put_bytes_head(uint8_t *out, int32_t field, int64_t length) noexcept nogil:
    return put_varint(put_varint(out, <uint64_t> field << 3 | BYTES), <uint64_t> length)


cdef inline uint8_t *put_bytes(uint8_t *out, int32_t field, const uint8_t *data,
                               int64_t length) noexcept nogil:
    out = put_bytes_head(out, field, length)
    memcpy(out, data, length)
    return out + length
