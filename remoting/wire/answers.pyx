"""The responses to sends, pulls and pops, written as bytes (RocketMQ: SendMessageResponseHeader,
PullMessageResponseHeader and PopMessageResponseHeader in a RemotingCommand).

They name JAVA as their language: it is number 0, and the one name that every client accepts.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize

from congreve.base.slices cimport slice_of
from congreve.remoting.wire.byte_text cimport put, put_decimal, put_i16, put_i32
from congreve.remoting.wire.frame cimport FRAME_HEAD, put_frame_head

from congreve.remoting.wire.ext_fields import binary_fields, json_fields

cdef enum:
    VERSION = 401


cdef inline uint8_t *put_key(uint8_t *out, const char *key, int32_t length) noexcept nogil:
    """Write the key of a binary ext field; the caller fills in the length of its value."""
    return put(put_i16(out, length), key, length) + 4


cdef inline uint8_t *put_decimal_field(uint8_t *out, const char *key, int32_t length,
                                       int64_t value) noexcept nogil:
    cdef uint8_t *text = put_key(out, key, length)
    cdef uint8_t *end = put_decimal(text, value)
    put_i32(text - 4, <int32_t> (end - text))
    return end


cdef inline uint8_t *put_text_field(uint8_t *out, const char *key, int32_t length,
                                    Slice value) noexcept nogil:
    cdef uint8_t *text = put_key(out, key, length)
    put_i32(text - 4, value.length)
    return put(text, <const char *> value.data, value.length)


cdef inline uint8_t *begin_json(uint8_t *out, int32_t code) noexcept nogil:
    return put(put_decimal(put(out + FRAME_HEAD, b'{"code":', 8), code), b',"extFields":{', 14)


cdef inline uint8_t *end_json(uint8_t *out, int32_t opaque, Slice remark) noexcept nogil:
    """Write the rest of a header after its ext fields."""
    out = put(out, b',"flag":1,"language":"JAVA","opaque":', 37)
    out = put_decimal(out, opaque)
    if remark.length:
        out = put(put_plain(put(out, b',"remark":"', 11), remark), b'"', 1)
    return put(out, b',"serializeTypeCurrentRPC":"JSON","version":401}', 48)


cdef inline uint8_t *put_plain(uint8_t *out, Slice remark) noexcept nogil:
    cdef int32_t i
    cdef uint8_t sign
    for i in range(min(remark.length, <int32_t> PULL_REMARK_MAX)):
        sign = remark.data[i]
        if sign < 0x20 or sign >= 0x7F or sign == c'"' or sign == c"\\":
            sign = c"?"
        out[i] = sign
    return out + min(remark.length, <int32_t> PULL_REMARK_MAX)


cdef inline uint8_t *begin_binary(uint8_t *out, int32_t code, int32_t opaque,
                                  Slice remark) noexcept nogil:
    out = put_i16(out + FRAME_HEAD, code)
    out[0] = 0
    out = put_i32(put_i32(put_i16(out + 1, VERSION), opaque), 1)
    return put_plain(put_i32(out, min(remark.length, <int32_t> PULL_REMARK_MAX)), remark) + 4


cdef inline Py_ssize_t finish(uint8_t *out, uint8_t *end, int32_t serialize_type,
                              int32_t body_length) noexcept nogil:
    put_frame_head(out, serialize_type, <int32_t> (end - out) - FRAME_HEAD, body_length)
    return end - out


cdef Py_ssize_t encode_send_response(uint8_t *out, int32_t serialize_type, int32_t opaque,
                                     const char *message_id, int32_t message_id_length,
                                     int32_t queue_id, int64_t queue_offset,
                                     Slice more, Slice recall_handle) noexcept nogil:
    cdef uint8_t *at
    cdef uint8_t *fields
    cdef Slice remark
    remark.data = NULL
    remark.length = 0
    if serialize_type == 0:
        at = put(begin_json(out, 0), <const char *> more.data, more.length)
        if recall_handle.length:
            at = put(at, b'"recallHandle":"', 16)
            at = put(at, <const char *> recall_handle.data, recall_handle.length)
            at = put(at, b'",', 2)
        at = put(put(at, b'"msgId":"', 9), message_id, message_id_length)
        at = put_decimal(put(at, b'","queueId":"', 13), queue_id)
        at = put_decimal(put(at, b'","queueOffset":"', 17), queue_offset)
        return finish(out, end_json(put(at, b'"}', 2), opaque, remark), 0, 0)
    fields = begin_binary(out, 0, opaque, remark)
    at = put(fields, <const char *> more.data, more.length)
    if recall_handle.length:
        at = put_key(at, b"recallHandle", 12)
        put_i32(at - 4, recall_handle.length)
        at = put(at, <const char *> recall_handle.data, recall_handle.length)
    at = put_key(at, b"msgId", 5)
    put_i32(at - 4, message_id_length)
    at = put(at, message_id, message_id_length)
    at = put_decimal_field(at, b"queueId", 7, queue_id)
    at = put_decimal_field(at, b"queueOffset", 11, queue_offset)
    put_i32(fields - 4, <int32_t> (at - fields))
    return finish(out, at, 1, 0)


cdef Py_ssize_t encode_response(uint8_t *out, int32_t serialize_type, int32_t opaque,
                                int32_t code, Slice remark) noexcept nogil:
    cdef uint8_t *at
    if serialize_type == 0:
        at = put_decimal(put(out + FRAME_HEAD, b'{"code":', 8), code)
        return finish(out, end_json(at, opaque, remark), 0, 0)
    at = begin_binary(out, code, opaque, remark)
    put_i32(at - 4, 0)
    return finish(out, at, 1, 0)


cdef Py_ssize_t encode_pull_response(uint8_t *out, int32_t serialize_type, int32_t opaque,
                                     int32_t code, Slice remark, int64_t suggest_broker_id,
                                     int64_t next_offset, int64_t min_offset, int64_t max_offset,
                                     int32_t body_length) noexcept nogil:
    cdef uint8_t *at
    cdef uint8_t *fields
    if serialize_type == 0:
        at = put_decimal(put(begin_json(out, code), b'"maxOffset":"', 13), max_offset)
        at = put_decimal(put(at, b'","minOffset":"', 15), min_offset)
        at = put_decimal(put(at, b'","nextBeginOffset":"', 21), next_offset)
        at = put_decimal(put(at, b'","suggestWhichBrokerId":"', 26), suggest_broker_id)
        return finish(out, end_json(put(at, b'"}', 2), opaque, remark), 0, body_length)
    fields = begin_binary(out, code, opaque, remark)
    at = put_decimal_field(fields, b"maxOffset", 9, max_offset)
    at = put_decimal_field(at, b"minOffset", 9, min_offset)
    at = put_decimal_field(at, b"nextBeginOffset", 15, next_offset)
    at = put_decimal_field(at, b"suggestWhichBrokerId", 20, suggest_broker_id)
    put_i32(fields - 4, <int32_t> (at - fields))
    return finish(out, at, 1, body_length)


cdef Py_ssize_t encode_pop_response(uint8_t *out, int32_t serialize_type, int32_t opaque,
                                    int32_t code, Slice remark, int64_t pop_ms,
                                    int64_t invisible_ms, int64_t left,
                                    Slice start_offsets, Slice message_offsets,
                                    int32_t body_length) noexcept nogil:
    cdef uint8_t *at
    cdef uint8_t *fields
    cdef Slice none
    none.data, none.length = b"", 0
    if serialize_type == 0:
        at = put_decimal(put(begin_json(out, code), b'"popTime":"', 11), pop_ms)
        at = put_decimal(put(at, b'","invisibleTime":"', 19), invisible_ms)
        at = put_decimal(put(at, b'","reviveQid":"0","restNum":"', 29), left)
        at = put(at, b'","startOffsetInfo":"', 21)
        at = put(at, <const char *> start_offsets.data, start_offsets.length)
        at = put(at, b'","msgOffsetInfo":"', 19)
        at = put(at, <const char *> message_offsets.data, message_offsets.length)
        at = put(at, b'","orderCountInfo":""}', 22)
        return finish(out, end_json(at, opaque, remark), 0, body_length)
    fields = begin_binary(out, code, opaque, remark)
    at = put_decimal_field(fields, b"popTime", 7, pop_ms)
    at = put_decimal_field(at, b"invisibleTime", 13, invisible_ms)
    at = put_decimal_field(at, b"reviveQid", 9, 0)
    at = put_decimal_field(at, b"restNum", 7, left)
    at = put_text_field(at, b"startOffsetInfo", 15, start_offsets)
    at = put_text_field(at, b"msgOffsetInfo", 13, message_offsets)
    at = put_text_field(at, b"orderCountInfo", 14, none)
    put_i32(fields - 4, <int32_t> (at - fields))
    return finish(out, at, 1, body_length)


cdef Py_ssize_t encode_change_response(uint8_t *out, int32_t serialize_type, int32_t opaque,
                                       Slice remark, int64_t pop_ms, int64_t invisible_ms,
                                       int32_t revive_queue_id) noexcept nogil:
    cdef uint8_t *at
    cdef uint8_t *fields
    if serialize_type == 0:
        at = put_decimal(put(begin_json(out, 0), b'"popTime":"', 11), pop_ms)
        at = put_decimal(put(at, b'","invisibleTime":"', 19), invisible_ms)
        at = put_decimal(put(at, b'","reviveQid":"', 15), revive_queue_id)
        return finish(out, end_json(put(at, b'"}', 2), opaque, remark), 0, 0)
    fields = begin_binary(out, 0, opaque, remark)
    at = put_decimal_field(fields, b"popTime", 7, pop_ms)
    at = put_decimal_field(at, b"invisibleTime", 13, invisible_ms)
    at = put_decimal_field(at, b"reviveQid", 9, revive_queue_id)
    put_i32(fields - 4, <int32_t> (at - fields))
    return finish(out, at, 1, 0)


# --- for Python callers

def send_response_constants(dict fields not None):
    """Ext fields that every answer to a send has (MSG_REGION, TRACE_ON), as text for a JSON header
    and as bytes for a binary one.
    """
    cdef bytes text = json_fields(fields)
    return text[1:len(text) - 1] + b"," if fields else b"", binary_fields(fields)


def send_response(int32_t serialize_type, int32_t opaque, bytes message_id not None,
                  int32_t queue_id, int64_t queue_offset, bytes more not None,
                  bytes recall_handle=b""):
    """A whole frame (RocketMQ: SendMessageResponseHeader); `more` is that of
    send_response_constants() for this serialize type.
    """
    cdef bytes out = PyBytes_FromStringAndSize(
        NULL, SEND_RESPONSE_MAX + len(message_id) + len(more) + len(recall_handle)
    )
    cdef Py_ssize_t size = encode_send_response(
        <uint8_t *> <char *> out, serialize_type, opaque, message_id, <int32_t> len(message_id),
        queue_id, queue_offset, slice_of(more), slice_of(recall_handle),
    )
    return out[:size]


def pull_response(int32_t serialize_type, int32_t opaque, int32_t code, bytes remark not None,
                  int64_t suggest_broker_id, int64_t next_offset, int64_t min_offset,
                  int64_t max_offset, int32_t body_length):
    """Frame head and header (RocketMQ: PullMessageResponseHeader) in front of a body of
    `body_length` bytes.
    """
    cdef bytes out = PyBytes_FromStringAndSize(NULL, PULL_RESPONSE_MAX)
    cdef Py_ssize_t size = encode_pull_response(
        <uint8_t *> <char *> out, serialize_type, opaque, code, slice_of(remark),
        suggest_broker_id, next_offset, min_offset, max_offset, body_length,
    )
    return out[:size]
