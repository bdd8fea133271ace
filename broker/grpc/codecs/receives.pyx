"""ReceiveMessage in compiled code: a request becomes a frame of POP_MESSAGE, and the frame that
answers becomes a status, the messages, and the time.

`broker/grpc/receive.py` has all rules; what is not ordinary goes there, and so do groups that get
their messages in order.
"""

cimport cython
from libc.string cimport memset

from congreve.base.byte_buffer cimport append_bytes, make_room, release
from congreve.broker.grpc.codecs.call_text cimport (
    REMARK_MAX,
    begin_json_request,
    end_json_request,
    is_group,
    is_json,
    is_topic,
    put_json_number,
    put_status,
    put_text,
    put_words,
    read_name,
    read_time,
    remark_of,
    value_of,
)
from congreve.broker.grpc.codecs.codes cimport (
    MESSAGE_NOT_FOUND,
    OK,
    TOO_MANY_REQUESTS,
    code_of,
)
from congreve.remoting.lanes.http2 cimport PREFIX, CallField, put_prefix
from congreve.remoting.wire.fast_headers cimport INVISIBLE_MAX_MS, POP_MESSAGE
from congreve.remoting.wire.protobuf cimport BYTES, VARINT, ProtoField, read_field

cdef enum:
    # As in receive.py.
    BATCH_MAX = 32
    POLL_MAX_MS = 20_000
    ANSWER_MS = 1_500
    INVISIBLE_MIN_MS = 10_000
    SQL = 2
    TEXTS_MAX = 4096            # bytes of a filter, or of a client's id
    FRAME_MORE = 768            # bytes of a frame beside its texts
    POLLING_FULL = 209
    POLLING_TIMEOUT = 210


cdef inline Slice words(const char *text, int32_t length) noexcept nogil:
    cdef Slice found
    found.data, found.length = <const uint8_t *> text, length
    return found


cdef bint read_timeout(Slice text, int64_t *ms) noexcept nogil:
    """The time in the header grpc-timeout; False if it has another form (GrpcCall.timeout_ms)."""
    cdef int64_t number = 0
    cdef int32_t i
    cdef uint8_t unit
    if not 2 <= text.length <= 9:
        return False
    for i in range(text.length - 1):
        if not c"0" <= text.data[i] <= c"9":
            return False
        number = number * 10 + text.data[i] - c"0"
    unit = text.data[text.length - 1]
    if unit == c"H":
        ms[0] = number * 3_600_000
    elif unit == c"M":
        ms[0] = number * 60_000
    elif unit == c"S":
        ms[0] = number * 1_000
    elif unit == c"m":
        ms[0] = number
    elif unit == c"u":
        ms[0] = number // 1_000
    elif unit == c"n":
        ms[0] = number // 1_000_000
    else:
        return False
    return True


cdef bint read_filter(Slice filter, Receive *receive) noexcept nogil:
    """A FilterExpression."""
    cdef const uint8_t *at = filter.data
    cdef const uint8_t *end = at + filter.length
    cdef ProtoField field
    while at < end:
        at = read_field(at, end, &field)
        if at == NULL:
            return False
        if field.number == 1:
            if field.wire_type != VARINT or field.value > SQL:
                return False
            receive.is_sql = field.value == SQL
        elif field.number == 2:
            if field.wire_type != BYTES:
                return False
            receive.expression = field.bytes
    return True


cdef bint is_filter(const Receive *receive) noexcept nogil:
    """Whether the expression needs no change; an empty one is for all messages."""
    cdef Slice text = receive.expression
    if not text.length:
        return not receive.is_sql
    return (
        text.length <= TEXTS_MAX and is_json(text)
        and 0x20 < text.data[0] < 0x80 and 0x20 < text.data[text.length - 1] < 0x80
    )


