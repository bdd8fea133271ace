"""Stored messages as gRPC clients receive them, in compiled code: broker/grpc/received.py has the
rule (RocketMQ 5: GrpcConverter).
"""

cimport cython
from libc.stdint cimport INT32_MAX, uint64_t
from libc.string cimport memchr, memcmp, memmove, memset

from congreve.base.byte_buffer cimport make_room
from congreve.base.cursor cimport load_i64
from congreve.base.slices cimport slice_of
from congreve.broker.grpc.codecs.call_text cimport is_number, natural, put_text, put_words, value_of
from congreve.records.byte_compare cimport is_text
from congreve.records.host cimport HOST_TEXT_MAX, host_text
from congreve.records.layout cimport (
    AT_PHYSICAL_OFFSET,
    NAME_VALUE_SEPARATOR,
    PROPERTY_SEPARATOR,
    RECORD_FIXED,
    SYS_COMPRESSED,
)
from congreve.records.message cimport properties
from congreve.records.record cimport RECORD_OK, check
from congreve.remoting.lanes.http2 cimport PREFIX, put_prefix
from congreve.remoting.signatures.md5 cimport MD5_HEX_SIZE
from congreve.remoting.wire.byte_text cimport put_decimal
from congreve.remoting.wire.json_text cimport is_utf8
from congreve.remoting.wire.protobuf cimport (
    put_bytes,
    put_bytes_head,
    put_number,
    varint_size,
)

cdef enum:
    HEAD_MAX = 6                # bytes of the tag and the length of a nested message
    SYSTEM_MORE = 512           # bytes of system properties beside texts, with a handle's numbers
    LAST_SIZE = 32              # bytes of the last response
    # Fields of responses and messages.
    OF_MESSAGE = 2
    OF_TIME = 3
    # Numbers of definition.proto.
    MD5 = 2
    IDENTITY = 1
    GZIP = 2
    NORMAL = 1
    FIFO = 2
    DELAY = 3
    TRANSACTION = 4
    LITE = 5
    PRIORITY = 6

# The years from 1 to 9999, which a google.protobuf.Timestamp has.
TIME_FIRST_MS, TIME_LAST_MS = -62_135_596_800_000, 253_402_300_799_999
cdef int64_t FIRST_MS = TIME_FIRST_MS
cdef int64_t LAST_MS = TIME_LAST_MS

cdef const char *NAMES[KNOWN]
NAMES[:] = [
    properties.TAGS,
    properties.KEYS,
    properties.UNIQ_KEY,
    properties.BORN_HOST,
    properties.SHARDING_KEY,
    properties.TRACE_CONTEXT,
    properties.LITE_TOPIC,
    properties.TIMER_DELIVER_MS,
    properties.PRIORITY,
    properties.DLQ_ORIGIN_TOPIC,
    properties.DLQ_ORIGIN_MESSAGE_ID,
    properties.TRANSACTION_PREPARED,
    properties.DELAY,
    properties.TIMER_DELAY_MS,
    properties.TIMER_DELAY_SEC,
    properties.TIMER_OUT_MS,
    properties.POP_CK,
]


cdef inline uint8_t *close_nested(uint8_t *begin, int32_t field, uint8_t *end) noexcept nogil:
    """Write the head of a nested message, which stands HEAD_MAX bytes behind `begin`."""
    cdef int64_t length = end - begin - HEAD_MAX
    cdef uint8_t *at = put_bytes_head(begin, field, length)
    memmove(at, begin + HEAD_MAX, length)
    return at + length


cdef inline uint8_t *put_field(uint8_t *out, int32_t field, Slice text) noexcept nogil:
    """A text, if there is one and it is UTF-8."""
    if text.data == NULL or not is_utf8(text.data, text.length):
        return out
    return put_bytes(out, field, text.data, text.length)


cdef uint8_t *put_time(uint8_t *out, int32_t field, int64_t ms) noexcept nogil:
    """The google.protobuf.Timestamp that is nearest."""
    cdef uint8_t *at = out + HEAD_MAX
    cdef int64_t seconds
    ms = min(max(ms, FIRST_MS), LAST_MS)
    seconds = ms // 1000 - (ms % 1000 < 0)
    if seconds:
        at = put_number(at, 1, <uint64_t> seconds)
    if ms - 1000 * seconds:
        at = put_number(at, 2, <uint64_t> (1_000_000 * (ms - 1000 * seconds)))
    return close_nested(out, field, at)


cdef uint8_t *put_keys(uint8_t *out, Slice keys) noexcept nogil:
    """The keys, between blanks."""
    cdef Slice key
    cdef int32_t i
    key.length = 0
    for i in range(keys.length + 1):
        if i < keys.length and keys.data[i] != c" ":
            if not key.length:
                key.data = keys.data + i
            key.length += 1
        elif key.length:
            out = put_field(out, 2, key)
            key.length = 0
    return out


