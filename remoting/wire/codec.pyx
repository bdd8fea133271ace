"""A command's header between Python objects and bytes: the JSON form in both directions, the
binary form as it is read. `command` has the rest, and reads what is unusual."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int32_t, uint8_t
from libc.string cimport memcpy

from congreve.base.slices cimport Scratch, Slice
from congreve.remoting.wire.byte_text cimport put, put_decimal
from congreve.remoting.wire.frame cimport (
    FRAME_HEAD,
    FRAME_MAX,
    FRAME_WHOLE,
    HEADER_OK,
    Frame,
    Header,
    decode_header,
    next_frame,
    put_frame_head,
)
from congreve.remoting.wire.json_text cimport plain_run

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL

cdef enum:
    HEADER_SIZE_MAX = 256       # every byte of a JSON header but ext fields and remark
    FIELD_SIZE_MAX = 6          # quotes, colon, comma
    ESCAPE_SIZE_MAX = 6         # the longest escape of one byte
    STACK_SCRATCH = 4096    # bytes of a header that are unescaped without an allocation

cdef const char *HEX = b"0123456789abcdef"


# --- writing

cdef inline uint8_t *put_escape(uint8_t *out, uint8_t sign) noexcept nogil:
    out[0] = c"\\"
    if sign == c'"' or sign == c"\\":
        out[1] = sign
        return out + 2
    out = put(out + 1, b"u00", 3)
    out[0] = HEX[sign >> 4]
    out[1] = HEX[sign & 15]
    return out + 2


cdef inline uint8_t *put_string(uint8_t *out, const uint8_t *at, Py_ssize_t length) noexcept nogil:
    """Write the text in quotes; characters beyond ASCII stay UTF-8, as in the reference."""
    cdef const uint8_t *end = at + length
    cdef Py_ssize_t run
    out[0] = c'"'
    out += 1
    while True:
        run = plain_run(at, end)
        memcpy(out, at, run)
        out += run
        at += run
        if at == end:
            break
        if at[0] >= 0x80:
            out[0] = at[0]
            out += 1
        else:
            out = put_escape(out, at[0])
        at += 1
    out[0] = c'"'
    return out + 1


cdef inline uint8_t *put_text(uint8_t *out, str text) except NULL:
    cdef Py_ssize_t length
    cdef const char *data = PyUnicode_AsUTF8AndSize(text, &length)
    return put_string(out, <const uint8_t *> data, length)


cdef Py_ssize_t size_limit(dict fields, str remark) except -1:
    """Bytes that the header may take, at most."""
    cdef Py_ssize_t limit = HEADER_SIZE_MAX
    cdef Py_ssize_t length
    cdef str name
    cdef str value
    for name, value in fields.items():
        PyUnicode_AsUTF8AndSize(name, &length)
        limit += FIELD_SIZE_MAX + ESCAPE_SIZE_MAX * length
        PyUnicode_AsUTF8AndSize(value, &length)
        limit += ESCAPE_SIZE_MAX * length
    if remark is not None:
        PyUnicode_AsUTF8AndSize(remark, &length)
        limit += ESCAPE_SIZE_MAX * length
    return limit


cdef uint8_t *put_fields(uint8_t *out, dict fields) except NULL:
    cdef str name
    cdef str value
    cdef uint8_t separator = c"{"
    for name, value in fields.items():
        out[0] = separator
        out = put_text(out + 1, name)
        out[0] = c":"
        out = put_text(out + 1, value)
        separator = c","
    out[0] = c"}"
    return out + 1


cdef bytes make_frame(int32_t serialize_type, const uint8_t *header, Py_ssize_t header_length,
                      body):
    """A whole frame; None if it would be longer than a frame may be."""
    cdef const uint8_t[::1] payload = body
    cdef Py_ssize_t length = len(payload)
    cdef bytes frame
    cdef uint8_t *out
    if FRAME_HEAD + header_length + length > FRAME_MAX:
        return None
    frame = PyBytes_FromStringAndSize(NULL, FRAME_HEAD + header_length + length)
    out = put_frame_head(<uint8_t *> PyBytes_AS_STRING(frame), serialize_type,
                         <int32_t> header_length, <int32_t> length)
    memcpy(out, header, header_length)
    if length:
        memcpy(out + header_length, &payload[0], length)
    return frame


def encode_frame(int32_t serialize_type, bytes header not None, body not None):
    """A whole frame with this header; None if it would be longer than a frame may be."""
    return make_frame(serialize_type, <const uint8_t *> PyBytes_AS_STRING(header), len(header),
                      body)


def encode_json(int32_t code, str language not None, int32_t version, int32_t opaque, int32_t flag,
                str remark, dict fields not None, body not None):
    """A whole frame with a JSON header (RocketMQ: RemotingCommand.encode).

    Returns None if it would be longer than a frame may be. Raises TypeError if a field is no
    text.
    """
    cdef Py_ssize_t limit = size_limit(fields, remark)
    cdef uint8_t *start = <uint8_t *> PyMem_Malloc(limit)
    cdef uint8_t *out
    if start == NULL:
        raise MemoryError()
    try:
        out = put_decimal(put(start, b'{"code":', 8), code)
        if fields:
            out = put_fields(put(out, b',"extFields":', 13), fields)
        out = put_decimal(put(out, b',"flag":', 8), flag)
        out = put_text(put(out, b',"language":', 12), language)
        out = put_decimal(put(out, b',"opaque":', 10), opaque)
        if remark is not None:
            out = put_text(put(out, b',"remark":', 10), remark)
        out = put(out, b',"serializeTypeCurrentRPC":"JSON","version":', 44)
        out = put(put_decimal(out, version), b"}", 1)
        return make_frame(0, start, out - start, body)
    finally:
        PyMem_Free(start)


# --- reading

cdef inline str text_of(Slice text):
    return PyUnicode_DecodeUTF8(<const char *> text.data, text.length, NULL)


cdef tuple head_of(const Frame *frame, const Header *header):
    cdef int32_t i
    cdef dict fields = {}
    for i in range(header.count):
        fields[text_of(header.fields[i].key)] = text_of(header.fields[i].value)
    return (
        header.code,
        header.language_number if header.language_number >= 0 else text_of(header.language),
        header.version,
        header.opaque,
        header.flag,
        None if header.remark.data == NULL else text_of(header.remark),
        fields,
        PyBytes_FromStringAndSize(<const char *> frame.body.data, frame.body.length),
        frame.serialize_type,
    )


def decode(const uint8_t[::1] data not None):
    """Decode one whole frame (RocketMQ: RemotingCommand.decode).

    Returns code, language (a number of a binary header, a name of a JSON one), version, opaque,
    flag, remark, ext fields, body and serialize type; None where Python must decode it.
    """
    cdef Frame frame
    cdef Header header
    cdef Scratch scratch
    cdef uint8_t[STACK_SCRATCH] on_stack
    cdef Py_ssize_t size = len(data)
    if size == 0 or next_frame(&data[0], size, &frame) != FRAME_WHOLE or frame.size != size:
        return None
    scratch.used = 0
    scratch.capacity = frame.header.length
    scratch.data = on_stack
    if scratch.capacity > STACK_SCRATCH:
        scratch.data = <uint8_t *> PyMem_Malloc(scratch.capacity)
        if scratch.data == NULL:
            raise MemoryError()
    try:
        if decode_header(&frame, &scratch, &header) != HEADER_OK:
            return None
        return head_of(&frame, &header)
    finally:
        if scratch.data != on_stack:
            PyMem_Free(scratch.data)
