# Texts of calls: which of them are ordinary, and how frames and messages have them.
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport strlen

from congreve.base.slices cimport Slice
from congreve.records.byte_compare cimport is_text
from congreve.records.message.topics cimport SYSTEM_GROUP_PREFIX, SYSTEM_TOPIC_PREFIX
from congreve.remoting.wire.byte_text cimport put, put_decimal
from congreve.remoting.wire.frame cimport FRAME_HEAD, Header, put_frame_head
from congreve.remoting.wire.json_text cimport is_utf8
from congreve.remoting.wire.protobuf cimport (
    BYTES,
    VARINT,
    ProtoField,
    put_bytes,
    put_bytes_head,
    put_number,
    read_field,
    varint_size,
)

cdef enum:
    TOPIC_MAX = 127             # characters of a topic's name
    GROUP_MAX = 120
    REMARK_MAX = 1024           # bytes of a remark that a client gets

cdef extern from *:
    """
    static const int64_t congreve_seconds_max = 253402300799LL;
    """
    const int64_t SECONDS_MAX "congreve_seconds_max"    # of the year 9999


cdef inline bint is_plain(Slice text) noexcept nogil:
    """Whether it is UTF-8 without control characters."""
    cdef int32_t i
    cdef uint8_t byte
    for i in range(text.length):
        byte = text.data[i]
        if byte < 0x20 or byte == 0x7F:
            return False
        if byte == 0xC2 and i + 1 < text.length and text.data[i + 1] < 0xA0:
            return False
    return is_utf8(text.data, text.length)


cdef inline bint is_json(Slice text) noexcept nogil:
    """Whether JSON has the text as it is."""
    cdef int32_t i
    for i in range(text.length):
        if text.data[i] == c'"' or text.data[i] == c"\\":
            return False
    return is_plain(text)


cdef inline bint is_blank(Slice text) noexcept nogil:
    """Whether it may be only white space; a text that is not ASCII may be, too."""
    cdef int32_t i
    for i in range(text.length):
        if 0x20 < text.data[i] < 0x7F:
            return False
    return True


cdef inline bint is_name(Slice name, int32_t longest, const char *of_system) noexcept nogil:
    """Whether it is the name of an ordinary topic or group of a user."""
    cdef int32_t i
    cdef uint8_t sign
    if not 0 < name.length <= longest:
        return False
    for i in range(name.length):
        sign = name.data[i]
        if not (
            c"a" <= sign <= c"z" or c"A" <= sign <= c"Z" or c"0" <= sign <= c"9" or sign == c"-"
            or sign == c"_"
        ):
            return False
    i = <int32_t> strlen(of_system)
    return name.length < i or not is_text(name.data, i, of_system)


cdef inline bint is_topic(Slice name) noexcept nogil:
    return is_name(name, TOPIC_MAX, SYSTEM_TOPIC_PREFIX)


cdef inline bint is_group(Slice name) noexcept nogil:
    return is_name(name, GROUP_MAX, SYSTEM_GROUP_PREFIX)


cdef inline bint is_number(Slice text) noexcept nogil:
    """Whether it is a decimal number that 64 bits can have."""
    cdef int32_t i
    for i in range(text.length):
        if not c"0" <= text.data[i] <= c"9":
            return False
    return 0 < text.length <= 18


cdef inline int64_t natural(Slice digits) noexcept nogil:
    cdef int64_t found = 0
    cdef int32_t i
    for i in range(digits.length):
        found = found * 10 + digits.data[i] - c"0"
    return found


# --- messages

cdef inline bint read_name(Slice resource, Slice *name) noexcept nogil:
    """The name in a Resource."""
    cdef const uint8_t *at = resource.data
    cdef const uint8_t *end = at + resource.length
    cdef ProtoField field
    name.data, name.length = NULL, 0
    while at < end:
        at = read_field(at, end, &field)
        if at == NULL:
            return False
        if field.number == 2 and field.wire_type == BYTES:
            name[0] = field.bytes
    return name.length > 0


