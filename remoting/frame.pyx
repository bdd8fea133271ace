"""Frames and headers in compiled code: splitting, decoding, and the answers of the hot codes.

The tables of what a header means stand in `command` and `headers`; here is only what is needed for
each message. Whatever is unusual (escapes that are wrong, nested values, null, numbers in another
form than Java's) is HEADER_SLOW or not `complete`, and Python decides.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport int16_t, uint32_t
from libc.string cimport memcmp, memset

from congreve.remoting.jsontext cimport (
    is_utf8,
    parse_int32,
    parse_integer,
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


# ---- splitting ----------------------------------------------------------------------------------

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


# ---- headers ------------------------------------------------------------------------------------

cdef HeaderStatus decode_header(const Frame *frame, Scratch *scratch,
                                Header *header) noexcept nogil:
    header.code = header.version = header.opaque = header.flag = header.count = 0
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
        return scan_string(at, end, scratch, &value)
    at = scan_value(at, end, scratch, &value)
    if at == NULL:
        return NULL
    if equals(key, b"code", 4):
        return at if bare and parse_int32(value, &header.code) else NULL
    if equals(key, b"version", 7):
        return at if bare and parse_int32(value, &header.version) else NULL
    if equals(key, b"opaque", 6):
        return at if bare and parse_int32(value, &header.opaque) else NULL
    if equals(key, b"flag", 4):
        return at if bare and parse_int32(value, &header.flag) else NULL
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
    header.version = load_i16(at + 3)
    header.opaque = load_i32(at + 5)
    header.flag = load_i32(at + 9)
    length = load_i32(at + 13)
    at += 17
    if length > 0:
        if length > end - at - 4:
            return HEADER_BAD
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


# ---- fields of the hot codes --------------------------------------------------------------------

cdef inline bint is_true(Slice value) noexcept nogil:
    return (value.length == 4 and value.data[0] | 0x20 == c"t" and value.data[1] | 0x20 == c"r"
            and value.data[2] | 0x20 == c"u" and value.data[3] | 0x20 == c"e")


cdef inline uint8_t short_name(Slice key) noexcept nogil:
    """The short name (4.1) of a long one; 0 for a field that a send does not have."""
    if key.length == 5:
        if memcmp(key.data, b"topic", 5) == 0:
            return c"b"
        return c"m" if memcmp(key.data, b"batch", 5) == 0 else 0
    if key.length == 7:
        if memcmp(key.data, b"queueId", 7) == 0:
            return c"e"
        return c"f" if memcmp(key.data, b"sysFlag", 7) == 0 else 0
    if key.length == 13:
        if memcmp(key.data, b"producerGroup", 13) == 0:
            return c"a"
        return c"g" if memcmp(key.data, b"bornTimestamp", 13) == 0 else 0
    if equals(key, b"flag", 4):
        return c"h"
    if equals(key, b"properties", 10):
        return c"i"
    if equals(key, b"defaultTopic", 12):
        return c"c"
    if equals(key, b"defaultTopicQueueNums", 21):
        return c"d"
    if equals(key, b"reconsumeTimes", 14):
        return c"j"
    return c"l" if equals(key, b"maxReconsumeTimes", 17) else 0


cdef void read_send_header(const Header *header, bint short_names,
                           SendHeader *send) noexcept nogil:
    cdef int32_t i
    cdef uint8_t name
    cdef Slice value
    cdef int32_t ignored
    cdef bint good = True
    cdef uint32_t seen = 0
    memset(send, 0, sizeof(SendHeader))
    for i in range(header.count):
        value = header.fields[i].value
        if not short_names:
            name = short_name(header.fields[i].key)
        else:
            name = header.fields[i].key.data[0] if header.fields[i].key.length == 1 else 0
        if name == c"a":
            send.producer_group = value
        elif name == c"b":
            send.topic = value
        elif name == c"c":
            send.default_topic = value
        elif name == c"d":
            good &= parse_int32(value, &send.default_topic_queues)
        elif name == c"e":
            good &= parse_int32(value, &send.queue_id)
        elif name == c"f":
            good &= parse_int32(value, &send.sys_flag)
        elif name == c"g":
            good &= parse_integer(value, &send.born_timestamp)
        elif name == c"h":
            good &= parse_int32(value, &send.flag)
        elif name == c"i":
            send.properties = value
        elif name == c"j":
            good &= parse_int32(value, &send.reconsume_times)
        elif name == c"l":
            good &= parse_int32(value, &ignored)
        elif name == c"m":
            send.batch = is_true(value)
        if c"a" <= name <= c"m":
            seen |= <uint32_t> 1 << (name - c"a")
    send.complete = good and (seen & 0xFF) == 0xFF


cdef enum PullField:
    PULL_GROUP = 1
    PULL_TOPIC = 2
    PULL_QUEUE_ID = 4
    PULL_QUEUE_OFFSET = 8
    PULL_MAX_COUNT = 16
    PULL_SYS_FLAG = 32
    PULL_COMMIT_OFFSET = 64
    PULL_SUSPEND = 128
    PULL_SUB_VERSION = 256
    PULL_REQUIRED = 511


cdef void read_pull_header(const Header *header, PullHeader *pull) noexcept nogil:
    cdef int32_t i
    cdef Slice key
    cdef Slice value
    cdef bint good = True
    cdef int32_t seen = 0
    memset(pull, 0, sizeof(PullHeader))
    for i in range(header.count):
        key = header.fields[i].key
        value = header.fields[i].value
        if equals(key, b"consumerGroup", 13):
            pull.consumer_group = value
            seen |= PULL_GROUP
        elif equals(key, b"topic", 5):
            pull.topic = value
            seen |= PULL_TOPIC
        elif equals(key, b"queueId", 7):
            good &= parse_int32(value, &pull.queue_id)
            seen |= PULL_QUEUE_ID
        elif equals(key, b"queueOffset", 11):
            good &= parse_integer(value, &pull.queue_offset)
            seen |= PULL_QUEUE_OFFSET
        elif equals(key, b"maxMsgNums", 10):
            good &= parse_int32(value, &pull.max_count)
            seen |= PULL_MAX_COUNT
        elif equals(key, b"sysFlag", 7):
            good &= parse_int32(value, &pull.sys_flag)
            seen |= PULL_SYS_FLAG
        elif equals(key, b"commitOffset", 12):
            good &= parse_integer(value, &pull.commit_offset)
            seen |= PULL_COMMIT_OFFSET
        elif equals(key, b"suspendTimeoutMillis", 20):
            good &= parse_integer(value, &pull.suspend_timeout_ms)
            seen |= PULL_SUSPEND
        elif equals(key, b"subVersion", 10):
            good &= parse_integer(value, &pull.sub_version)
            seen |= PULL_SUB_VERSION
        elif equals(key, b"subscription", 12):
            pull.subscription = value
        elif equals(key, b"expressionType", 14):
            pull.expression_type = value
    pull.complete = good and seen == PULL_REQUIRED


# ---- what Python sees ---------------------------------------------------------------------------

cdef str text_of(Slice text):
    return PyBytes_FromStringAndSize(<const char *> text.data, text.length).decode()


cdef object optional_text(Slice text):
    return None if text.data == NULL else text_of(text)


cdef tuple send_tuple(const SendHeader *send):
    return (text_of(send.producer_group), text_of(send.topic), text_of(send.default_topic),
            send.default_topic_queues, send.queue_id, send.sys_flag, send.born_timestamp,
            send.flag, optional_text(send.properties), send.reconsume_times, send.batch)


cdef tuple pull_tuple(const PullHeader *pull):
    return (text_of(pull.consumer_group), text_of(pull.topic), pull.queue_id, pull.queue_offset,
            pull.max_count, pull.sys_flag, pull.commit_offset, pull.suspend_timeout_ms,
            pull.sub_version, optional_text(pull.subscription),
            optional_text(pull.expression_type))


def split(const uint8_t[::1] data not None):
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


def decode(bytes data not None, int hot=0):
    cdef Frame frame
    cdef Header header
    cdef SendHeader send
    cdef PullHeader pull
    cdef Scratch scratch
    cdef HeaderStatus status
    if next_frame(data, len(data), &frame) != FRAME_WHOLE or frame.size != len(data):
        return None
    scratch.used = 0
    scratch.capacity = frame.header.length
    scratch.data = <uint8_t *> PyMem_Malloc(scratch.capacity)
    if scratch.data == NULL:
        raise MemoryError()
    try:
        status = decode_header(&frame, &scratch, &header)
        if status != HEADER_OK:
            return None
        if hot == 11:
            read_pull_header(&header, &pull)
            return pull_tuple(&pull) if pull.complete else None
        if hot:
            read_send_header(&header, hot != 10, &send)
            return send_tuple(&send) if send.complete else None
        fields = {
            text_of(header.fields[i].key): text_of(header.fields[i].value)
            for i in range(header.count)
        }
        return header.code, header.version, header.opaque, header.flag, fields
    finally:
        PyMem_Free(scratch.data)