@cython.final
cdef class ReceiveCodec:
    """Messages that clients receive (RocketMQ 5: ReceiveMessageActivity).

    `reserved` are the names of topics and groups that need the rules in Python, `ordered` the
    groups that get messages in their order. `accounts` is None without access control. Messages
    that a client asks to renew are hidden for `renewed_ms`.
    """

    def __init__(self, HashedNames reserved not None, HashedNames ordered not None,
                 ReceivedMessages received not None, Clock clock not None, *, int64_t renewed_ms,
                 CallAccounts accounts=None):
        self.reserved, self.ordered = reserved, ordered
        self.received, self.clock, self.accounts = received, clock, accounts
        self.renewed_ms = renewed_ms

    def __dealloc__(self):
        release(&self.note)

    # --- from a call to a frame

    cdef bint read(self, Call *call, ByteBuffer *frames) noexcept nogil:
        cdef Receive receive
        memset(&receive, 0, sizeof(Receive))
        receive.invisible_ms = -1
        receive.poll_ms = POLL_MAX_MS
        if not self.read_request(call.message, &receive) or not self.is_ordinary(call, &receive):
            return False
        if receive.renewed:
            if not self.keep_note(call, &receive):
                return False
            call.note.data, call.note.length = self.note.data, <int32_t> self.note.used
        return self.put_frame(frames, call, &receive)

    cdef bint read_request(self, Slice request, Receive *receive) noexcept nogil:
        cdef const uint8_t *at = request.data
        cdef const uint8_t *end = at + request.length
        cdef Slice group, queue, filter
        cdef ProtoField field
        cdef int64_t poll_ms
        group.data = queue.data = filter.data = NULL
        while at < end:
            at = read_field(at, end, &field)
            if at == NULL:
                return False
            if field.number == 4 or field.number == 6:
                if field.wire_type != VARINT:
                    return False
                if field.number == 4:
                    receive.batch_size = <int32_t> field.value
                else:
                    receive.renewed = field.value != 0
                continue
            if field.number > 7:
                continue
            if field.wire_type != BYTES:
                return False
            if field.number == 1 and group.data == NULL:
                group = field.bytes
            elif field.number == 2 and queue.data == NULL:
                queue = field.bytes
            elif field.number == 3 and filter.data == NULL:
                filter = field.bytes
            elif field.number == 5 and receive.invisible_ms < 0:
                if not read_time(field.bytes, &receive.invisible_ms):
                    return False
            elif field.number == 7 and receive.poll_ms == POLL_MAX_MS:
                if not read_time(field.bytes, &poll_ms):
                    return False
                receive.poll_ms = min(poll_ms, receive.poll_ms)
            else:
                return False        # parts of one message
        if group.data == NULL or queue.data == NULL:
            return False
        if filter.data != NULL and not read_filter(filter, receive):
            return False
        return read_name(group, &receive.group) and self.read_topic(queue, &receive.topic)

    cdef bint is_ordinary(self, const Call *call, Receive *receive) noexcept nogil:
        cdef Slice timeout = call.fields[<int> CallField.TIMEOUT]
        cdef int64_t left_ms
        if (
            not is_group(receive.group) or not is_topic(receive.topic)
            or self.reserved.may_have(receive.group) or self.reserved.may_have(receive.topic)
            or self.ordered.may_have(receive.group)
            or receive.batch_size <= 0 or not is_filter(receive)
        ):
            return False
        if receive.renewed:
            receive.invisible_ms = self.renewed_ms
        elif not INVISIBLE_MIN_MS <= receive.invisible_ms <= INVISIBLE_MAX_MS:
            return False
        if timeout.length:
            if not read_timeout(timeout, &left_ms):
                return False
            receive.poll_ms = max(min(receive.poll_ms, left_ms - min(ANSWER_MS, left_ms // 2)), 0)
        return self.accounts is None or (
            self.accounts.admit_consumer(
                call, receive.topic, receive.group, &receive.access_key
            ) and is_json(receive.access_key)
        )

    cdef bint read_topic(self, Slice queue, Slice *name) noexcept nogil:
        """The topic of a MessageQueue."""
        cdef const uint8_t *at = queue.data
        cdef const uint8_t *end = at + queue.length
        cdef Slice resource
        cdef ProtoField field
        resource.data = NULL
        while at < end:
            at = read_field(at, end, &field)
            if at == NULL:
                return False
            if field.number == 1:
                if field.wire_type != BYTES or resource.data != NULL:
                    return False
                resource = field.bytes
        return resource.data != NULL and read_name(resource, name)

    cdef bint keep_note(self, const Call *call, const Receive *receive) noexcept nogil:
        """Who renews what is received: the client's id, the group and the topic."""
        cdef Slice client = call.fields[<int> CallField.CLIENT_ID]
        if client.length > TEXTS_MAX:
            return False
        self.note.used = 0
        return (
            append_bytes(&self.note, client.data, client.length)
            and append_bytes(&self.note, <const uint8_t *> b"", 1)
            and append_bytes(&self.note, receive.group.data, receive.group.length)
            and append_bytes(&self.note, <const uint8_t *> b"", 1)
            and append_bytes(&self.note, receive.topic.data, receive.topic.length)
        )

    cdef bint put_frame(self, ByteBuffer *frames, const Call *call,
                        const Receive *receive) noexcept nogil:
        cdef Slice expression = receive.expression
        cdef uint8_t *begin
        cdef uint8_t *out
        if not make_room(
            frames, frames.used + receive.group.length + receive.topic.length + expression.length
            + receive.access_key.length + FRAME_MORE
        ):
            return False
        if not expression.length:
            expression = words(b"*", 1)
        begin = frames.data + frames.used
        out = begin_json_request(begin, POP_MESSAGE, receive.group, receive.topic)
        out = put_json_number(
            put_words(out, b',"queueId":"-1"'), b',"maxMsgNums":"',
            min(receive.batch_size, <int32_t> BATCH_MAX),
        )
        out = put_json_number(out, b',"invisibleTime":"', receive.invisible_ms)
        out = put_json_number(out, b',"pollTime":"', receive.poll_ms)
        out = put_json_number(
            put_words(out, b',"initMode":"1"'), b',"bornTime":"', self.clock.now_ms()
        )
        out = put_words(out, b',"expType":"SQL92"' if receive.is_sql else b',"expType":"TAG"')
        out = put_text(put_words(out, b',"exp":"'), expression)
        out = put_words(out, b'","order":"false"')
        out = end_json_request(begin, out, call.stream, receive.access_key)
        frames.used = out - frames.data
        return True

    # --- from the frame that answers to the call's messages

    cdef bint write(self, const Call *call, const Frame *frame, const Header *header,
                    ByteBuffer *messages, ByteBuffer *told) noexcept nogil:
        cdef int32_t code = code_of(header.code)
        cdef Slice remark = remark_of(header)
        cdef uint8_t *begin
        cdef uint8_t *out
        if header.code == POLLING_TIMEOUT:
            code, remark = MESSAGE_NOT_FOUND, words(b"no new message", 14)
        elif header.code == POLLING_FULL:
            code = TOO_MANY_REQUESTS
            if not remark.length:
                remark = words(b"polling full", 12)
        elif code == OK:
            remark = words(b"OK", 2)
        if not make_room(messages, messages.used + PREFIX + REMARK_MAX + 64):
            return False
        begin = messages.data + messages.used + PREFIX
        out = put_status(begin, 1, code, remark)
        put_prefix(begin - PREFIX, out - begin)
        messages.used = out - messages.data
        if code != OK:
            return True
        if call.note.length and not self.tell(call, header, told):
            return False
        return self.received.put_all(messages, frame.body, header, self.clock.now_ms())

    cdef bint tell(self, const Call *call, const Header *header,
                   ByteBuffer *told) noexcept nogil:
        """Append the call's note and three texts of its answer to `told`, for read_told."""
        cdef Slice pop_ms = value_of(header, b"popTime")
        cdef Slice invisible_ms = value_of(header, b"invisibleTime")
        cdef Slice offsets = value_of(header, b"msgOffsetInfo")
        return (
            append_bytes(told, call.note.data, call.note.length)
            and append_bytes(told, <const uint8_t *> b"", 1)
            and append_bytes(told, pop_ms.data, pop_ms.length)
            and append_bytes(told, <const uint8_t *> b"", 1)
            and append_bytes(told, invisible_ms.data, invisible_ms.length)
            and append_bytes(told, <const uint8_t *> b"", 1)
            and append_bytes(told, offsets.data, offsets.length)
        )
