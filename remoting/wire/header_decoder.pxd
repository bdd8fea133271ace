from libc.stdint cimport int8_t, int32_t, uint8_t

from congreve.base.slices cimport Scratch, Slice
from congreve.remoting.wire.fast_headers cimport SEND_FIELDS, SendHeader
from congreve.remoting.wire.frame cimport HEADER_FIELDS_MAX, Frame, Header, HeaderStatus
from congreve.remoting.wire.signed_fields cimport SignedFields

cdef enum:
    SHAPE_MAX = 1024            # most bytes of a header that is remembered
    SHAPES = 64                 # remembered headers, by their length
    PIECES_MAX = 64             # of all strings with escapes in one header

# A run of literal characters, and the character of the escape after it.
cdef struct Piece:
    int32_t at
    int32_t length
    int32_t sign_length         # 0 after the last run
    uint8_t sign[4]

# A field of a remembered header, by its place in the text.
cdef struct ShapeField:
    int32_t key_at
    int32_t key_length
    int32_t value_at
    int32_t value_length        # raw, so with its escapes
    int32_t first_piece
    int32_t pieces              # 0: no escapes

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
    int32_t pieces_count
    bint is_send                # a send's header, complete: `send` tells where its fields are
    int8_t send[SEND_FIELDS]    # places in `fields`; -1: it has none
    SignedFields signed         # with `keeps_fields`
    ShapeField fields[HEADER_FIELDS_MAX]
    Piece pieces[PIECES_MAX]
    uint8_t text[SHAPE_MAX]
    uint8_t fixed[SHAPE_MAX]    # 0xFF: this byte must be the same; 0: any plain character


cdef class HeaderDecoder:
    cdef Scratch scratch
    cdef Shape *shapes
    cdef bint keeps_fields      # decode() also fills in `header.fields` of sends, and `signed`
    cdef const SignedFields *signed     # of the current header, valid until the next call
    cdef SignedFields unremembered      # of the last header without a shape
    cdef readonly long remembered
    """Number of JSON headers with a new layout, which were remembered."""

    # Like decode_header() of `frame`, and with a `send` also like read_send_header(), for the codes
    # of sends: then `header.fields` may be empty without `keeps_fields`. The slices are valid until
    # the next call.
    cdef HeaderStatus decode(self, const Frame *frame, Header *header,
                             SendHeader *send) noexcept nogil

    cdef void find_signed(self, const Header *header, Shape *shape) noexcept nogil
    cdef void send_as_before(self, const Shape *shape, Slice text, const Header *header,
                             SendHeader *send) noexcept nogil
    cdef void fields_as_before(self, const Shape *shape, Slice text,
                               Header *header) noexcept nogil
    cdef Slice value(self, const Shape *shape, const ShapeField *field, Slice text) noexcept nogil
    cdef bint read(self, bytes data, Header *header, SendHeader *send) except -1
