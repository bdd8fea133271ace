from libc.stdint cimport int8_t, int32_t, int64_t

from congreve.base.slices cimport Slice
from congreve.remoting.wire.frame cimport Header

cpdef enum:
    INVISIBLE_MAX_MS = 43_200_000   # 12 hours: the longest time for which a pop hides a message

cdef enum:
    SEND_MESSAGE = 10
    SEND_MESSAGE_V2 = 310
    SEND_BATCH_MESSAGE = 320
    PULL_MESSAGE = 11
    END_TRANSACTION = 37
    LITE_PULL_MESSAGE = 361
    POP_MESSAGE = 200050
    ACK_MESSAGE = 200051
    BATCH_ACK_MESSAGE = 200151
    CHANGE_MESSAGE_INVISIBLETIME = 200053
    SEND_FIELDS = 13            # short names a to m
    HANDLE_PARTS = 8
    ORDERED_REVIVE_QUEUE_ID = 999   # in handles of ordered pops

cdef struct SendHeader:         # docs/formats/frame.md, long and short names alike
    Slice producer_group
    Slice topic
    Slice default_topic
    Slice properties
    int32_t default_topic_queues
    int32_t queue_id
    int32_t sys_flag
    int32_t flag
    int32_t reconsume_times
    int64_t born_timestamp
    bint batch
    bint complete               # every required field was present, and valid where it is a number

cdef struct PullHeader:         # docs/formats/frame.md
    Slice consumer_group
    Slice topic
    Slice subscription
    Slice expression_type
    int32_t queue_id
    int32_t max_count
    int32_t sys_flag
    int64_t queue_offset
    int64_t commit_offset
    int64_t suspend_timeout_ms
    int64_t sub_version
    bint complete

cdef struct PopHeader:          # PopMessageRequestHeader; times in ms
    Slice consumer_group
    Slice topic
    Slice expression
    Slice expression_type
    int32_t queue_id            # -1: all queues
    int32_t max_count
    int32_t init_mode
    int64_t invisible_ms
    int64_t poll_ms
    int64_t born_ms
    bint ordered
    bint complete

# AckMessageRequestHeader or ChangeInvisibleTimeRequestHeader, and numbers of its handle.
cdef struct AckHeader:
    Slice consumer_group
    Slice topic
    int32_t queue_id
    int64_t offset
    int64_t pop_ms
    int32_t revive_queue_id
    int64_t invisible_ms        # of a change; -1 without one
    bint ordered
    bint complete


cdef inline bint is_send(int32_t code) noexcept nogil:
    return code == SEND_MESSAGE_V2 or code == SEND_MESSAGE or code == SEND_BATCH_MESSAGE


cdef inline bint is_pull(int32_t code) noexcept nogil:
    return code == PULL_MESSAGE or code == LITE_PULL_MESSAGE


# Whether it is an acknowledgement or a change of the invisible time.
cdef inline bint is_ack(int32_t code) noexcept nogil:
    return code == ACK_MESSAGE or code == CHANGE_MESSAGE_INVISIBLETIME


# The index in `header.fields` of each short name's field; -1: absent. The last of a name counts.
cdef void send_places(const Header *header, int8_t *places) noexcept nogil
# From the values of the short names; no data: the header has no such field.
cdef void fill_send_header(const Slice *values, SendHeader *send) noexcept nogil
cdef void read_send_header(const Header *header, SendHeader *send) noexcept nogil
cdef void read_pull_header(const Header *header, PullHeader *pull) noexcept nogil
cdef void read_pop_header(const Header *header, PopHeader *pop) noexcept nogil
cdef void read_ack_header(const Header *header, AckHeader *ack) noexcept nogil