cdef inline bint read_time(Slice bytes, int64_t *ms) noexcept nogil:
    """A google.protobuf.Timestamp or Duration; False for one before 1970, or below 0."""
    cdef const uint8_t *at = bytes.data
    cdef const uint8_t *end = at + bytes.length
    cdef int64_t seconds = 0
    cdef int64_t nanos = 0
    cdef ProtoField field
    while at < end:
        at = read_field(at, end, &field)
        if at == NULL:
            return False
        if field.wire_type == VARINT and field.number == 1:
            seconds = <int64_t> field.value
        elif field.wire_type == VARINT and field.number == 2:
            nanos = <int64_t> field.value
    ms[0] = seconds * 1000 + nanos // 1_000_000
    return 0 <= seconds <= SECONDS_MAX and 0 <= nanos < 1_000_000_000


cdef inline int64_t status_size(int32_t code, Slice text) noexcept nogil:
    return 1 + varint_size(code) + (
        1 + varint_size(text.length) + text.length if text.length else 0
    )


# A Status of REMARK_MAX and 16 bytes at most.
cdef inline uint8_t *put_status(uint8_t *out, int32_t field, int32_t code,
                                Slice text) noexcept nogil:
    out = put_bytes_head(out, field, status_size(code, text))
    out = put_number(out, 1, code)
    return put_bytes(out, 2, text.data, text.length) if text.length else out


# --- frames

cdef inline uint8_t *put_text(uint8_t *out, Slice text) noexcept nogil:
    return put(out, <const char *> text.data, text.length)


cdef inline uint8_t *put_words(uint8_t *out, const char *words) noexcept nogil:
    return put(out, words, strlen(words))


# The value of an ext field; no data: there is none.
cdef inline Slice value_of(const Header *header, const char *name) noexcept nogil:
    cdef Slice found
    cdef int32_t i
    found.data, found.length = NULL, 0
    for i in range(header.count):
        if is_text(header.fields[i].key.data, header.fields[i].key.length, name):
            found = header.fields[i].value
    return found


# What a client reads of a remark; it does not end inside of a character.
cdef inline Slice remark_of(const Header *header) noexcept nogil:
    cdef Slice remark = header.remark
    if remark.data == NULL:
        remark.length = 0
    if remark.length > REMARK_MAX:
        remark.length = REMARK_MAX
        while remark.length and remark.data[remark.length] & 0xC0 == 0x80:
            remark.length -= 1
    return remark


# A request with a JSON header, because binary ones have no room for such codes: the caller writes
# the other fields between the two, each with a comma in front and its value in quotes.
cdef inline uint8_t *begin_json_request(uint8_t *out, int32_t code, Slice group,
                                        Slice topic) noexcept nogil:
    out = put_decimal(put_words(out + FRAME_HEAD, b'{"code":'), code)
    out = put_text(put_words(out, b',"extFields":{"consumerGroup":"'), group)
    out = put_text(put_words(out, b'","topic":"'), topic)
    return put_words(out, b'"')


cdef inline uint8_t *end_json_request(uint8_t *begin, uint8_t *out, int32_t opaque,
                                      Slice access_key) noexcept nogil:
    if access_key.length:
        out = put_words(put_text(put_words(out, b',"AccessKey":"'), access_key), b'"')
    out = put_decimal(put_words(out, b'},"flag":0,"language":"OTHER","opaque":'), opaque)
    out = put_words(out, b',"serializeTypeCurrentRPC":"JSON","version":401}')
    put_frame_head(begin, 0, <int32_t> (out - begin) - FRAME_HEAD, 0)
    return out


cdef inline uint8_t *put_json_number(uint8_t *out, const char *name_and_quotes,
                                     int64_t number) noexcept nogil:
    return put_words(put_decimal(put_words(out, name_and_quotes), number), b'"')
