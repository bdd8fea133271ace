"""AckMessage and ChangeInvisibleDuration in compiled code: a request about one message becomes a
frame of ACK_MESSAGE or CHANGE_MESSAGE_INVISIBLETIME, and the frame that answers becomes a response.

`broker/grpc/settle.py` has all rules; what is not ordinary goes there.
"""

cimport cython
from libc.string cimport memset

from congreve.base.byte_buffer cimport make_room
from congreve.broker.grpc.codecs.call_text cimport (
    REMARK_MAX,
    begin_json_request,
    end_json_request,
    is_group,
    is_json,
    is_number,
    is_plain,
    is_topic,
    put_json_number,
    put_status,
    put_text,
    put_words,
    read_name,
    read_time,
    remark_of,
    status_size,
    value_of,
)
from congreve.broker.grpc.codecs.codes cimport INVALID_RECEIPT_HANDLE, OK, code_of_settling
from congreve.records.message.topics cimport RETRY_PREFIX
from congreve.remoting.lanes.http2 cimport PREFIX, put_prefix
from congreve.remoting.wire.fast_headers cimport (
    ACK_MESSAGE,
    CHANGE_MESSAGE_INVISIBLETIME,
    INVISIBLE_MAX_MS,
)
from congreve.remoting.wire.protobuf cimport (
    BYTES,
    VARINT,
    ProtoField,
    put_bytes_head,
    read_field,
    varint_size,
)

cdef enum:
    HANDLE_MAX = 512            # bytes
    FRAME_MORE = 512            # bytes of a frame beside its names, the handle, the access key
    ANSWER_MORE = 2 * REMARK_MAX + 128
    # Parts of a handle (PopHandle).
    POP_TIME = 1
    INVISIBLE_TIME = 2
    KIND = 4
    BROKER = 5
    QUEUE_ID = 6
    OFFSET = 7


cdef bint split(Slice handle, Slice *parts) noexcept nogil:
    """The parts of a handle, all of them as this broker writes them."""
    cdef int32_t i, number = 0
    if handle.length > HANDLE_MAX or not is_json(handle):
        return False
    parts[0].data, parts[0].length = handle.data, 0
    for i in range(handle.length):
        if handle.data[i] != c" ":
            parts[number].length += 1
            continue
        number += 1
        if number == HANDLE_PARTS:
            return False
        parts[number].data, parts[number].length = handle.data + i + 1, 0
    if number != HANDLE_PARTS - 1:
        return False
    for i in range(HANDLE_PARTS):
        if i == KIND:
            if parts[i].length != 1 or not c"0" <= parts[i].data[0] <= c"2":
                return False
        elif i != BROKER and not is_number(parts[i]):
            return False
    return parts[QUEUE_ID].length < 10 and parts[BROKER].length > 0


cdef bint read_entry(Slice entry, Slice *handle) noexcept nogil:
    """The handle of an AckMessageEntry that has at most one more field, the message's id.

    An AckMessageResultEntry begins with the same fields.
    """
    cdef const uint8_t *at = entry.data
    cdef const uint8_t *end = at + entry.length
    cdef Slice id
    cdef ProtoField field
    id.data = NULL
    while at < end:
        at = read_field(at, end, &field)
        if at == NULL or field.wire_type != BYTES:
            return False
        if field.number == 1 and id.data == NULL:
            id = field.bytes
            if not is_plain(id):
                return False
        elif field.number == 2 and handle.data == NULL:
            handle[0] = field.bytes
        else:
            return False
    return handle.data != NULL


