"""The fields of a header in the order in which a signature covers them, by their names.

(RocketMQ: AclUtils.combineRequestContent.)
"""

from libc.string cimport memcmp

from congreve.base.slices cimport Slice

cdef const char *ACCESS_KEY = b"AccessKey"
cdef const char *SIGNATURE = b"Signature"


cdef inline bint is_named(Slice text, const char *name, int32_t length) noexcept nogil:
    return text.length == length and memcmp(text.data, name, length) == 0


cdef void sort_fields(const Header *header, SignedFields *signed) noexcept nogil:
    cdef int32_t i
    if signed.count != header.count:
        signed.count = header.count
        for i in range(header.count):
            signed.places[i] = <int8_t> i
    signed.distinct = sort_places(header, signed.places)
    signed.access_key = signed.signature = -1
    for i in range(header.count):
        if is_named(header.fields[i].key, ACCESS_KEY, 9):
            signed.access_key = <int8_t> i
        elif is_named(header.fields[i].key, SIGNATURE, 9):
            signed.signature = <int8_t> i


cdef bint sort_places(const Header *header, int8_t *places) noexcept nogil:
    """Sort the places by the names of their fields; False if two names are the same."""
    cdef Slice mine
    cdef Slice other
    cdef int32_t i, j
    cdef int8_t place
    cdef int compared
    for i in range(1, header.count):
        place = places[i]
        mine = header.fields[place].key
        j = i
        compared = -1
        while j > 0:
            other = header.fields[places[j - 1]].key
            compared = memcmp(other.data, mine.data, min(other.length, mine.length))
            if compared == 0:
                compared = other.length - mine.length
            if compared <= 0:
                break
            places[j] = places[j - 1]
            j -= 1
        places[j] = place
        if compared == 0:
            return False
    return True
