"""SendMessage in compiled code: an ordinary message becomes a frame of SEND_MESSAGE_V2, and the
frame that answers becomes a SendMessageResponse.

`broker/grpc/send.py` has all rules; what is not ordinary goes there.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from congreve.base.byte_buffer cimport make_room
from congreve.base.slices cimport slice_of
from congreve.broker.grpc.codecs.call_text cimport (
    is_blank,
    is_plain,
    is_topic,
    natural,
    put_status,
    put_text,
    read_name,
    read_time,
    remark_of,
    status_size,
    value_of,
)
from congreve.broker.grpc.codecs.codes cimport OK, code_of
from congreve.records.layout cimport NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR
from congreve.records.message.properties cimport (
    BORN_HOST,
    BORN_TIMESTAMP,
    KEYS,
    LITE_TOPIC,
    PRODUCER_GROUP,
    TAGS,
    TRACE_CONTEXT,
    UNIQ_KEY,
    put_name,
    put_next_name,
)
from congreve.remoting.lanes.http2 cimport PREFIX, put_prefix
from congreve.remoting.wire.byte_text cimport put, put_decimal, put_i16, put_i32
from congreve.remoting.wire.fast_headers cimport SEND_MESSAGE_V2
from congreve.remoting.wire.frame cimport FRAME_HEAD, put_frame_head
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
    ID_MAX = 128                # bytes of a message's id
    USER_PROPERTIES_MAX = 128
    PROPERTIES_MAX = 16 * 1024  # bytes of user properties, tag and keys
    FRAME_MORE = 1024           # bytes of a frame beside those of the message, and of the topic
    ANSWER_MORE = 256
    VERSION = 401
    LANGUAGE_OTHER = 7
    COMPRESSED = 1              # of sysFlag
    # Numbers of definition.proto.
    NORMAL = 1
    LITE = 5
    LITE_TOPIC_MAX = 64         # bytes
    IDENTITY = 1
    GZIP = 2


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


@cython.final
cdef class SendCodec:
    """Sends of gRPC clients (RocketMQ 5: SendMessageActivity, GrpcValidator).

    `reserved` are the names of properties and topics that need the rules in Python, as larger
    bodies than `max_body_size` bytes do. The topic `template` is that of topics which a first
    message creates. `accounts` is None without access control.
    """

    def __init__(self, HashedNames reserved not None, *, str template not None,
                 int64_t max_body_size, CallAccounts accounts=None):
        self.reserved = reserved
        self.template_bytes = template.encode()
        self.template = slice_of(self.template_bytes)
        self.max_body_size = max_body_size
        self.accounts = accounts

    # --- from a call to a frame

    cdef bint read(self, Call *call, ByteBuffer *frames) noexcept nogil:
        cdef SentMessage message
        cdef uint8_t *out
        if not self.read_request(call.message, &message) or message.id.length > ID_MAX:
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
        call.note = message.id
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
        message.trace.data = message.id.data = message.lite.data = NULL
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
        return (
            read_name(resource, &message.topic) and is_topic(message.topic)
            and not self.reserved.may_have(message.topic) and self.read_system(message)
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
            and not self.reserved.may_have(name[0])
        )

    cdef bint read_system(self, SentMessage *message) noexcept nogil:
        cdef const uint8_t *at = message.system.data
        cdef const uint8_t *end = at + message.system.length
        cdef ProtoField field
        cdef bint has_time = False
        cdef bint is_lite = False
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
                    if field.value != LITE:
                        return False
                    is_lite = True
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
            elif field.number == 21:
                message.lite = field.bytes
            elif field.number == 11 or field.number == 17 or 19 <= field.number <= 22:
                return False
        if is_lite != (message.lite.data != NULL) or (is_lite and not is_lite_name(message.lite)):
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
        if message.lite.data != NULL:
            out = put_text(put_next_name(out, LITE_TOPIC), message.lite)
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
                    ByteBuffer *messages) noexcept nogil:
        cdef Slice remark
        cdef Slice handle = value_of(header, b"recallHandle")
        cdef int64_t offset = natural(value_of(header, b"queueOffset"))
        cdef int32_t code = code_of(header.code)
        cdef uint8_t *begin
        cdef uint8_t *out
        if code == OK:
            remark.data, remark.length = <const uint8_t *> b"OK", 2
        else:
            remark = remark_of(header)
        if not make_room(
            messages,
            messages.used + 2 * remark.length + 2 * call.note.length + handle.length + ANSWER_MORE,
        ):
            return False
        begin = messages.data + messages.used + PREFIX
        out = put_status(begin, 1, code, remark)
        if code == OK:
            out = put_entry(out, code, remark, call.note, offset, handle)
        put_prefix(begin - PREFIX, out - begin)
        messages.used = out - messages.data
        return True


cdef bint is_lite_name(Slice name) noexcept nogil:
    """Whether a lite topic may have this name (names.py)."""
    cdef int32_t i
    cdef uint8_t at
    for i in range(name.length):
        at = name.data[i]
        if not (
            c"a" <= at <= c"z" or c"A" <= at <= c"Z" or c"0" <= at <= c"9" or at == c"_"
            or at == c"-"
        ):
            return False
    return 0 < name.length <= LITE_TOPIC_MAX


cdef bint has_bar(Slice text) noexcept nogil:
    cdef int32_t i
    for i in range(text.length):
        if text.data[i] == c"|":
            return True
    return False


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
