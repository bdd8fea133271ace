from libc.stdint cimport int32_t, int64_t

cdef enum:
    BUCKETS = 20
    RPC_BUCKETS = 10

# The requests that compiled code answers, as the metric rocketmq_rpc_latency tells them apart.
cdef enum Rpc:
    RPC_SEND
    RPC_SEND_V2
    RPC_BATCH
    RPC_END                 # of a transaction
    RPC_PULL                # that was answered at once
    RPC_WAITED_PULL         # that has waited for messages
    RPCS

# The requests of answers that are sent together, and the messages of their sends.
cdef struct Answered:
    int64_t messages
    int32_t[RPCS] requests


cdef inline void clear_answered(Answered *answered) noexcept nogil:
    cdef int i
    answered.messages = 0
    for i in range(<int> RPCS):
        answered.requests[i] = 0


cdef class PutTimes:
    cdef int64_t[BUCKETS] buckets
    cdef int64_t spent_ns
    cdef int64_t longest_ns
    cdef int64_t[RPCS][RPC_BUCKETS] rpc_buckets
    cdef int64_t[RPCS] rpc_spent_ns

    # Counts what was answered now and came at `begun_ns` of the monotonic clock.
    cdef void add(self, int64_t begun_ns, const Answered *answered) noexcept nogil
    # Counts requests that took `spent_ns`.
    cdef void add_requests(self, int rpc, int64_t spent_ns, int64_t requests) noexcept nogil
