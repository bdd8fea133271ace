from libc.stdint cimport int32_t, int64_t, uint8_t

cdef enum:
    BUCKETS = 20
    RPC_BUCKETS = 10

# The requests that compiled code answers, as the metric rocketmq_rpc_latency distinguishes them.
cdef enum Rpc:
    RPC_SEND
    RPC_SEND_V2
    RPC_BATCH
    RPC_END                 # of a transaction
    RPC_PULL                # that was answered at once
    RPC_WAITED_PULL         # that has waited for messages
    RPC_POP                 # that was answered at once
    RPC_WAITED_POP
    RPC_ACK                 # of a popped message
    RPC_BATCH_ACK           # of many
    RPC_CHANGE              # of its invisible time
    RPCS

# The requests of answers that are sent together, and the messages of their sends.
cdef struct Answered:
    int64_t messages
    bint by_grpc
    int32_t[RPCS] requests

# The log has slow sends (with ends of transactions) and slow pulls separately, so that many slow
# chunks of one kind do not hide one of the other.
cdef enum SlowKind:
    SLOW_SENDS
    SLOW_PULLS
    SLOW_KINDS

# When a chunk of requests reached each stage, by the monotonic clock in nanoseconds; 0: not known.
cdef struct Stages:
    int64_t arrived         # the lane's turn began, in which it read the chunk
    int64_t begun           # the work on the chunk began
    int64_t files           # how long new files and memory took
    int64_t appended        # its messages are in the log; its answers wait for the disk or a slave
    int64_t durable         # they are on this broker's disk


# A slow chunk that the event loop has not taken yet.
cdef struct SlowNote:
    int64_t noted           # not 0: there is one, and only the event loop may change it
    int64_t missed          # slow chunks since it was noted
    Stages stages
    Answered answered
    int64_t end_ns
    uint8_t[16] address
    int32_t address_length
    int32_t port


cdef inline void begin_stages(Stages *stages, int64_t now_ns) noexcept nogil:
    stages.arrived = stages.begun = now_ns
    stages.files = stages.appended = stages.durable = 0


cdef inline void clear_answered(Answered *answered) noexcept nogil:
    cdef int i
    answered.messages = answered.by_grpc = 0
    for i in range(<int> RPCS):
        answered.requests[i] = 0


cdef class PutTimes:
    cdef int64_t[BUCKETS] buckets
    cdef int64_t spent_ns
    cdef int64_t longest_ns
    # Of remoting's requests, then of those by gRPC.
    cdef int64_t[2 * RPCS][RPC_BUCKETS] rpc_buckets
    cdef int64_t[2 * RPCS] rpc_spent_ns

    cdef public int64_t slow_ns
    """The time from which on a chunk of requests is slow; at first none is."""
    cdef SlowNote[SLOW_KINDS] slow_notes

    # Counts what was answered at `now_ns`. Returns whether that was slow; then note_slow() comes
    # next.
    cdef bint add(self, const Stages *stages, const Answered *answered,
                  int64_t now_ns) noexcept nogil
    # Notes a slow chunk of this peer for the log, unless one of its kind is noted already.
    cdef void note_slow(self, const Stages *stages, const Answered *answered, int64_t now_ns,
                        const uint8_t *address, int32_t address_length,
                        int32_t port) noexcept nogil
    cdef object taken(self, SlowNote *note)
    # Counts requests that took `spent_ns`.
    cdef void add_requests(self, int rpc, int64_t spent_ns, int64_t requests,
                           bint by_grpc) noexcept nogil
