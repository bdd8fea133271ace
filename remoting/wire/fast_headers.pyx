"""The typed headers of sends and pulls, read from a decoded header without a Python object.

A missing field, or a number in another form than Java's, leaves a header not `complete`: Python
decodes it.
"""

from libc.stdint cimport uint8_t
from libc.string cimport memchr, memcmp, memset

from congreve.remoting.wire.json_text cimport parse_int32, parse_integer


cdef inline bint equals(Slice text, const char *wanted, int32_t length) noexcept nogil:
    return text.length == length and memcmp(text.data, wanted, length) == 0


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


cdef void send_places(const Header *header, int8_t *places) noexcept nogil:
    cdef bint short_names = header.code != SEND_MESSAGE
    cdef int32_t i
    cdef uint8_t name
    memset(places, -1, SEND_FIELDS)
    for i in range(header.count):
        if not short_names:
            name = short_name(header.fields[i].key)
        else:
            name = header.fields[i].key.data[0] if header.fields[i].key.length == 1 else 0
        if c"a" <= name < c"a" + SEND_FIELDS:
            places[name - c"a"] = <int8_t> i


cdef void fill_send_header(const Slice *values, SendHeader *send) noexcept nogil:
    cdef int32_t ignored
    send.producer_group = values[0]
    send.topic = values[1]
    send.default_topic = values[2]
    send.properties = values[8]
    send.reconsume_times = 0
    send.batch = values[12].data != NULL and is_true(values[12])
    send.complete = (
        values[0].data != NULL and values[1].data != NULL and values[2].data != NULL
        and parse_int32(values[3], &send.default_topic_queues)
        and parse_int32(values[4], &send.queue_id)
        and parse_int32(values[5], &send.sys_flag)
        and parse_integer(values[6], &send.born_timestamp)
        and parse_int32(values[7], &send.flag)
        and (values[9].data == NULL or parse_int32(values[9], &send.reconsume_times))
        and (values[11].data == NULL or parse_int32(values[11], &ignored))
    )


cdef void read_send_header(const Header *header, SendHeader *send) noexcept nogil:
    cdef int8_t places[SEND_FIELDS]
    cdef Slice values[SEND_FIELDS]
    cdef int32_t i
    send_places(header, places)
    memset(values, 0, sizeof(values))
    for i in range(SEND_FIELDS):
        if places[i] >= 0:
            values[i] = header.fields[places[i]].value
    fill_send_header(values, send)


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


cdef enum PopField:
    POP_GROUP = 1
    POP_TOPIC = 2
    POP_QUEUE_ID = 4
    POP_MAX_COUNT = 8
    POP_INVISIBLE = 16
    POP_POLL = 32
    POP_INIT_MODE = 64
    POP_REQUIRED = 127


cdef void read_pop_header(const Header *header, PopHeader *pop) noexcept nogil:
    cdef int32_t i
    cdef Slice key
    cdef Slice value
    cdef bint good = True
    cdef int32_t seen = 0
    memset(pop, 0, sizeof(PopHeader))
    for i in range(header.count):
        key = header.fields[i].key
        value = header.fields[i].value
        if equals(key, b"consumerGroup", 13):
            pop.consumer_group = value
            seen |= POP_GROUP
        elif equals(key, b"topic", 5):
            pop.topic = value
            seen |= POP_TOPIC
        elif equals(key, b"queueId", 7):
            good &= parse_int32(value, &pop.queue_id)
            seen |= POP_QUEUE_ID
        elif equals(key, b"maxMsgNums", 10):
            good &= parse_int32(value, &pop.max_count)
            seen |= POP_MAX_COUNT
        elif equals(key, b"invisibleTime", 13):
            good &= parse_integer(value, &pop.invisible_ms)
            seen |= POP_INVISIBLE
        elif equals(key, b"pollTime", 8):
            good &= parse_integer(value, &pop.poll_ms)
            seen |= POP_POLL
        elif equals(key, b"initMode", 8):
            good &= parse_int32(value, &pop.init_mode)
            seen |= POP_INIT_MODE
        elif equals(key, b"bornTime", 8):
            good &= parse_integer(value, &pop.born_ms)
        elif equals(key, b"exp", 3):
            pop.expression = value
        elif equals(key, b"expType", 7):
            pop.expression_type = value
        elif equals(key, b"order", 5):
            pop.ordered = is_true(value)
    pop.complete = good and seen == POP_REQUIRED


cdef enum AckField:
    ACK_GROUP = 1
    ACK_TOPIC = 2
    ACK_QUEUE_ID = 4
    ACK_HANDLE = 8
    ACK_OFFSET = 16
    ACK_REQUIRED = 31


cdef void read_ack_header(const Header *header, AckHeader *ack) noexcept nogil:
    cdef int32_t i
    cdef Slice key
    cdef Slice value
    cdef bint good = True
    cdef int32_t seen = 0
    memset(ack, 0, sizeof(AckHeader))
    ack.invisible_ms = -1
    for i in range(header.count):
        key = header.fields[i].key
        value = header.fields[i].value
        if equals(key, b"consumerGroup", 13):
            ack.consumer_group = value
            seen |= ACK_GROUP
        elif equals(key, b"topic", 5):
            ack.topic = value
            seen |= ACK_TOPIC
        elif equals(key, b"queueId", 7):
            good &= parse_int32(value, &ack.queue_id)
            seen |= ACK_QUEUE_ID
        elif equals(key, b"extraInfo", 9):
            good &= read_handle(value, ack)
            seen |= ACK_HANDLE
        elif equals(key, b"offset", 6):
            good &= parse_integer(value, &ack.offset)
            seen |= ACK_OFFSET
        elif equals(key, b"invisibleTime", 13) and header.code == CHANGE_MESSAGE_INVISIBLETIME:
            good &= parse_integer(value, &ack.invisible_ms)
    ack.complete = good and seen == ACK_REQUIRED


cdef enum HandlePart:
    HANDLE_POP_TIME = 1
    HANDLE_REVIVE_QUEUE = 3
    HANDLE_KIND = 4
    HANDLE_BROKER = 5
    HANDLE_QUEUE = 6


# The numbers of a handle: start offset, pop time, invisible time, revive queue id, kind of topic,
# broker name, queue id, offset, and what may follow them.
cdef bint read_handle(Slice text, AckHeader *ack) noexcept nogil:
    cdef const uint8_t *at = text.data
    cdef const uint8_t *end = text.data + text.length
    cdef const uint8_t *space
    cdef int64_t ignored
    cdef int32_t number = 0
    cdef Slice part
    cdef int32_t i
    for i in range(HANDLE_PARTS):
        if at > end:
            return False
        part.data = at
        space = <const uint8_t *> memchr(at, c" ", end - at)
        part.length = <int32_t> ((end if space == NULL else space) - at)
        at = part.data + part.length + 1
        if i == HANDLE_KIND:
            if part.length != 1 or not c"0" <= part.data[0] <= c"2":
                return False
        elif i == HANDLE_REVIVE_QUEUE or i == HANDLE_QUEUE:
            if not parse_int32(part, &number):
                return False
            if i == HANDLE_REVIVE_QUEUE:
                ack.revive_queue_id = number
                ack.ordered = number == ORDERED_REVIVE_QUEUE_ID
        elif i == HANDLE_POP_TIME:
            if not parse_integer(part, &ack.pop_ms):
                return False
        elif i != HANDLE_BROKER and not parse_integer(part, &ignored):
            return False
    return True
