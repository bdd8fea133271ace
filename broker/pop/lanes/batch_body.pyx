"""The body of BATCH_ACK_MESSAGE as clients write it (RocketMQ: BatchAckMessageRequestBody)."""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memchr, memcmp, strlen

from congreve.base.slices cimport Slice

cdef enum:
    DIGITS_MAX = 18         # of a number
    # Members of an acknowledgement.
    GROUP = 1
    TOPIC = 2
    KIND = 4
    START = 8
    QUEUE = 16
    REVIVE = 32
    POP_TIME = 64
    INVISIBLE = 128
    BITS = 256
    ALL = 511
    ORDERED = 999           # ORDERED_REVIVE_QUEUE_ID


cdef void begin_batch(BatchReader *reader, Slice body) noexcept nogil:
    reader.at, reader.end = body.data, body.data + body.length
    reader.good = body.length > 0 and take_char(reader, c"{")
    reader.inside = False
    if reader.good and not is_next(reader, b"acks"):
        reader.good = take_broker(reader) and take_char(reader, c",")
    reader.good = (
        reader.good and take_name(reader, b"acks") and take_char(reader, c"[")
    )
    reader.inside = reader.good


cdef bint next_batched(BatchReader *reader, BatchedAck *ack) noexcept nogil:
    if not reader.good or not reader.inside:
        return False
    reader.good = take_ack(reader, ack)
    if not reader.good:
        return False
    if take_char(reader, c","):
        return True
    reader.inside = False
    reader.good = take_char(reader, c"]") and (
        not take_char(reader, c",") or take_broker(reader)
    ) and take_char(reader, c"}")
    skip_space(reader)
    reader.good = reader.good and reader.at == reader.end
    return True


cdef void skip_space(BatchReader *reader) noexcept nogil:
    while reader.at < reader.end and reader.at[0] in (c" ", c"\n", c"\r", c"\t"):
        reader.at += 1


cdef bint take_char(BatchReader *reader, uint8_t char) noexcept nogil:
    skip_space(reader)
    if reader.at < reader.end and reader.at[0] == char:
        reader.at += 1
        return True
    return False


cdef bint is_next(BatchReader *reader, const char *name) noexcept nogil:
    cdef Py_ssize_t length = <Py_ssize_t> strlen(name)
    skip_space(reader)
    return (
        reader.end - reader.at >= length + 2 and reader.at[0] == c'"'
        and not memcmp(reader.at + 1, name, length) and reader.at[length + 1] == c'"'
    )


cdef bint take_name(BatchReader *reader, const char *name) noexcept nogil:
    """The name of a member, and the colon after it."""
    if not is_next(reader, name):
        return False
    reader.at += <Py_ssize_t> strlen(name) + 2
    return take_char(reader, c":")


cdef bint take_text(BatchReader *reader, Slice *text) noexcept nogil:
    """A text without escapes."""
    cdef const uint8_t *end
    if not take_char(reader, c'"'):
        return False
    end = <const uint8_t *> memchr(reader.at, c'"', reader.end - reader.at)
    if end == NULL:
        return False
    text.data, text.length = reader.at, <int32_t> (end - reader.at)
    while reader.at < end:
        if reader.at[0] == c"\\" or reader.at[0] < c" ":
            return False
        reader.at += 1
    reader.at += 1
    return True


cdef bint take_number(BatchReader *reader, int64_t *number) noexcept nogil:
    """An integer that is not negative."""
    cdef const uint8_t *begin
    skip_space(reader)
    begin = reader.at
    number[0] = 0
    while reader.at < reader.end and c"0" <= reader.at[0] <= c"9":
        if reader.at - begin == DIGITS_MAX:
            return False
        number[0] = number[0] * 10 + (reader.at[0] - c"0")
        reader.at += 1
    return reader.at > begin and (begin[0] != c"0" or reader.at == begin + 1)


cdef bint take_broker(BatchReader *reader) noexcept nogil:
    cdef Slice name
    return take_name(reader, b"brokerName") and take_text(reader, &name)


cdef bint take_ack(BatchReader *reader, BatchedAck *ack) noexcept nogil:
    cdef int32_t taken = 0
    cdef int32_t member
    if not take_char(reader, c"{"):
        return False
    while True:
        member = take_member(reader, ack)
        if not member or taken & member:
            return False
        taken |= member
        if not take_char(reader, c","):
            return taken == ALL and take_char(reader, c"}")


cdef int32_t take_member(BatchReader *reader, BatchedAck *ack) noexcept nogil:
    """Read a member of an acknowledgement; 0 for one that only Python reads."""
    cdef Slice kind
    cdef int64_t number
    if take_name(reader, b"c"):
        return GROUP if take_text(reader, &ack.group) else 0
    if take_name(reader, b"t"):
        return TOPIC if take_text(reader, &ack.topic) else 0
    if take_name(reader, b"b"):
        return BITS if take_text(reader, &ack.bits) else 0
    if take_name(reader, b"r"):
        if not take_text(reader, &kind) or kind.length != 1 or not c"0" <= kind.data[0] <= c"2":
            return 0
        ack.kind = kind.data[0] - c"0"
        return KIND
    if take_name(reader, b"so"):
        return START if take_number(reader, &ack.start_offset) else 0
    if take_name(reader, b"pt"):
        return POP_TIME if take_number(reader, &ack.pop_ms) else 0
    if take_name(reader, b"it"):
        return INVISIBLE if take_number(reader, &number) else 0
    if take_name(reader, b"rq"):
        return REVIVE if take_number(reader, &number) and number < ORDERED else 0
    if take_name(reader, b"q") and take_number(reader, &number) and number <= 0x7FFFFFFF:
        ack.queue_id = <int32_t> number
        return QUEUE
    return 0


cdef int32_t digit_of(uint8_t char) noexcept nogil:
    """The value of a digit of base64; -1 for another character."""
    if c"A" <= char <= c"Z":
        return char - c"A"
    if c"a" <= char <= c"z":
        return char - c"a" + 26
    if c"0" <= char <= c"9":
        return char - c"0" + 52
    return 62 if char == c"+" else 63 if char == c"/" else -1


cdef int32_t bits_at(Slice text, int32_t index, uint8_t *bits) noexcept nogil:
    cdef const uint8_t *at = text.data + 4 * index
    cdef int32_t i, digit, bytes_found = 3
    cdef int32_t value = 0
    if 4 * index + 4 == text.length and at[3] == c"=":
        bytes_found = 1 if at[2] == c"=" else 2
    for i in range(bytes_found + 1):
        digit = digit_of(at[i])
        if digit < 0:
            return -1
        value |= digit << 6 * (3 - i)
    for i in range(bytes_found):
        bits[i] = <uint8_t> (value >> 8 * (2 - i))
    return bytes_found