@cython.final
cdef class SettleCodec:
    """What becomes of received messages (RocketMQ 5: AckMessageActivity,
    ChangeInvisibleDurationActivity).

    `reserved` are the names of topics and groups that need the rules in Python. `accounts` is None
    without access control.
    """

    def __init__(self, HashedNames reserved not None, *, CallAccounts accounts=None):
        self.reserved = reserved
        self.accounts = accounts

    # --- from a call to a frame

    cdef bint read_ack(self, Call *call, ByteBuffer *frames) noexcept nogil:
        cdef const uint8_t *at = call.message.data
        cdef const uint8_t *end = at + call.message.length
        cdef Slice resource, group
        cdef Settled settled
        cdef ProtoField field
        cdef uint8_t *out
        memset(&settled, 0, sizeof(Settled))
        group.data = resource.data = NULL
        while at < end:
            at = read_field(at, end, &field)
            if at == NULL:
                return False
            if not 1 <= field.number <= 3:
                continue
            if field.wire_type != BYTES:
                return False
            if field.number == 1 and group.data == NULL:
                group = field.bytes
            elif field.number == 2 and resource.data == NULL:
                resource = field.bytes
            elif field.number == 3 and settled.entry.data == NULL:
                settled.entry = field.bytes
            else:
                return False        # parts of one message, or several entries
        if (
            group.data == NULL or resource.data == NULL or settled.entry.data == NULL
            or not read_name(group, &settled.group) or not read_name(resource, &settled.topic)
            or not read_entry(settled.entry, &settled.handle)
            or not self.is_ordinary(call, &settled)
        ):
            return False
        out = self.begin_frame(frames, ACK_MESSAGE, &settled)
        if out == NULL:
            return False
        out = end_json_request(
            frames.data + frames.used, out, call.stream, settled.access_key
        )
        frames.used = out - frames.data
        call.note = settled.entry
        return True

    cdef bint read_change(self, Call *call, ByteBuffer *frames) noexcept nogil:
        cdef const uint8_t *at = call.message.data
        cdef const uint8_t *end = at + call.message.length
        cdef Slice resource, group, duration
        cdef Settled settled
        cdef ProtoField field
        cdef uint8_t *out
        memset(&settled, 0, sizeof(Settled))
        group.data = resource.data = duration.data = NULL
        while at < end:
            at = read_field(at, end, &field)
            if at == NULL:
                return False
            if field.number > 7 or field.number == 5:
                continue
            if field.wire_type == VARINT and field.number == 7 and not field.value:
                continue
            if field.wire_type != BYTES:
                return False
            if field.number == 1 and group.data == NULL:
                group = field.bytes
            elif field.number == 2 and resource.data == NULL:
                resource = field.bytes
            elif field.number == 3 and settled.handle.data == NULL:
                settled.handle = field.bytes
            elif field.number == 4 and duration.data == NULL:
                duration = field.bytes
            else:
                return False
        if (
            group.data == NULL or resource.data == NULL or settled.handle.data == NULL
            or duration.data == NULL or not read_time(duration, &settled.invisible_ms)
            or settled.invisible_ms > INVISIBLE_MAX_MS
            or not read_name(group, &settled.group) or not read_name(resource, &settled.topic)
            or not self.is_ordinary(call, &settled)
        ):
            return False
        out = self.begin_frame(frames, CHANGE_MESSAGE_INVISIBLETIME, &settled)
        if out == NULL:
            return False
        out = put_json_number(out, b',"invisibleTime":"', settled.invisible_ms)
        out = end_json_request(
            frames.data + frames.used, out, call.stream, settled.access_key
        )
        frames.used = out - frames.data
        call.note = settled.handle
        return True

    cdef bint is_ordinary(self, const Call *call, Settled *settled) noexcept nogil:
        """Whether names and handle are ordinary, and the accounts let the call pass."""
        if (
            not is_group(settled.group) or not is_topic(settled.topic)
            or self.reserved.may_have(settled.group) or self.reserved.may_have(settled.topic)
            or not split(settled.handle, settled.parts)
        ):
            return False
        return self.accounts is None or (
            self.accounts.admit_consumer(
                call, settled.topic, settled.group, &settled.access_key
            ) and is_json(settled.access_key)
        )

    cdef uint8_t *begin_frame(self, ByteBuffer *frames, int32_t code,
                              const Settled *settled) noexcept nogil:
        """All fields but those of one code alone; NULL without memory."""
        cdef uint8_t kind = settled.parts[KIND].data[0]
        cdef uint8_t *out
        if not make_room(
            frames, frames.used + 2 * (settled.group.length + settled.topic.length)
            + 2 * settled.handle.length + settled.access_key.length + FRAME_MORE
        ):
            return NULL
        out = put_settled_topic(frames.data + frames.used, code, settled, kind)
        out = put_text(put_words(out, b',"queueId":"'), settled.parts[QUEUE_ID])
        out = put_text(put_words(out, b'","extraInfo":"'), settled.handle)
        out = put_text(put_words(out, b'","offset":"'), settled.parts[OFFSET])
        return put_words(out, b'"')

    # --- from the frame that answers to the call's message

    cdef bint write_ack(self, const Call *call, const Header *header,
                        ByteBuffer *messages) noexcept nogil:
        cdef int32_t code = code_of_settling(header.code)
        cdef Slice remark = status_text(header, code)
        cdef Slice text = remark
        cdef int64_t status = status_size(code, remark)
        cdef uint8_t *begin
        cdef uint8_t *out
        if not make_room(messages, messages.used + call.note.length + ANSWER_MORE):
            return False
        if code == INVALID_RECEIPT_HANDLE:      # users look for its name
            text.data, text.length = <const uint8_t *> b"INVALID_RECEIPT_HANDLE", 22
        begin = messages.data + messages.used + PREFIX
        out = put_status(begin, 1, code, text)
        out = put_bytes_head(out, 2, call.note.length + 1 + varint_size(status) + status)
        out = put_status(put_text(out, call.note), 3, code, remark)
        put_prefix(begin - PREFIX, out - begin)
        messages.used = out - messages.data
        return True

    cdef bint write_change(self, const Call *call, const Header *header,
                           ByteBuffer *messages) noexcept nogil:
        cdef int32_t code = code_of_settling(header.code)
        cdef Slice remark = status_text(header, code)
        cdef uint8_t *begin
        cdef uint8_t *out
        if not make_room(messages, messages.used + call.note.length + ANSWER_MORE):
            return False
        begin = messages.data + messages.used + PREFIX
        out = put_status(begin, 1, code, remark)
        if code == OK:
            out = put_new_handle(
                out, call.note, value_of(header, b"popTime"), value_of(header, b"invisibleTime")
            )
        put_prefix(begin - PREFIX, out - begin)
        messages.used = out - messages.data
        return True


