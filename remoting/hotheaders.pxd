from libc.stdint cimport int32_t, int64_t

from congreve.remoting.frame cimport Header
from congreve.remoting.slices cimport Slice

cdef struct SendHeader:         # protocol.md 4.1, long and short names alike
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
    bint complete               # every required field was there and was a number where it must be

cdef struct PullHeader:         # protocol.md 5.1
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

cdef void read_send_header(const Header *header, bint short_names, SendHeader *send) noexcept nogil
cdef void read_pull_header(const Header *header, PullHeader *pull) noexcept nogil
