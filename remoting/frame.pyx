"""Frames and their headers, without the GIL: what compiled code needs of the wire.

Only what clients really send is decoded here; everything odd but perhaps legal (nesting, escaped
names, wild numbers) is HEADER_SLOW, and `command.RemotingCommand.decode` has the last word on it.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t
from libc.string cimport memcmp, memcpy, strlen

import msgspec

cdef extern from "frame_scan.h" nogil:
    const uint8_t *scan_string_end(const uint8_t *at, const uint8_t *end)
    bint scan_high_bit(const uint8_t *at, const uint8_t *end)
    bint scan_utf8(const uint8_t *at, const uint8_t *end)

cdef enum:
    BINARY_TYPE = 1
    BINARY_FIXED = 21
    ANSWER_VERSION = 401


# ---- frames ------------------------------------------------------------------------------------

cdef inline int32_t load_i32(const uint8_t *at) noexcept nogil:
    return <int32_t> (
        (<unsigned int> at[0] << 24) | (<unsigned int> at[1] << 16)
        | (<unsigned int> at[2] << 8) | at[3]
    )


cdef inline int16_t load_i16(const uint8_t *at) noexcept nogil:
    return <int16_t> ((at[0] << 8) | at[1])


cdef inline uint8_t *store_i16(uint8_t *at, int32_t value) noexcept nogil:
    at[0] = <uint8_t> (value >> 8)
    at[1] = <uint8_t> value
    return at + 2


cdef inline uint8_t *store_i32(uint8_t *at, int32_t value) noexcept nogil:
    store_i16(at, value >> 16)
    return store_i16(at + 2, value)


cdef FrameStatus next_frame(const uint8_t *data, Py_ssize_t available, Frame *frame) noexcept nogil:
    cdef int32_t total, header
    if available < 4:
        return FRAME_PARTIAL
    total = load_i32(data)
    if total < 4 or total > FRAME_MAX - 4:
        return FRAME_BAD
    if available < 8:
        return FRAME_PARTIAL
    header = load_i32(data + 4) & 0xFFFFFF
    if header > total - 4 or data[4] > BINARY_TYPE:
        return FRAME_BAD
    if available < <Py_ssize_t> total + 4:
        return FRAME_PARTIAL
    frame.data = data
    frame.size = total + 4
    frame.serialize_type = data[4]
    frame.header.data = data + 8
    frame.header.length = header
    frame.body.data = data + 8 + header
    frame.body.length = total - 4 - header
    return FRAME_WHOLE


cdef HeaderStatus decode_header(const Frame *frame, Scratch *scratch, Header *header) noexcept nogil:
    header.code = header.version = header.opaque = header.flag = header.count = 0
    if frame.serialize_type == BINARY_TYPE:
        return decode_binary(frame, header)
    return decode_json(frame, scratch, header)


# ---- binary headers ----------------------------------------------------------------------------

cdef HeaderStatus decode_binary(const Frame *frame, Header *header) noexcept nogil:
    cdef const uint8_t *at = frame.header.data
    cdef const uint8_t *end = at + frame.header.length
    cdef int32_t length
    cdef Field *field
    if end - at < BINARY_FIXED:
        return HEADER_BAD
    header.code = load_i16(at)
    header.version = load_i16(at + 3)
    header.opaque = load_i32(at + 5)
    header.flag = load_i32(at + 9)
    length = load_i32(at + 13)
    at += 17
    if length < 0 or length > end - at - 4:
        return HEADER_BAD
    at += length
    length = load_i32(at)
    at += 4
    if length != end - at:
        return HEADER_SLOW
    while at < end:
        if header.count == HEADER_FIELDS_MAX:
            return HEADER_SLOW
        field = &header.fields[header.count]
        if end - at < 2:
            return HEADER_BAD
        field.key.length = load_i16(at)
        field.key.data = at + 2
        if field.key.length < 0 or field.key.length > end - at - 6:
            return HEADER_BAD
        at += 2 + field.key.length
        field.value.length = load_i32(at)
        field.value.data = at + 4
        if field.value.length < 0 or field.value.length > end - at - 4:
            return HEADER_BAD
        at += 4 + field.value.length
        header.count += 1
    if scan_high_bit(frame.header.data + BINARY_FIXED, end) and not values_are_utf8(header):
        return HEADER_SLOW
    return HEADER_OK


cdef bint values_are_utf8(const Header *header) noexcept nogil:
    cdef int32_t i
    cdef const Field *field
    for i in range(header.count):
        field = &header.fields[i]
        if not scan_utf8(field.value.data, field.value.data + field.value.length):
            return False
        if not scan_utf8(field.key.data, field.key.data + field.key.length):
            return False
    return True


# ---- JSON headers ------------------------------------------------------------------------------

cdef struct Cursor:
    const uint8_t *at
    const uint8_t *end


cdef inline bint take_byte(Cursor *cursor, uint8_t wanted) noexcept nogil:
    """Steps over white space and `wanted`; False when something else stands there."""
    while cursor.at < cursor.end and (
        cursor.at[0] == c" " or cursor.at[0] == c"\n" or cursor.at[0] == c"\r"
        or cursor.at[0] == c"\t"
    ):
        cursor.at += 1
    if cursor.at < cursor.end and cursor.at[0] == wanted:
        cursor.at += 1
        return True
    return False


cdef inline bint take_name(Cursor *cursor, Slice *name) noexcept nogil:
    """A string without escapes and the colon behind it."""
    if not take_byte(cursor, c'"'):
        return False
    name.data = cursor.at
    cursor.at = scan_string_end(cursor.at, cursor.end)
    if cursor.at == cursor.end or cursor.at[0] != c'"':
        return False
    name.length = <int32_t> (cursor.at - name.data)
    cursor.at += 1
    return take_byte(cursor, c":")


cdef bint take_value(Cursor *cursor, Scratch *scratch, Slice *value) noexcept nogil:
    """A string (unescaped) or the text of a number, true, false or null; null has no data."""
    cdef uint8_t c
    if take_byte(cursor, c'"'):
        value.data = cursor.at
        cursor.at = scan_string_end(cursor.at, cursor.end)
        if cursor.at == cursor.end:
            return False
        if cursor.at[0] == c"\\":
            return unescape(cursor, scratch, value)
        value.length = <int32_t> (cursor.at - value.data)
        cursor.at += 1
        return True
    value.data = cursor.at
    while cursor.at < cursor.end:
        c = cursor.at[0]
        if not (c"0" <= c <= c"9" or c"a" <= c <= c"z" or c == c"-"):
            break
        cursor.at += 1
    value.length = <int32_t> (cursor.at - value.data)
    return known_literal(value)


cdef bint known_literal(Slice *value) noexcept nogil:
    """Integers and the three words; fractions and exponents are left to Python."""
    cdef const uint8_t *at = value.data
    cdef int32_t digits = value.length
    cdef int32_t i
    if digits == 4 and memcmp(at, b"null", 4) == 0:
        value.data = NULL
        value.length = 0
        return True
    if (digits == 4 and memcmp(at, b"true", 4) == 0) or (
        digits == 5 and memcmp(at, b"false", 5) == 0
    ):
        return True
    if digits and at[0] == c"-":
        at += 1
        digits -= 1
    if digits == 0 or (digits > 1 and at[0] == c"0"):
        return False
    for i in range(digits):
        if not c"0" <= at[i] <= c"9":
            return False
    return True


cdef inline int32_t hex_digit(uint8_t c) noexcept nogil:
    if c"0" <= c <= c"9":
        return c - c"0"
    c = c | 0x20
    if c"a" <= c <= c"f":
        return c - c"a" + 10
    return -1


cdef inline int32_t take_unit(Cursor *cursor) noexcept nogil:
    """The four hex digits of a \\u escape, or -1."""
    cdef int32_t unit = 0
    cdef int32_t i, digit
    if cursor.end - cursor.at < 4:
        return -1
    for i in range(4):
        digit = hex_digit(cursor.at[i])
        if digit < 0:
            return -1
        unit = unit << 4 | digit
    cursor.at += 4
    return unit


cdef bint unescape(Cursor *cursor, Scratch *scratch, Slice *value) noexcept nogil:
    """Goes on behind the first backslash of the string that began at value.data."""
    cdef uint8_t *out = scratch.data + scratch.used
    cdef uint8_t *start = out
    cdef const uint8_t *plain = value.data
    cdef uint8_t c
    if cursor.end - value.data > scratch.capacity - scratch.used:
        return False
    while True:
        memcpy(out, plain, cursor.at - plain)
        out += cursor.at - plain
        if cursor.at == cursor.end:
            return False
        if cursor.at[0] == c'"':
            break
        if cursor.end - cursor.at < 2:
            return False
        c = cursor.at[1]
        cursor.at += 2
        if c == c"u":
            out = unescape_unit(cursor, out)
            if out == NULL:
                return False
        else:
            if c == c"n":
                c = c"\n"
            elif c == c"t":
                c = c"\t"
            elif c == c"r":
                c = c"\r"
            elif c == c"b":
                c = 8
            elif c == c"f":
                c = 12
            elif c != c'"' and c != c"\\" and c != c"/":
                return False
            out[0] = c
            out += 1
        plain = cursor.at
        cursor.at = scan_string_end(cursor.at, cursor.end)
    cursor.at += 1
    value.data = start
    value.length = <int32_t> (out - start)
    scratch.used += out - start
    return True


cdef uint8_t *unescape_unit(Cursor *cursor, uint8_t *out) noexcept nogil:
    """One \\u escape (or a surrogate pair of them) as UTF-8; NULL where it is none."""
    cdef int32_t point = take_unit(cursor)
    cdef int32_t low
    if point < 0 or 0xDC00 <= point <= 0xDFFF:
        return NULL
    if point < 0x80:
        out[0] = <uint8_t> point
        return out + 1
    if point < 0x800:
        out[0] = <uint8_t> (0xC0 | point >> 6)
        out[1] = <uint8_t> (0x80 | point & 0x3F)
        return out + 2
    if not 0xD800 <= point <= 0xDBFF:
        out[0] = <uint8_t> (0xE0 | point >> 12)
        out[1] = <uint8_t> (0x80 | point >> 6 & 0x3F)
        out[2] = <uint8_t> (0x80 | point & 0x3F)
        return out + 3
    if cursor.end - cursor.at < 2 or cursor.at[0] != c"\\" or cursor.at[1] != c"u":
        return NULL
    cursor.at += 2
    low = take_unit(cursor)
    if not 0xDC00 <= low <= 0xDFFF:
        return NULL
    point = 0x10000 + ((point - 0xD800) << 10) + (low - 0xDC00)
    out[0] = <uint8_t> (0xF0 | point >> 18)
    out[1] = <uint8_t> (0x80 | point >> 12 & 0x3F)
    out[2] = <uint8_t> (0x80 | point >> 6 & 0x3F)
    out[3] = <uint8_t> (0x80 | point & 0x3F)
    return out + 4


cdef inline bint named(const Slice *name, const char *wanted) noexcept nogil:
    # strlen of a literal is folded by the compiler.
    cdef size_t length = strlen(wanted)
    return <size_t> name.length == length and memcmp(name.data, wanted, length) == 0


cdef HeaderStatus decode_json(const Frame *frame, Scratch *scratch, Header *header) noexcept nogil:
    cdef Cursor cursor
    cdef Slice name, value
    cdef HeaderStatus status
    cdef bint counted = True
    cursor.at = frame.header.data
    cursor.end = cursor.at + frame.header.length
    if scan_high_bit(cursor.at, cursor.end) and not scan_utf8(cursor.at, cursor.end):
        return HEADER_SLOW
    if not take_byte(&cursor, c"{"):
        return HEADER_SLOW
    while True:
        if not take_name(&cursor, &name):
            return HEADER_SLOW
        if named(&name, b"extFields"):
            status = decode_fields(&cursor, scratch, header)
            if status != HEADER_OK:
                return status
        else:
            if not take_value(&cursor, scratch, &value):
                return HEADER_SLOW
            if named(&name, b"code"):
                counted = read_i32(&value, &header.code)
            elif named(&name, b"opaque"):
                counted = read_i32(&value, &header.opaque)
            elif named(&name, b"flag"):
                counted = read_i32(&value, &header.flag)
            elif named(&name, b"version"):
                counted = read_i32(&value, &header.version)
            if not counted:
                return HEADER_SLOW
        if take_byte(&cursor, c","):
            continue
        if not take_byte(&cursor, c"}"):
            return HEADER_SLOW
        # Nothing but white space may follow: no byte equals 0 in JSON text, so this only skips.
        take_byte(&cursor, 0)
        return HEADER_OK if cursor.at == cursor.end else HEADER_SLOW


cdef HeaderStatus decode_fields(Cursor *cursor, Scratch *scratch, Header *header) noexcept nogil:
    """The object behind "extFields"; a second one, or null for it, is left to Python."""
    cdef Field *field
    if header.count or not take_byte(cursor, c"{"):
        return HEADER_SLOW
    if take_byte(cursor, c"}"):
        return HEADER_OK
    while True:
        if header.count == HEADER_FIELDS_MAX:
            return HEADER_SLOW
        field = &header.fields[header.count]
        if not take_name(cursor, &field.key) or not take_value(cursor, scratch, &field.value):
            return HEADER_SLOW
        if field.value.data != NULL:
            header.count += 1
        if take_byte(cursor, c","):
            continue
        return HEADER_OK if take_byte(cursor, c"}") else HEADER_SLOW


# ---- typed headers -----------------------------------------------------------------------------

cdef bint read_i64(const Slice *text, int64_t *value) noexcept nogil:
    """Decimal text; False when it is none or does not fit."""
    cdef const uint8_t *at = text.data
    cdef int32_t digits = text.length
    cdef bint negative = digits > 0 and at[0] == c"-"
    cdef unsigned long long number = 0
    cdef int32_t i
    if negative:
        at += 1
        digits -= 1
    if not 0 < digits <= 19:
        return False
    for i in range(digits):
        if not c"0" <= at[i] <= c"9":
            return False
        number = number * 10 + (at[i] - c"0")
    if number > <unsigned long long> 0x7FFFFFFFFFFFFFFF:
        return False
    value[0] = -<int64_t> number if negative else <int64_t> number
    return True


cdef bint read_i32(const Slice *text, int32_t *value) noexcept nogil:
    cdef int64_t number = 0
    if not read_i64(text, &number) or not -2147483648 <= number <= 2147483647:
        return False
    value[0] = <int32_t> number
    return True


cdef inline bint is_true(const Slice *text) noexcept nogil:
    return (
        text.length == 4 and text.data[0] | 0x20 == c"t" and text.data[1] | 0x20 == c"r"
        and text.data[2] | 0x20 == c"u" and text.data[3] | 0x20 == c"e"
    )


cdef uint8_t short_name(const Slice *name) noexcept nogil:
    """The one-letter name of SEND_MESSAGE_V2 for a long name of SEND_MESSAGE; 0 for others."""
    if named(name, b"producerGroup"):
        return c"a"
    if named(name, b"topic"):
        return c"b"
    if named(name, b"defaultTopic"):
        return c"c"
    if named(name, b"defaultTopicQueueNums"):
        return c"d"
    if named(name, b"queueId"):
        return c"e"
    if named(name, b"sysFlag"):
        return c"f"
    if named(name, b"bornTimestamp"):
        return c"g"
    if named(name, b"flag"):
        return c"h"
    if named(name, b"properties"):
        return c"i"
    if named(name, b"reconsumeTimes"):
        return c"j"
    if named(name, b"batch"):
        return c"m"
    return 0


cdef void read_send_header(const Header *header, bint short_names, SendHeader *send) noexcept nogil:
    cdef const Slice *value
    cdef uint8_t name
    cdef bint good = True
    cdef uint8_t required = 0
    cdef int32_t i
    send.properties.data = NULL
    send.properties.length = 0
    send.reconsume_times = 0
    send.batch = False
    for i in range(header.count):
        value = &header.fields[i].value
        if not short_names:
            name = short_name(&header.fields[i].key)
        elif header.fields[i].key.length == 1:
            name = header.fields[i].key.data[0]
        else:
            name = 0
        if c"a" <= name <= c"h":
            required += 1
        if name == c"a":
            send.producer_group = value[0]
        elif name == c"b":
            send.topic = value[0]
        elif name == c"c":
            send.default_topic = value[0]
        elif name == c"d":
            good &= read_i32(value, &send.default_topic_queues)
        elif name == c"e":
            good &= read_i32(value, &send.queue_id)
        elif name == c"f":
            good &= read_i32(value, &send.sys_flag)
        elif name == c"g":
            good &= read_i64(value, &send.born_timestamp)
        elif name == c"h":
            good &= read_i32(value, &send.flag)
        elif name == c"i":
            send.properties = value[0]
        elif name == c"j":
            good &= read_i32(value, &send.reconsume_times)
        elif name == c"m":
            send.batch = is_true(value)
    # A name that stands twice would count twice: eight required ones, each once, or Python decides.
    send.complete = good and required == 8


cdef void read_pull_header(const Header *header, PullHeader *pull) noexcept nogil:
    cdef const Slice *name
    cdef const Slice *value
    cdef bint good = True
    cdef int32_t required = 0
    cdef int32_t i
    pull.subscription.data = NULL
    pull.subscription.length = 0
    pull.expression_type = pull.subscription
    for i in range(header.count):
        name = &header.fields[i].key
        value = &header.fields[i].value
        required += 1
        if named(name, b"consumerGroup"):
            pull.consumer_group = value[0]
        elif named(name, b"topic"):
            pull.topic = value[0]
        elif named(name, b"queueId"):
            good &= read_i32(value, &pull.queue_id)
        elif named(name, b"queueOffset"):
            good &= read_i64(value, &pull.queue_offset)
        elif named(name, b"maxMsgNums"):
            good &= read_i32(value, &pull.max_count)
        elif named(name, b"sysFlag"):
            good &= read_i32(value, &pull.sys_flag)
        elif named(name, b"commitOffset"):
            good &= read_i64(value, &pull.commit_offset)
        elif named(name, b"suspendTimeoutMillis"):
            good &= read_i64(value, &pull.suspend_timeout_ms)
        elif named(name, b"subVersion"):
            good &= read_i64(value, &pull.sub_version)
        else:
            required -= 1
            if named(name, b"subscription"):
                pull.subscription = value[0]
            elif named(name, b"expressionType"):
                pull.expression_type = value[0]
    pull.complete = good and required == 9


# ---- answers -----------------------------------------------------------------------------------

cdef inline uint8_t *put(uint8_t *at, const void *text, Py_ssize_t length) noexcept nogil:
    memcpy(at, text, length)
    return at + length


cdef inline uint8_t *put_text(uint8_t *at, const char *text) noexcept nogil:
    return put(at, text, strlen(text))


cdef uint8_t *put_number(uint8_t *at, int64_t value) noexcept nogil:
    """Decimal text."""
    cdef uint8_t digits[20]
    cdef int32_t i = 20
    cdef unsigned long long rest = <unsigned long long> value
    if value < 0:
        at[0] = c"-"
        at += 1
        rest = 0 - rest
    while True:
        i -= 1
        digits[i] = <uint8_t> (c"0" + rest % 10)
        rest //= 10
        if rest == 0:
            return put(at, &digits[i], 20 - i)


cdef inline uint8_t *put_field(uint8_t *at, const char *name, const void *value,
                               int32_t value_length) noexcept nogil:
    """One ext field of a binary header."""
    at = store_i16(at, <int32_t> strlen(name))
    at = put_text(at, name)
    at = store_i32(at, value_length)
    return put(at, value, value_length)


cdef inline uint8_t *put_number_field(uint8_t *at, const char *name,
                                      int64_t value) noexcept nogil:
    cdef uint8_t text[20]
    cdef int32_t length = <int32_t> (put_number(text, value) - text)
    return put_field(at, name, text, length)


cdef uint8_t *begin_binary(uint8_t *out, int32_t code, int32_t opaque, Slice remark) noexcept nogil:
    """Everything of a binary response up to the ext block's length; returns where that stands."""
    cdef uint8_t *at = out + 8
    at = store_i16(at, code)
    at[0] = 0
    at = store_i16(at + 1, ANSWER_VERSION)
    at = store_i32(at, opaque)
    at = store_i32(at, FLAG_RESPONSE)
    at = store_i32(at, remark.length)
    return put(at, remark.data, remark.length)