cdef uint8_t *put_settled_topic(uint8_t *out, int32_t code, const Settled *settled,
                                uint8_t kind) noexcept nogil:
    """Begin a request; its topic is the one that the message was popped from (PoppedFrom.topic)."""
    cdef Slice none
    if kind == c"0":
        return begin_json_request(out, code, settled.group, settled.topic)
    none.data, none.length = NULL, 0
    out = put_text(
        put_words(begin_json_request(out, code, settled.group, none) - 1, RETRY_PREFIX),
        settled.group,
    )
    return put_words(
        put_text(put_words(out, b"_" if kind == c"1" else b"+"), settled.topic), b'"'
    )


cdef Slice status_text(const Header *header, int32_t code) noexcept nogil:
    cdef Slice text = remark_of(header)
    if code == OK:
        text.data, text.length = <const uint8_t *> b"OK", 2
    return text


cdef uint8_t *put_new_handle(uint8_t *out, Slice handle, Slice pop_ms,
                             Slice invisible_ms) noexcept nogil:
    """A handle with other times, as the field of a response."""
    cdef Slice[HANDLE_PARTS] parts
    cdef int64_t size = HANDLE_PARTS - 1
    cdef int32_t i
    split(handle, parts)
    parts[POP_TIME], parts[INVISIBLE_TIME] = pop_ms, invisible_ms
    for i in range(HANDLE_PARTS):
        size += parts[i].length
    out = put_bytes_head(out, 2, size)
    for i in range(HANDLE_PARTS):
        if i:
            out = put_words(out, b" ")
        out = put_text(out, parts[i])
    return out
