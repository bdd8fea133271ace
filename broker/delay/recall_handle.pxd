# The handle of a timed message as compiled code writes it; congreve.records.message.recall_handle
# is the same in Python.
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memchr, strlen

from congreve.base.slices cimport Slice
from congreve.records.layout cimport PROPERTY_SEPARATOR
from congreve.records.message.properties cimport UNIQ_KEY, is_property
from congreve.records.record cimport Message
from congreve.remoting.wire.byte_text cimport put, put_decimal

cdef enum:
    RECALL_ID_MAX = 128     # bytes of a message's id, beyond which its send gets no handle
    RECALL_FIXED_MAX = 32   # bytes of the version, the time and the blanks


# The bytes of a handle, at most.
cdef inline Py_ssize_t recall_handle_room(Py_ssize_t topic, Py_ssize_t broker) noexcept nogil:
    return ((topic + broker + RECALL_ID_MAX + RECALL_FIXED_MAX) // 3 + 1) * 4


# The value of UNIQ_KEY, of the last one if there are several; no data: the message has none.
cdef inline Slice unique_key(const Message *message) noexcept nogil:
    cdef const uint8_t *at = message.properties
    cdef const uint8_t *end = at + message.properties_length
    cdef const uint8_t *stop
    cdef Slice found
    found.data, found.length = NULL, 0
    while at < end:
        stop = <const uint8_t *> memchr(at, PROPERTY_SEPARATOR, end - at)
        if stop == NULL:
            stop = end
        if is_property(at, stop, UNIQ_KEY):
            found.data = at + strlen(UNIQ_KEY) + 1
            found.length = <int> (stop - found.data)
        at = stop + 1
    return found


# Writes `length` bytes in the alphabet of base64 for URLs; returns the end.
cdef inline uint8_t *put_base64(uint8_t *out, const uint8_t *data,
                                Py_ssize_t length) noexcept nogil:
    cdef const char *signs = (
        b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    )
    cdef Py_ssize_t at = 0
    cdef int bits
    while at + 2 < length:
        bits = data[at] << 16 | data[at + 1] << 8 | data[at + 2]
        out[0], out[1] = signs[bits >> 18], signs[bits >> 12 & 63]
        out[2], out[3] = signs[bits >> 6 & 63], signs[bits & 63]
        out += 4
        at += 3
    if at < length:
        bits = data[at] << 16
        if at + 1 < length:
            bits |= data[at + 1] << 8
        out[0], out[1] = signs[bits >> 18], signs[bits >> 12 & 63]
        out[2] = signs[bits >> 6 & 63] if at + 1 < length else c"="
        out[3] = c"="
        out += 4
    return out


# Writes the handle of a message of `topic` that is due at `due_ms`, by way of `text`; returns its
# length, 0 if the message's id is missing or too long.
cdef inline Py_ssize_t put_recall_handle(uint8_t *out, uint8_t *text, const Message *message,
                                         Slice broker, int64_t due_ms) noexcept nogil:
    cdef Slice message_id = unique_key(message)
    cdef uint8_t *at
    if not 0 < message_id.length <= RECALL_ID_MAX:
        return 0
    at = put(put(text, b"v1 ", 3), <const char *> message.topic, message.topic_length)
    at = put(put(at, b" ", 1), <const char *> broker.data, broker.length)
    # RocketMQ adds a millisecond.
    at = put(put_decimal(put(at, b" ", 1), due_ms + 1), b" ", 1)
    at = put(at, <const char *> message_id.data, message_id.length)
    return put_base64(out, text, at - text) - out