cdef Py_ssize_t end_frame(uint8_t *out, int32_t serialize_type, uint8_t *end,
                          int32_t body_length) noexcept nogil:
    """Fill in both lengths; returns the bytes from `out` to the end of the header."""
    cdef int32_t header = <int32_t> (end - out) - 8
    store_i32(out, 4 + header + body_length)
    store_i32(out + 4, serialize_type << 24 | header)
    return end - out


cdef uint8_t *begin_json(uint8_t *out, int32_t code) noexcept nogil:
    cdef uint8_t *at = put_text(out + 8, b'{"code":')
    return put_number(at, code)


cdef uint8_t *end_json(uint8_t *at, int32_t opaque, Slice remark) noexcept nogil:
    """From behind the ext fields to the closing brace; the remark needs no escapes."""
    at = put_text(at, b'},"flag":1,"language":"JAVA","opaque":')
    at = put_number(at, opaque)
    if remark.length:
        at = put_text(at, b',"remark":"')
        at = put(at, remark.data, remark.length)
        at = put_text(at, b'"')
    at = put_text(at, b',"serializeTypeCurrentRPC":"JSON","version":')
    at = put_number(at, ANSWER_VERSION)
    return put_text(at, b"}")


cdef Py_ssize_t encode_send_response(uint8_t *out, int32_t serialize_type, int32_t opaque,
                                     const char *message_id, int32_t message_id_length,
                                     int32_t queue_id, int64_t queue_offset,
                                     Slice more) noexcept nogil:
    cdef Slice no_remark
    cdef uint8_t *at
    cdef uint8_t *ext
    no_remark.data = NULL
    no_remark.length = 0
    if serialize_type == BINARY_TYPE:
        ext = begin_binary(out, 0, opaque, no_remark)
        at = put(ext + 4, more.data, more.length)
        at = put_field(at, b"msgId", message_id, message_id_length)
        at = put_number_field(at, b"queueId", queue_id)
        at = put_number_field(at, b"queueOffset", queue_offset)
        store_i32(ext, <int32_t> (at - ext) - 4)
        return end_frame(out, serialize_type, at, 0)
    at = begin_json(out, 0)
    at = put_text(at, b',"extFields":{')
    at = put(at, more.data, more.length)
    at = put_text(at, b'"msgId":"')
    at = put(at, message_id, message_id_length)
    at = put_text(at, b'","queueId":"')
    at = put_number(at, queue_id)
    at = put_text(at, b'","queueOffset":"')
    at = put_number(at, queue_offset)
    at = put_text(at, b'"')
    at = end_json(at, opaque, no_remark)
    return end_frame(out, serialize_type, at, 0)


