"""Frames and their headers in compiled code.

`command` and `headers` define what a header means; this module decodes only what each message
needs. Unusual headers (wrong escapes, nested values, null, numbers in another form than Java's) are
HEADER_SLOW: Python decodes them.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int16_t, uint32_t
from libc.string cimport memcmp

from congreve.remoting.wire.json_text cimport (
    is_utf8,
    parse_int32,
    scan_number,
    scan_string,
    scan_word,
    skip_sign,
    skip_space,
)


cdef inline int32_t load_i16(const uint8_t *at) noexcept nogil:
    return <int16_t> (at[0] << 8 | at[1])


cdef inline int32_t load_i32(const uint8_t *at) noexcept nogil:
    return <int32_t> (<uint32_t> at[0] << 24 | at[1] << 16 | at[2] << 8 | at[3])


cdef inline bint equals(Slice text, const char *wanted, int32_t length) noexcept nogil:
    return text.length == length and memcmp(text.data, wanted, length) == 0


# --- splitting

cdef FrameStatus next_frame(const uint8_t *data, Py_ssize_t available,
                            Frame *frame) noexcept nogil:
    cdef int32_t total
    cdef int32_t header_length
    if available < 4:
        return FRAME_PARTIAL
    total = load_i32(data)
    if total < 4 or total > FRAME_MAX - 4:
        return FRAME_BAD
    if available < 8:
        return FRAME_PARTIAL
    header_length = data[5] << 16 | data[6] << 8 | data[7]
    if data[4] > 1 or header_length > total - 4:
        return FRAME_BAD
    if available - 4 < total:
        return FRAME_PARTIAL
    frame.data = data
    frame.size = total + 4
    frame.serialize_type = data[4]
    frame.header.data = data + 8
    frame.header.length = header_length
    frame.body.data = data + 8 + header_length
    frame.body.length = total - 4 - header_length
    return FRAME_WHOLE


# --- headers

cdef HeaderStatus decode_header(const Frame *frame, Scratch *scratch,
                                Header *header) noexcept nogil:
    header.code = header.version = header.opaque = header.flag = header.count = 0
    header.opaque_text.data = NULL
    header.language_number = -1
    header.language.length = 0
    header.remark.data = NULL
    if frame.serialize_type == 1:
        return decode_binary(frame.header, header)
    if scratch.capacity - scratch.used < frame.header.length:
        return HEADER_SLOW
    return decode_json(frame.header, scratch, header)


cdef HeaderStatus decode_json(Slice text, Scratch *scratch, Header *header) noexcept nogil:
    cdef const uint8_t *end = text.data + text.length
    cdef const uint8_t *at = skip_sign(text.data, end, c"{")
    cdef Slice key
    if at == NULL or at == end:
        return HEADER_SLOW
    if at[0] == c"}":
        at += 1
    else:
        while True:
            at = scan_string(at, end, scratch, &key)
            if at != NULL:
                at = skip_sign(at, end, c":")
            if at != NULL:
                at = decode_member(key, at, end, scratch, header)
            if at != NULL:
                at = skip_space(at, end)
            if at == NULL or at == end:
                return HEADER_SLOW
            if at[0] == c"}":
                at += 1
                break
            at = skip_sign(at, end, c",")
            if at == NULL:
                return HEADER_SLOW
    return HEADER_OK if skip_space(at, end) == end else HEADER_SLOW


cdef const uint8_t *decode_member(Slice key, const uint8_t *at, const uint8_t *end,
                                  Scratch *scratch, Header *header) noexcept nogil:
    """The value of one key of the header; NULL: for Python to decide."""
    cdef Slice value
    cdef bint bare = at < end and at[0] != c'"'
    if equals(key, b"extFields", 9):
        return decode_fields(at, end, scratch, header)
    if equals(key, b"remark", 6):
        return scan_string(at, end, scratch, &header.remark)
    at = scan_value(at, end, scratch, &value)
    if at == NULL:
        return NULL
    if equals(key, b"code", 4):
        return at if bare and parse_int32(value, &header.code) else NULL
    if equals(key, b"version", 7):
        return at if bare and parse_int32(value, &header.version) else NULL
    if equals(key, b"opaque", 6):
        header.opaque_text = value
        return at if bare and parse_int32(value, &header.opaque) else NULL
    if equals(key, b"flag", 4):
        return at if bare and parse_int32(value, &header.flag) else NULL
    if equals(key, b"language", 8):
        header.language = value
    return at


cdef const uint8_t *decode_fields(const uint8_t *at, const uint8_t *end, Scratch *scratch,
                                  Header *header) noexcept nogil:
    cdef int32_t count = 0
    cdef Field *field
    header.count = 0
    at = skip_sign(at, end, c"{")
    if at == NULL or at == end:
        return NULL
    if at[0] == c"}":
        return at + 1
    while True:
        if count == HEADER_FIELDS_MAX:
            return NULL
        field = &header.fields[count]
        at = scan_string(at, end, scratch, &field.key)
        if at != NULL:
            at = skip_sign(at, end, c":")
        if at != NULL:
            at = scan_value(at, end, scratch, &field.value)
        if at != NULL:
            at = skip_space(at, end)
        if at == NULL or at == end:
            return NULL
        count += 1
        if at[0] == c"}":
            header.count = count
            return at + 1
        at = skip_sign(at, end, c",")
        if at == NULL:
            return NULL


cdef inline const uint8_t *scan_value(const uint8_t *at, const uint8_t *end, Scratch *scratch,
                                      Slice *value) noexcept nogil:
    if at >= end:
        return NULL
    if at[0] == c'"':
        return scan_string(at, end, scratch, value)
    if at[0] == c"t":
        return scan_word(at, end, b"true", 4, value)
    if at[0] == c"f":
        return scan_word(at, end, b"false", 5, value)
    return scan_number(at, end, value)


cdef HeaderStatus decode_binary(Slice text, Header *header) noexcept nogil:
    cdef const uint8_t *at = text.data
    cdef const uint8_t *end = at + text.length
    cdef int32_t length
    cdef Field *field
    if text.length < 21:
        return HEADER_BAD
    header.code = load_i16(at)
    header.language_number = at[2]
    header.version = load_i16(at + 3)
    header.opaque = load_i32(at + 5)
    header.flag = load_i32(at + 9)
    length = load_i32(at + 13)
    at += 17
    if length > 0:
        if length > end - at - 4:
            return HEADER_BAD
        header.remark.data = at
        header.remark.length = length
        if not is_utf8(at, length):
            return HEADER_SLOW
        at += length
    length = load_i32(at)
    at += 4
    if length <= 0:
        return HEADER_OK
    if length > end - at:
        return HEADER_BAD
    end = at + length
    while at < end:
        if header.count == HEADER_FIELDS_MAX:
            return HEADER_SLOW
        field = &header.fields[header.count]
        if end - at < 2:
            return HEADER_BAD
        field.key.length = load_i16(at)
        field.key.data = at + 2
        at += 2
        if field.key.length < 0 or field.key.length > end - at - 4:
            return HEADER_BAD
        at += field.key.length
        field.value.length = load_i32(at)
        field.value.data = at + 4
        at += 4
        if field.value.length < 0 or field.value.length > end - at:
            return HEADER_BAD
        at += field.value.length
        if not (is_utf8(field.key.data, field.key.length)
                and is_utf8(field.value.data, field.value.length)):
            return HEADER_SLOW
        header.count += 1
    return HEADER_OK


# --- for Python callers

def split(const uint8_t[::1] data not None):
    """The whole frames at the head of `stream` (RocketMQ: NettyDecoder).

    Returns the frames, their bytes in total, and whether the following bytes are not a frame.
    """
    cdef Frame frame
    cdef FrameStatus status
    cdef Py_ssize_t at = 0
    cdef const uint8_t *start = &data[0] if len(data) else NULL
    frames = []
    while True:
        status = next_frame(start + at, len(data) - at, &frame)
        if status != FRAME_WHOLE:
            return frames, at, status == FRAME_BAD
        frames.append(PyBytes_FromStringAndSize(<const char *> frame.data, frame.size))
        at += frame.size
