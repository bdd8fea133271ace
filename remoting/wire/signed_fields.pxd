from libc.stdint cimport int8_t, int32_t

from congreve.remoting.wire.frame cimport HEADER_FIELDS_MAX, Header

# The order in which a signature covers the fields of a header.
cdef struct SignedFields:
    int32_t count                       # fields of the header
    bint distinct                       # no two of them have the same name
    int8_t access_key                   # places in `header.fields`; -1: it has none
    int8_t signature
    int8_t places[HEADER_FIELDS_MAX]    # of all fields, by their names


# Fill `signed`. Its earlier content, of a header alike, makes the sorting quicker.
cdef void sort_fields(const Header *header, SignedFields *signed) noexcept nogil