cdef Py_ssize_t encode_pull_response(uint8_t *out, int32_t serialize_type, int32_t opaque,
                                     int32_t code, Slice remark, int64_t suggest_broker_id,
                                     int64_t next_offset, int64_t min_offset, int64_t max_offset,
                                     int32_t body_length) noexcept nogil:
    cdef uint8_t *at
    cdef uint8_t *ext
    if serialize_type == BINARY_TYPE:
        ext = begin_binary(out, code, opaque, remark)
        at = put_number_field(ext + 4, b"suggestWhichBrokerId", suggest_broker_id)
        at = put_number_field(at, b"nextBeginOffset", next_offset)
        at = put_number_field(at, b"minOffset", min_offset)
        at = put_number_field(at, b"maxOffset", max_offset)
        store_i32(ext, <int32_t> (at - ext) - 4)
        return end_frame(out, serialize_type, at, body_length)
    at = begin_json(out, code)
    at = put_text(at, b',"extFields":{"suggestWhichBrokerId":"')
    at = put_number(at, suggest_broker_id)
    at = put_text(at, b'","nextBeginOffset":"')
    at = put_number(at, next_offset)
    at = put_text(at, b'","minOffset":"')
    at = put_number(at, min_offset)
    at = put_text(at, b'","maxOffset":"')
    at = put_number(at, max_offset)
    at = put_text(at, b'"')
    at = end_json(at, opaque, remark)
    return end_frame(out, serialize_type, at, body_length)