cdef uint8_t *put_host(uint8_t *out, int32_t field, const uint8_t *host, int32_t length,
                       bint with_port) noexcept nogil:
    cdef uint8_t[HOST_TEXT_MAX] text
    cdef Slice found
    found.data, found.length = text, host_text(text, host, length)
    if not with_port:
        while found.length and text[found.length - 1] != c":":
            found.length -= 1
        found.length -= 1
        if text[0] == c"[":
            found.data += 1
            found.length -= 2
    return put_field(out, field, found)


cdef bint find_start(Slice starts, int32_t queue_id, Slice *offset) noexcept nogil:
    """The first offset of a queue of the topic itself (decode_start_offsets)."""
    cdef const uint8_t *at = starts.data
    cdef const uint8_t *end = at + starts.length
    cdef const uint8_t *stop
    cdef uint8_t[24] wanted
    cdef int32_t length
    wanted[0], wanted[1] = c"0", c" "
    length = <int32_t> (put_decimal(wanted + 2, queue_id) - wanted)
    wanted[length] = c" "
    length += 1
    wanted[length] = 0
    while at < end:
        stop = <const uint8_t *> memchr(at, c";", end - at)
        if stop == NULL:
            stop = end
        if stop - at > length and is_text(at, length, <const char *> wanted):
            offset.data, offset.length = at + length, <int32_t> (stop - at) - length
            return True
        at = stop + 1
    return False


