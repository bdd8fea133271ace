"""Runs of equal values and bit-packed groups of eight: Parquet's encoding RLE."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

cdef enum:
    GROUP = 8               # bit-packed values come in groups
    HEADER = 10             # the most bytes of a variable-length number
    WORD = 4                # bytes that the packing stores at once


cdef int64_t room_of_indexes(int64_t count, int32_t width) noexcept nogil:
    return (count // GROUP + 1) * (width + HEADER + 2) + HEADER + WORD


cdef inline uint8_t *put_varint(uint8_t *at, uint64_t number) noexcept nogil:
    while number >= 0x80:
        at[0] = <uint8_t> (number | 0x80)
        number >>= 7
        at += 1
    at[0] = <uint8_t> number
    return at + 1


cdef uint8_t *put_run(uint8_t *at, int64_t count, int32_t value, int32_t width) noexcept nogil:
    at = put_varint(at, <uint64_t> count << 1)
    at[0] = <uint8_t> value
    if width <= 8:
        return at + 1
    at[1] = <uint8_t> (value >> 8)
    return at + 2


cdef uint8_t *put_groups_header(uint8_t *at, int64_t groups) noexcept nogil:
    return put_varint(at, <uint64_t> groups << 1 | 1)


cdef inline int64_t run_at(const uint16_t *indexes, int64_t begin, int64_t count) noexcept nogil:
    cdef int64_t end = begin + 1
    while end < count and indexes[end] == indexes[begin]:
        end += 1
    return end - begin


cdef inline bint has_run(const uint16_t *indexes, int64_t begin, int64_t count) noexcept nogil:
    """True if a whole group has one value."""
    cdef int64_t i
    if begin + GROUP > count:
        return False
    for i in range(begin + 1, begin + GROUP):
        if indexes[i] != indexes[begin]:
            return False
    return True


cdef uint8_t *put_packed(uint8_t *at, const uint16_t *indexes, int64_t count,
                         int32_t width) noexcept nogil:
    """Groups of eight, the last one filled up with zeros."""
    cdef uint8_t *end = at + (count + GROUP - 1) // GROUP * width
    cdef uint64_t bits = 0
    cdef int32_t held = 0
    cdef uint32_t word
    cdef int64_t i
    for i in range(count):
        bits |= <uint64_t> indexes[i] << held
        held += width
        if held >= 8 * WORD:
            word = <uint32_t> bits
            memcpy(at, &word, WORD)
            at += WORD
            bits >>= 8 * WORD
            held -= 8 * WORD
    while at < end:
        at[0] = <uint8_t> bits
        bits >>= 8
        at += 1
    return end


cdef uint8_t *put_indexes(uint8_t *at, const uint16_t *indexes, int64_t count,
                          int32_t width) noexcept nogil:
    cdef int64_t begin = 0
    cdef int64_t end, run
    while begin < count:
        if has_run(indexes, begin, count):
            run = run_at(indexes, begin, count)
            at = put_run(at, run, indexes[begin], width)
            begin += run
            continue
        end = begin + GROUP
        while end < count and not has_run(indexes, end, count):
            end += GROUP
        end = min(end, count)
        at = put_groups_header(at, (end - begin + GROUP - 1) // GROUP)
        at = put_packed(at, indexes + begin, end - begin, width)
        begin = end
    return at