def send_response_constants(dict fields):
    cdef uint8_t buffer[512]
    cdef uint8_t *at = buffer
    text = b"".join(
        msgspec.json.encode(name) + b":" + msgspec.json.encode(value) + b","
        for name, value in fields.items()
    )
    if len(text) > 400:
        raise ValueError(f"the constant fields of a send response are too long: {fields}")
    for name, value in fields.items():
        key, content = name.encode(), value.encode()
        at = put_field(at, key, <const char *> content, <int32_t> len(content))
    return text, buffer[:at - buffer]


def split_frame(const uint8_t[::1] data):
    cdef Frame frame
    cdef FrameStatus status = next_frame(&data[0] if data.shape[0] else NULL, data.shape[0], &frame)
    return None if status == FRAME_PARTIAL else -1 if status == FRAME_BAD else frame.size


def decode_compiled(const uint8_t[::1] data):
    cdef Frame frame
    cdef Header header
    cdef Scratch scratch
    cdef bytearray room = bytearray(data.shape[0] + 1)
    scratch.data = room
    scratch.capacity = data.shape[0]
    scratch.used = 0
    if next_frame(&data[0], data.shape[0], &frame) != FRAME_WHOLE:
        raise ValueError("not a whole frame")
    if decode_header(&frame, &scratch, &header) != HEADER_OK:
        return None
    return (header.code, header.version, header.opaque, header.flag,
            [(text(&header.fields[i].key), text(&header.fields[i].value))
             for i in range(header.count)])


cdef str text(const Slice *slice):
    return slice.data[:slice.length].decode()
