"""SendMessage in compiled code: an ordinary message becomes a frame of SEND_MESSAGE_V2, and the
frame that answers becomes a SendMessageResponse.

`broker/grpc/send.py` has all rules; what is not ordinary goes there.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from congreve.base.byte_buffer cimport make_room, release
from congreve.base.slices cimport Scratch, slice_of
from congreve.broker.grpc.codes cimport OK, code_of
from congreve.records.byte_compare cimport is_text
from congreve.records.layout cimport NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR
from congreve.records.message.properties cimport (
    BORN_HOST,
    BORN_TIMESTAMP,
    KEYS,
    PRODUCER_GROUP,
    TAGS,
    TRACE_CONTEXT,
    UNIQ_KEY,
    put_name,
    put_next_name,
)
from congreve.remoting.lanes.http2 cimport NOTE_MAX, CallField
from congreve.remoting.wire.byte_text cimport put, put_decimal, put_i16, put_i32
from congreve.remoting.wire.fast_headers cimport SEND_MESSAGE_V2
from congreve.remoting.wire.frame cimport FRAME_HEAD, FRAME_WHOLE, next_frame, put_frame_head
from congreve.remoting.wire.frame cimport HEADER_OK, decode_header
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
    USER_PROPERTIES_MAX = 128
    PROPERTIES_MAX = 16 * 1024  # bytes of user properties, tag and keys
    FRAME_MORE = 1024           # bytes of a frame beside those of the message, and of the topic
    REMARK_MAX = 1024           # bytes of a remark that a client gets
    ANSWER_MORE = 256
    VERSION = 401
    LANGUAGE_OTHER = 7
    COMPRESSED = 1              # of sysFlag
    # Numbers of definition.proto.
    NORMAL = 1
    IDENTITY = 1
    GZIP = 2


cdef int64_t LAST_SECOND = <int64_t> 253402300799     # of the year 9999


cdef bint is_plain(Slice text) noexcept nogil:
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


cdef bint is_blank(Slice text) noexcept nogil:
    """Whether it may be only white space; a text that is not ASCII may be, too."""
    cdef int32_t i
    for i in range(text.length):
        if 0x20 < text.data[i] < 0x7F:
            return False
    return True


cdef bint is_topic(Slice name) noexcept nogil:
    """Whether it is the name of an ordinary topic of a user."""
    cdef int32_t i
    cdef uint8_t sign
    if not 0 < name.length <= TOPIC_MAX:
        return False
    for i in range(name.length):
        sign = name.data[i]
        if not (
            c"a" <= sign <= c"z" or c"A" <= sign <= c"Z" or c"0" <= sign <= c"9" or sign == c"-"
            or sign == c"_"
        ):
            return False
    return True


cdef inline uint64_t hash_of(Slice name) noexcept nogil:
    """Equal for equal names."""
    cdef uint64_t found = <uint64_t> name.length
    cdef int32_t i
    for i in range(name.length):
        found = found * 31 + name.data[i]
    return found % (64 * RESERVED_WORDS)


cdef inline uint8_t *put_text(uint8_t *out, Slice text) noexcept nogil:
    return put(out, <const char *> text.data, text.length)


cdef inline uint8_t *put_field(uint8_t *out, const char *name, Slice value) noexcept nogil:
    """An ext field with a short name, of a binary header."""
    out = put_i16(out, 1)
    out[0] = <uint8_t> name[0]
    return put_text(put_i32(out + 1, value.length), value)


cdef inline uint8_t *put_constant(uint8_t *out, const char *name, const char *text,
                                  int32_t length) noexcept nogil:
    cdef Slice value
    value.data, value.length = <const uint8_t *> text, length
    return put_field(out, name, value)


cdef inline uint8_t *put_number_field(uint8_t *out, const char *name,
                                      int64_t number) noexcept nogil:
    cdef uint8_t[20] digits
    cdef Slice value
    value.data = digits
    value.length = <int32_t> (put_decimal(digits, number) - digits)
    return put_field(out, name, value)


cdef bint read_time(Slice bytes, int64_t *ms) noexcept nogil:
    """A google.protobuf.Timestamp; False for a time before 1970."""
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
    return 0 <= seconds <= LAST_SECOND and 0 <= nanos < 1_000_000_000


@cython.final
cdef class GrpcCodec(CallCodec):
    """Sends of gRPC clients (RocketMQ 5: SendMessageActivity, GrpcValidator).

    `reserved` are the names of properties and topics that need the rules in Python, as larger
    bodies than `max_body_size` bytes do. The topic `template` is that of topics which a first
    message creates. `accounts` is None without access control.
    """

    def __init__(self, reserved not None, *, str template not None, int64_t max_body_size,
                 CallAccounts accounts=None):
        cdef uint64_t hashed
        self.template_bytes = template.encode()
        self.template = slice_of(self.template_bytes)
        self.max_body_size = max_body_size
        self.accounts = accounts
        for name in reserved:
            encoded = name.encode()
            hashed = hash_of(slice_of(encoded))
            self.reserved[hashed // 64] |= <uint64_t> 1 << hashed % 64

    cdef bint is_reserved(self, Slice name) noexcept nogil:
        """Whether it is one of the reserved names, or, seldom, another one."""
        cdef uint64_t hashed = hash_of(name)
        return self.reserved[hashed // 64] >> hashed % 64 & 1

    # --- from a call to a frame

    cdef bint read(self, Call *call, ByteBuffer *frames) noexcept nogil:
        cdef SentMessage message
        cdef uint8_t *out
        cdef Slice path = call.fields[<int> CallField.PATH]
        if not is_text(path.data, path.length,
                       b"/apache.rocketmq.v2.MessagingService/SendMessage"):
            return False
        if not call.fields[<int> CallField.CLIENT_ID].length:
            return False
        if not self.read_request(call.message, &message) or message.id.length > NOTE_MAX:
            return False
        message.access_key.length = 0
        if self.accounts is not None and not self.accounts.admit_producer(
            call, message.topic, &message.access_key
        ):
            return False
        if not make_room(
            frames, frames.used + call.message.length + 2 * message.topic.length
            + message.access_key.length + FRAME_MORE
        ):
            return False
        memcpy(call.note, message.id.data, message.id.length)
        call.note_length = message.id.length
        out = self.put_frame(frames.data + frames.used, call.stream, &message)
        frames.used = out - frames.data
        return True

    cdef bint read_request(self, Slice request, SentMessage *message) noexcept nogil:
        """Read a request with one ordinary message."""
        cdef const uint8_t *at = request.data
        cdef const uint8_t *end = at + request.length
        cdef Slice found
        cdef ProtoField field
        found.data = NULL
        found.length = 0
        while at < end:
            at = read_field(at, end, &field)
            if at == NULL:
                return False
            if field.number == 1:
                if found.data != NULL or field.wire_type != BYTES:
                    return False
                found = field.bytes
        return found.data != NULL and self.read_message(found, message)

    cdef bint read_message(self, Slice bytes, SentMessage *message) noexcept nogil:
        cdef const uint8_t *at = bytes.data
        cdef const uint8_t *end = at + bytes.length
        cdef Slice resource, name, value
        cdef ProtoField field
        resource.data = message.system.data = message.body.data = NULL
        message.topic.data = message.tag.data = message.born_host.data = NULL
        message.trace.data = message.id.data = NULL
        message.user_properties = message.text_bytes = 0
        message.properties = bytes
        while at < end:
            at = read_field(at, end, &field)
            if at == NULL:
                return False
            if not 1 <= field.number <= 4:
                continue
            if field.wire_type != BYTES:
                return False
            if field.number == 2:
                if not self.read_property(field.bytes, message, &name, &value):
                    return False
            elif field.number == 1 and resource.data == NULL:
                resource = field.bytes
            elif field.number == 3 and message.system.data == NULL:
                message.system = field.bytes
            elif field.number == 4 and message.body.data == NULL:
                message.body = field.bytes
            else:
                return False        # parts of one message
        if resource.data == NULL or message.system.data == NULL:
            return False
        if message.body.data == NULL or not 0 < message.body.length <= self.max_body_size:
            return False
        at, end = resource.data, resource.data + resource.length
        while at < end:
            at = read_field(at, end, &field)
            if at == NULL:
                return False
            if field.number == 2 and field.wire_type == BYTES:
                message.topic = field.bytes
        return (
            message.topic.data != NULL and is_topic(message.topic)
            and not self.is_reserved(message.topic) and self.read_system(message)
            and message.user_properties <= USER_PROPERTIES_MAX
            and message.text_bytes <= PROPERTIES_MAX
        )

    cdef bint read_property(self, Slice entry, SentMessage *message, Slice *name,
                            Slice *value) noexcept nogil:
        """An entry of user_properties; False for what an ordinary message has not."""
        cdef const uint8_t *at = entry.data
        cdef const uint8_t *end = at + entry.length
        cdef ProtoField field
        name.data = value.data = NULL
        name.length = value.length = 0
        while at < end:
            at = read_field(at, end, &field)
            if at == NULL:
                return False
            if field.number == 1 and field.wire_type == BYTES:
                name[0] = field.bytes
            elif field.number == 2 and field.wire_type == BYTES:
                value[0] = field.bytes
        message.user_properties += 1
        message.text_bytes += name.length + value.length
        return (
            name.length > 0 and value.length > 0 and is_plain(name[0]) and is_plain(value[0])
            and not self.is_reserved(name[0])
        )

    cdef bint read_system(self, SentMessage *message) noexcept nogil:
        cdef const uint8_t *at = message.system.data
        cdef const uint8_t *end = at + message.system.length
        cdef ProtoField field
        cdef bint has_time = False
        message.compressed = False
        message.born_ms = 0
        while at < end:
            at = read_field(at, end, &field)
            if at == NULL:
                return False
            if field.wire_type == VARINT:
                if field.number == 5 and field.value <= GZIP:
                    message.compressed = field.value == GZIP
                elif field.number == 6 and field.value > NORMAL:
                    return False
                elif field.number == 5 or field.number == 16 or field.number == 22:
                    return False
                continue
            if field.wire_type != BYTES:
                continue
            if field.number == 1 or field.number == 2:
                message.text_bytes += field.bytes.length
                if is_blank(field.bytes) or not is_plain(field.bytes):
                    return False
                if field.number == 1:
                    message.tag = field.bytes
            elif field.number == 3:
                message.id = field.bytes
            elif field.number == 7:
                if has_time or not read_time(field.bytes, &message.born_ms):
                    return False
                has_time = True
            elif field.number == 8:
                message.born_host = field.bytes
            elif field.number == 18:
                message.trace = field.bytes
            elif field.number == 11 or field.number == 17 or 19 <= field.number <= 22:
                return False
        if message.tag.data != NULL and has_bar(message.tag):
            return False
        if message.id.data == NULL or is_blank(message.id) or not is_plain(message.id):
            return False
        return (
            has_time
            and (message.born_host.data == NULL or is_plain(message.born_host))
            and (message.trace.data == NULL or is_plain(message.trace))
        )

    cdef uint8_t *put_properties(self, uint8_t *out, const SentMessage *message) noexcept nogil:
        """The properties as remoting has them."""
        cdef const uint8_t *at
        cdef const uint8_t *end
        cdef SentMessage unused
        cdef Slice name, value
        cdef ProtoField field
        cdef bint first = True
        out = put_text(put_name(out, UNIQ_KEY), message.id)
        if message.tag.data != NULL:
            out = put_text(put_next_name(out, TAGS), message.tag)
        at, end = message.system.data, message.system.data + message.system.length
        while at < end:
            at = read_field(at, end, &field)
            if field.number == 2 and field.wire_type == BYTES:
                if first:
                    out = put_next_name(out, KEYS)
                else:
                    out = put(out, b" ", 1)
                first = False
                out = put_text(out, field.bytes)
        unused.user_properties = unused.text_bytes = 0
        at, end = message.properties.data, message.properties.data + message.properties.length
        while at < end:
            at = read_field(at, end, &field)
            if field.number == 2:
                self.read_property(field.bytes, &unused, &name, &value)
                out[0] = PROPERTY_SEPARATOR
                out = put_text(out + 1, name)
                out[0] = NAME_VALUE_SEPARATOR
                out = put_text(out + 1, value)
        if message.born_host.data != NULL and message.born_host.length:
            out = put_text(put_next_name(out, BORN_HOST), message.born_host)
        if message.trace.data != NULL and message.trace.length:
            out = put_text(put_next_name(out, TRACE_CONTEXT), message.trace)
        out = put_decimal(put_next_name(out, BORN_TIMESTAMP), message.born_ms)
        return put_text(put_next_name(out, PRODUCER_GROUP), message.topic)

    cdef uint8_t *put_frame(self, uint8_t *out, int32_t opaque,
                            const SentMessage *message) noexcept nogil:
        """SEND_MESSAGE_V2 with the binary header; the broker chooses the queue."""
        cdef uint8_t *at = out + FRAME_HEAD
        cdef uint8_t *fields
        cdef uint8_t *properties
        at = put_i16(at, SEND_MESSAGE_V2)
        at[0] = LANGUAGE_OTHER
        at = put_i32(put_i32(put_i16(at + 1, VERSION), opaque), 0)
        fields = put_i32(at, 0) + 4         # no remark; the fields' length comes later
        at = put_field(fields, b"a", message.topic)
        at = put_field(at, b"b", message.topic)
        at = put_field(at, b"c", self.template)
        at = put_constant(at, b"d", b"8", 1)
        at = put_constant(at, b"e", b"-1", 2)
        at = put_constant(at, b"f", b"1" if message.compressed else b"0", 1)
        at = put_number_field(at, b"g", message.born_ms)
        at = put_constant(at, b"h", b"0", 1)
        at = put(put_i16(at, 1), b"i", 1)
        properties = at + 4
        at = self.put_properties(properties, message)
        put_i32(properties - 4, <int32_t> (at - properties))
        at = put_constant(at, b"j", b"0", 1)
        at = put_constant(at, b"k", b"false", 5)
        at = put_constant(at, b"m", b"false", 5)
        if message.access_key.length:
            at = put(put_i16(at, 9), b"AccessKey", 9)
            at = put_text(put_i32(at, message.access_key.length), message.access_key)
        put_i32(fields - 4, <int32_t> (at - fields))
        put_frame_head(out, 1, <int32_t> (at - out) - FRAME_HEAD, message.body.length)
        return put_text(at, message.body)

    # --- from the frame that answers to the call's message

    cdef bint write(self, const Call *call, const Frame *frame, const Header *header,
                    ByteBuffer *message) noexcept nogil:
        cdef Slice id, handle, remark
        cdef int64_t offset = 0
        cdef int32_t i
        cdef int32_t code = code_of(header.code)
        cdef uint8_t *out
        id.data, id.length = <const uint8_t *> call.note, call.note_length
        handle.length = 0
        for i in range(header.count):
            if is_text(header.fields[i].key.data, header.fields[i].key.length, b"queueOffset"):
                offset = natural(header.fields[i].value)
            elif is_text(header.fields[i].key.data, header.fields[i].key.length, b"recallHandle"):
                handle = header.fields[i].value
        if code == OK:
            remark.data, remark.length = <const uint8_t *> b"OK", 2
        elif header.remark.data == NULL:
            remark.data, remark.length = NULL, 0
        else:
            remark = header.remark
            remark.length = min(remark.length, <int32_t> REMARK_MAX)
            while remark.length and header.remark.length > remark.length and (
                header.remark.data[remark.length] & 0xC0 == 0x80
            ):
                remark.length -= 1      # not inside of a character
        if not make_room(
            message, message.used + 2 * remark.length + 2 * id.length + handle.length + ANSWER_MORE
        ):
            return False
        out = put_status(message.data + message.used, 1, code, remark)
        if code == OK:
            out = put_entry(out, code, remark, id, offset, handle)
        message.used = out - message.data
        return True


cdef bint has_bar(Slice text) noexcept nogil:
    cdef int32_t i
    for i in range(text.length):
        if text.data[i] == c"|":
            return True
    return False


cdef int64_t natural(Slice digits) noexcept nogil:
    cdef int64_t found = 0
    cdef int32_t i
    for i in range(digits.length):
        found = found * 10 + digits.data[i] - c"0"
    return found


cdef inline int64_t status_size(int32_t code, Slice text) noexcept nogil:
    return 1 + varint_size(code) + (
        1 + varint_size(text.length) + text.length if text.length else 0
    )


cdef uint8_t *put_status(uint8_t *out, int32_t field, int32_t code, Slice text) noexcept nogil:
    out = put_bytes_head(out, field, status_size(code, text))
    out = put_number(out, 1, code)
    return put_bytes(out, 2, text.data, text.length) if text.length else out


cdef uint8_t *put_entry(uint8_t *out, int32_t code, Slice text, Slice id, int64_t offset,
                        Slice handle) noexcept nogil:
    """A SendResultEntry; the id of the message is that of a transaction, too."""
    cdef int64_t status = status_size(code, text)
    cdef int64_t size = 1 + varint_size(status) + status
    size += 2 * (1 + varint_size(id.length) + id.length)
    if offset:
        size += 1 + varint_size(<uint64_t> offset)
    if handle.length:
        size += 1 + varint_size(handle.length) + handle.length
    out = put_status(put_bytes_head(out, 2, size), 1, code, text)
    out = put_bytes(put_bytes(out, 2, id.data, id.length), 3, id.data, id.length)
    if offset:
        out = put_number(out, 4, <uint64_t> offset)
    return put_bytes(out, 5, handle.data, handle.length) if handle.length else out


# --- for tests

def frame_of(GrpcCodec codec not None, str path, bytes message not None, int stream):
    """The frame of a call, or None if the loop serves it."""
    cdef Call call
    cdef ByteBuffer frames
    cdef int field
    cdef bytes encoded = path.encode()
    frames.data = NULL
    frames.at = frames.used = frames.size = 0
    for field in range(<int> CallField.CALL_FIELDS):
        call.fields[field].data = NULL
        call.fields[field].length = 0
    call.fields[<int> CallField.PATH] = slice_of(encoded)
    call.fields[<int> CallField.CLIENT_ID] = slice_of(encoded)
    call.stream, call.message = stream, slice_of(message)
    try:
        return frames.data[:frames.used] if codec.read(&call, &frames) else None
    finally:
        release(&frames)


def message_of(GrpcCodec codec not None, bytes frame not None, bytes note not None):
    """The message of the call that a frame answers."""
    cdef Call call
    cdef ByteBuffer message
    cdef Frame found
    cdef Header header
    cdef Scratch none
    none.data = NULL
    none.capacity = none.used = 0
    message.data = NULL
    message.at = message.used = message.size = 0
    call.note_length = <int32_t> len(note)
    memcpy(call.note, <const uint8_t *> note, len(note))
    if next_frame(frame, len(frame), &found) != FRAME_WHOLE or (
        decode_header(&found, &none, &header) != HEADER_OK
    ):
        raise ValueError("not a frame with a binary header")
    try:
        if not codec.write(&call, &found, &header, &message):
            raise MemoryError()
        return message.data[:message.used]
    finally:
        release(&message)
