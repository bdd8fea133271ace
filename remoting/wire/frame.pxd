from libc.stdint cimport int32_t, uint8_t

from congreve.base.slices cimport Scratch, Slice
from congreve.remoting.wire.byte_text cimport put_i32

# One frame, as it lies in a connection's bytes (all big endian):
#
#    0 total i32 (bytes after this field)   4 serializeType u8 (0 JSON, 1 binary)
#    5 headerLength u24   8 header   8 + headerLength body
#
# Binary header: 0 code i16  2 language u8  3 version i16  5 opaque i32  9 flag i32
#   13 remarkLength i32, remark  .. extLength i32, (i16 keyLength, key, i32 valueLength, value)*

cpdef enum:
    FRAME_MAX = 16777216        # bytes of the longest frame, with the length field

cdef enum:
    LENGTH_FIELD = 4
    FRAME_HEAD = 8              # the length field, the serialize type and the header's length
    HEADER_FIELDS_MAX = 48      # ext fields that decode_header() takes in; more: HEADER_SLOW
    FLAG_RESPONSE = 1
    FLAG_ONEWAY = 2

cdef enum FrameStatus:
    FRAME_WHOLE = 0
    FRAME_PARTIAL = 1           # more bytes are needed
    FRAME_BAD = 2               # the stream has no further frames

cdef enum HeaderStatus:
    HEADER_OK = 0
    HEADER_SLOW = 1             # not for compiled code: Python decodes it
    HEADER_BAD = 2              # cannot be a header

cdef struct Field:
    Slice key
    Slice value                 # unescaped text

cdef struct Frame:
    const uint8_t *data         # at the length field
    int32_t size                # of the whole frame, with the length field
    int32_t serialize_type
    Slice header
    Slice body

cdef struct Header:
    int32_t code
    int32_t version
    int32_t opaque
    int32_t flag
    Slice opaque_text           # as text of a JSON header; no data: absent
    # These three are set by decode_header() alone, not from a remembered header.
    int32_t language_number     # of a binary header; -1: `language` has the name
    Slice language
    Slice remark                # data is NULL if there is none
    int32_t count
    Field fields[HEADER_FIELDS_MAX]

# Looks at the first bytes of a stream: a whole frame, too few bytes, or no frame.
cdef FrameStatus next_frame(const uint8_t *data, Py_ssize_t available, Frame *frame) noexcept nogil

# Writes the FRAME_HEAD bytes before a frame's header; returns where they begin.
cdef inline uint8_t *put_frame_head(uint8_t *out, int32_t serialize_type, int32_t header_length,
                                    int32_t body_length) noexcept nogil:
    out = put_i32(out, FRAME_HEAD - LENGTH_FIELD + header_length + body_length)
    return put_i32(out, serialize_type << 24 | header_length)

# Head and ext fields of a frame, JSON or binary. Field slices point into the frame or the scratch.
cdef HeaderStatus decode_header(const Frame *frame, Scratch *scratch, Header *header) noexcept nogil