@cython.final
cdef class ReceivedMessages:
    """Makes messages for clients (RocketMQ 5: GrpcConverter.buildMessage).

    Handles have `broker_name`. Clients do not see the properties with a name of `hidden`.
    """

    def __init__(self, Md5 md5 not None, str broker_name not None, hidden not None):
        self.md5 = md5
        self.broker_name = broker_name.encode()
        self.broker = slice_of(self.broker_name)
        self.names = [name.encode() for name in hidden]
        if len(self.names) > HIDDEN_MAX:
            raise ValueError(f"{len(self.names)} hidden names: {HIDDEN_MAX} at most")
        for name in self.names:
            self.hidden[self.hidden_count] = slice_of(name)
            self.hidden_count += 1

    cdef bint put_all(self, ByteBuffer *out, Slice records, const Header *header,
                      int64_t now_ms) noexcept nogil:
        cdef const uint8_t *at = records.data
        cdef const uint8_t *end = at + records.length
        cdef PoppedAs popped
        cdef RecordView view
        cdef uint8_t *begin
        popped.pop_ms = value_of(header, b"popTime")
        popped.invisible_ms = value_of(header, b"invisibleTime")
        popped.revive_queue_id = value_of(header, b"reviveQid")
        popped.starts = value_of(header, b"startOffsetInfo")
        while end - at >= RECORD_FIXED and check(
            at, end - at, load_i64(at + AT_PHYSICAL_OFFSET), False, &view
        ) == RECORD_OK:
            if not self.put_one(out, &view, &popped):
                return False
            at += view.size
        if not make_room(out, out.used + PREFIX + LAST_SIZE):
            return False
        begin = out.data + out.used + PREFIX
        at = put_time(begin, OF_TIME, now_ms)
        put_prefix(begin - PREFIX, at - begin)
        out.used = at - out.data
        return True

    cdef bint put_one(self, ByteBuffer *out, const RecordView *view,
                      const PoppedAs *popped) noexcept nogil:
        cdef Slice[KNOWN] known
        cdef int64_t wanted = (
            out.used + view.body_length + 2 * view.topic_length + 6 * view.properties_length
            + 2 * self.broker.length + SYSTEM_MORE
        )
        cdef int64_t length
        cdef uint8_t *begin
        cdef uint8_t *fields
        cdef uint8_t *at
        memset(known, 0, sizeof(known))
        if wanted > out.size and not make_room(out, wanted + wanted // 4):
            return False
        begin = out.data + out.used + PREFIX
        fields = begin + 2 * HEAD_MAX
        at = put_bytes_head(fields, 1, 1 + varint_size(view.topic_length) + view.topic_length)
        at = put_bytes(at, 2, view.topic, view.topic_length)
        at = self.put_user_properties(at, view, known)
        at = close_nested(at, 3, self.put_system(at + HEAD_MAX, view, known, popped))
        length = at - fields
        if view.body_length:
            length += 1 + varint_size(view.body_length) + view.body_length
        begin = put_bytes_head(begin, OF_MESSAGE, length)
        memmove(begin, fields, at - fields)
        at = begin + (at - fields)
        if view.body_length:
            at = put_bytes(at, 4, view.body, view.body_length)
        begin = out.data + out.used
        put_prefix(begin, at - begin - PREFIX)
        out.used = at - out.data
        return True

    cdef uint8_t *put_user_properties(self, uint8_t *out, const RecordView *view,
                                      Slice *known) noexcept nogil:
        """Write the user's properties, and find the others; the last of equal names counts."""
        cdef const uint8_t *at = view.properties
        cdef const uint8_t *end = at + view.properties_length
        cdef const uint8_t *stop
        cdef const uint8_t *separator
        cdef Slice name, value
        cdef int32_t i
        while at < end:
            stop = <const uint8_t *> memchr(at, PROPERTY_SEPARATOR, end - at)
            if stop == NULL:
                stop = end
            separator = <const uint8_t *> memchr(at, NAME_VALUE_SEPARATOR, stop - at)
            if separator != NULL and separator > at and separator + 1 < stop:
                name.data, name.length = at, <int32_t> (separator - at)
                value.data, value.length = separator + 1, <int32_t> (stop - separator) - 1
                for i in range(<int32_t> KNOWN):
                    if is_text(name.data, name.length, NAMES[i]):
                        known[i] = value
                        break
                else:
                    if not self.is_hidden(name) and is_utf8(name.data, name.length) and is_utf8(
                        value.data, value.length
                    ):
                        out = put_bytes_head(
                            out, 2, 2 + varint_size(name.length) + name.length
                            + varint_size(value.length) + value.length,
                        )
                        out = put_bytes(out, 1, name.data, name.length)
                        out = put_bytes(out, 2, value.data, value.length)
            at = stop + 1
        return out

    cdef bint is_hidden(self, Slice name) noexcept nogil:
        cdef int32_t i
        for i in range(self.hidden_count):
            if self.hidden[i].length == name.length and (
                not memcmp(self.hidden[i].data, name.data, name.length)
            ):
                return True
        return False

    cdef uint8_t *put_system(self, uint8_t *out, const RecordView *view, const Slice *known,
                             const PoppedAs *popped) noexcept nogil:
        cdef uint8_t *nested
        out = put_keys(put_field(out, 1, known[P_TAGS]), known[P_KEYS])
        out = put_field(out, 3, known[P_ID])
        out = put_bytes_head(out, 4, 4 + MD5_HEX_SIZE)
        out = put_bytes_head(put_number(out, 1, MD5), 2, MD5_HEX_SIZE)
        out = self.md5.put_hex(out, view.body, view.body_length)
        out = put_number(out, 5, GZIP if view.sys_flag & SYS_COMPRESSED else IDENTITY)
        out = put_time(put_number(out, 6, type_of(known)), 7, view.born_timestamp)
        if known[P_BORN_HOST].data != NULL:
            out = put_field(out, 8, known[P_BORN_HOST])
        else:
            out = put_host(out, 8, view.born_host, view.born_host_length, False)
        out = put_time(out, 9, view.store_timestamp)
        out = put_host(out, 10, view.store_host, view.store_host_length, True)
        due = known[P_OUT if known[P_DELIVER_MS].data == NULL else P_DELIVER_MS]
        if is_number(due) and due.length <= 14:
            out = put_time(out, 11, natural(due))
        out = close_nested(
            out, 12, self.put_handle(out + HEAD_MAX, view, known[P_HANDLE], popped)
        )
        out = put_number(out, 13, <uint64_t> <int64_t> view.queue_id)
        out = put_number(out, 14, <uint64_t> view.queue_offset)
        out = put_number(out, 16, <uint64_t> <int64_t> (
            view.reconsume_times + (view.reconsume_times < INT32_MAX)
        ))
        out = put_field(put_field(out, 17, known[P_GROUP]), 18, known[P_TRACE])
        if known[P_DLQ_TOPIC].data != NULL and known[P_DLQ_ID].data != NULL:
            nested = put_field(out + HEAD_MAX, 1, known[P_DLQ_TOPIC])
            out = close_nested(out, 20, put_field(nested, 2, known[P_DLQ_ID]))
        out = put_field(out, 21, known[P_LITE])
        if is_number(known[P_PRIORITY]) and known[P_PRIORITY].length <= 9:
            out = put_number(out, 22, natural(known[P_PRIORITY]))
        return out

    cdef uint8_t *put_handle(self, uint8_t *out, const RecordView *view, Slice given,
                             const PoppedAs *popped) noexcept nogil:
        """The text of a PopHandle, and the message's place in the log."""
        cdef Slice start
        if given.data != NULL:
            out = put_text(out, given)
        else:
            if find_start(popped.starts, view.queue_id, &start):
                out = put_text(out, start)
            else:
                out = put_decimal(out, view.queue_offset)
            out = put_text(put_words(out, b" "), popped.pop_ms)
            out = put_text(put_words(out, b" "), popped.invisible_ms)
            out = put_text(put_words(out, b" "), popped.revive_queue_id)
            out = put_text(put_words(out, b" 0 "), self.broker)
            out = put_decimal(put_words(out, b" "), view.queue_id)
            out = put_decimal(put_words(out, b" "), view.queue_offset)
        return put_decimal(put_words(out, b" "), view.physical_offset)


cdef int32_t type_of(const Slice *known) noexcept nogil:
    """The type of a message, by its properties (message_types.py)."""
    if is_text(known[P_TRANSACTION].data, known[P_TRANSACTION].length, b"true"):
        return TRANSACTION
    if (
        known[P_DELAY].data != NULL or known[P_DELIVER_MS].data != NULL
        or known[P_DELAY_MS].data != NULL or known[P_DELAY_S].data != NULL
        or known[P_OUT].data != NULL
    ):
        return DELAY
    if known[P_GROUP].data != NULL:
        return FIFO
    if known[P_PRIORITY].data != NULL:
        return PRIORITY
    return LITE if known[P_LITE].data != NULL else NORMAL
