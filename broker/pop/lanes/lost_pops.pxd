from libc.stdint cimport int64_t

from congreve.base.byte_buffer cimport ByteBuffer
from congreve.base.slices cimport Slice

# What is kept of an answered pop; its texts follow.
cdef struct AnsweredPop:
    int64_t connection
    int64_t answered_ms     # by the monotonic clock
    int64_t pop_ms
    int64_t group_length
    int64_t topic_length
    int64_t offsets_length


cdef class LostPops:
    cdef ByteBuffer answered    # AnsweredPops in order
    cdef ByteBuffer lost        # those whose connections are closed

    # Notes an answer to a pop of these names; `offsets` is its msgOffsetInfo.
    cdef void note(self, int64_t connection, int64_t now_ms, int64_t pop_ms, Slice group,
                   Slice topic, Slice offsets) noexcept nogil
    # The connection was closed: what was sent to it just now did not reach it.
    cdef void closed(self, int64_t connection, int64_t now_ms) noexcept nogil

    cdef void forget(self, int64_t now_ms) noexcept nogil
