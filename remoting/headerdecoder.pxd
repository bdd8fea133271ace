from libc.stdint cimport int32_t, uint8_t

from congreve.remoting.frame cimport HEADER_FIELDS_MAX, Frame, Header, HeaderStatus
from congreve.remoting.slices cimport Scratch, Slice

cdef enum:
    SHAPE_MAX = 1024            # bytes of a header that is remembered; longer ones are not
    SHAPES = 64                 # remembered headers, by their length

# A field of a remembered header, by its place in the text.
cdef struct ShapeField:
    int32_t key_at
    int32_t key_length
    int32_t value_at
    int32_t value_length        # raw, so with its escapes
    bint escaped

# A JSON header that was decoded before, and which of its bytes may differ in another header of
# the same length that is decoded alike: plain characters of string values, digits of the opaque.
cdef struct Shape:
    int32_t length              # 0: none yet
    int32_t code
    int32_t version
    int32_t flag
    int32_t opaque_at
    int32_t opaque_length
    int32_t count
    ShapeField fields[HEADER_FIELDS_MAX]
    uint8_t text[SHAPE_MAX]
    uint8_t fixed[SHAPE_MAX]    # 0xFF: this byte must be the same; 0: any plain character


cdef class HeaderDecoder:
    cdef Scratch scratch
    cdef Shape *shapes
    cdef readonly long remembered

    # As decode_header() of `frame`. The field slices hold until the next call.
    cdef HeaderStatus decode(self, const Frame *frame, Header *header) noexcept nogil

    cdef bint as_before(self, const Shape *shape, Slice text, Header *header) noexcept nogil
    cdef bint read(self, bytes data, Header *header) except -1
