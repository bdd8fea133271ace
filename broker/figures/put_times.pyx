"""How long sends and the other requests of the compiled paths take, counted in fixed buckets."""

cimport cython
from libc.stdint cimport INT64_MAX
from libc.string cimport memcpy, memset

from congreve.base.atomic cimport load_acquire, store_release
from congreve.base.clock cimport monotonic_ns
from congreve.records.host cimport Host
from congreve.records.packed_host cimport unpack_host

from congreve.broker.figures.slow_chunk import SlowChunk
from congreve.remoting.messages.codes import RequestCode

BOUNDS_US = (
    50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000,
    1_000_000, 2_000_000, 3_000_000, 4_000_000, 5_000_000, 10_000_000,
)
"""Upper ends of all buckets but the last, in microseconds; among them those of 4.9.4."""

RPC_BOUNDS_MS = (1, 3, 5, 7, 10, 100, 1_000, 2_000, 3_000)
"""The same of requests, in milliseconds (RocketMQ 5: RemotingMetricsManager)."""

NO_REQUESTS = (0,) * RPCS
"""No request of any kind, for count()."""

cdef int64_t[BUCKETS - 1] BOUNDS_NS
for number, bound in enumerate(BOUNDS_US):
    BOUNDS_NS[number] = bound * 1000

cdef int64_t[RPC_BUCKETS - 1] RPC_BOUNDS_NS
for number, bound in enumerate(RPC_BOUNDS_MS):
    RPC_BOUNDS_NS[number] = bound * 1_000_000

COMPILED = (  # in the order of RPC_SEND and the others
    (RequestCode.SEND_MESSAGE, False),
    (RequestCode.SEND_MESSAGE_V2, False),
    (RequestCode.SEND_BATCH_MESSAGE, False),
    (RequestCode.END_TRANSACTION, False),
    (RequestCode.PULL_MESSAGE, False),
    (RequestCode.PULL_MESSAGE, True),
    (RequestCode.POP_MESSAGE, False),
    (RequestCode.POP_MESSAGE, True),
    (RequestCode.ACK_MESSAGE, False),
    (RequestCode.BATCH_ACK_MESSAGE, False),
    (RequestCode.CHANGE_MESSAGE_INVISIBLETIME, False),
)
"""The requests that PutTimes counts, and whether they have waited for messages."""

cdef dict _RPCS = {code: rpc for rpc, (code, _) in enumerate(COMPILED[:RPC_PULL])}


def requests_of(int code):
    """One request of this code, as count() takes it; NO_REQUESTS for other codes than its own."""
    if code not in _RPCS:
        return NO_REQUESTS
    return tuple(int(each == _RPCS[code]) for each in range(<int> RPCS))


@cython.final
cdef class PutTimes:
    """Counts messages, and requests by their kind, by the time from the request to its answer.

    One thread counts, any thread reads. Of the chunks that take `slow_ns` or more it notes one of
    sends and one of pulls at a time, which the event loop takes and logs. (RocketMQ:
    StoreStatsService, putMessageDistributeTime; RocketMQ 5: RemotingMetricsManager.)
    """

    def __cinit__(self):
        memset(self.buckets, 0, sizeof(self.buckets))
        memset(self.rpc_buckets, 0, sizeof(self.rpc_buckets))
        memset(self.rpc_spent_ns, 0, sizeof(self.rpc_spent_ns))
        memset(self.slow_notes, 0, sizeof(self.slow_notes))
        self.slow_ns = INT64_MAX

    cdef bint add(self, const Stages *stages, const Answered *answered,
                  int64_t now_ns) noexcept nogil:
        cdef int64_t spent = now_ns - stages.begun
        cdef bint slow = now_ns - stages.arrived >= self.slow_ns
        cdef int i = 0
        for i in range(<int> RPCS):
            if answered.requests[i]:
                self.add_requests(i, spent, answered.requests[i], answered.by_grpc)
        if not answered.messages:
            return slow
        i = 0
        while i < BUCKETS - 1 and spent >= BOUNDS_NS[i]:
            i += 1
        store_release(&self.buckets[i], self.buckets[i] + answered.messages)
        store_release(&self.spent_ns, self.spent_ns + spent * answered.messages)
        if spent > self.longest_ns:
            store_release(&self.longest_ns, spent)
        return slow

    cdef void note_slow(self, const Stages *stages, const Answered *answered, int64_t now_ns,
                        const uint8_t *address, int32_t address_length,
                        int32_t port) noexcept nogil:
        cdef bint pulls = answered.requests[<int> RPC_PULL] + answered.requests[<int> RPC_POP] > 0
        cdef SlowNote *note = &self.slow_notes[<int> (SLOW_PULLS if pulls else SLOW_SENDS)]
        if load_acquire(&note.noted):
            store_release(&note.missed, note.missed + 1)
            return
        note.end_ns = now_ns
        note.stages, note.answered = stages[0], answered[0]
        memcpy(note.address, address, address_length)
        note.address_length, note.port = address_length, port
        note.missed = 0
        store_release(&note.noted, 1)

    def take_slow(self):
        """The slow chunks that were noted; then others may be noted."""
        found = [self.taken(&self.slow_notes[kind]) for kind in range(<int> SLOW_KINDS)]
        return [chunk for chunk in found if chunk is not None]

    cdef object taken(self, SlowNote *note):
        cdef Stages *at = &note.stages
        cdef int64_t worked, durable
        if not load_acquire(&note.noted):
            return None
        worked = at.appended if at.appended else note.end_ns
        durable = at.durable if at.durable else note.end_ns
        found = SlowChunk(
            requests={
                COMPILED[rpc][0].name: note.answered.requests[rpc]
                for rpc in range(<int> RPCS) if note.answered.requests[rpc]
            },
            messages=note.answered.messages,
            address=note.address[:note.address_length],
            port=note.port,
            by_grpc=bool(note.answered.by_grpc),
            queued_ns=at.begun - at.arrived,
            worked_ns=max(worked - at.begun - at.files, 0),
            files_ns=at.files,
            disk_ns=max(durable - at.appended, 0) if at.appended else 0,
            slave_ns=max(note.end_ns - durable, 0) if at.appended else 0,
            missed=load_acquire(&note.missed),
        )
        store_release(&note.noted, 0)
        return found

    cdef void add_requests(self, int rpc, int64_t spent_ns, int64_t requests,
                           bint by_grpc) noexcept nogil:
        cdef int i = 0
        if by_grpc:
            rpc += RPCS
        while i < RPC_BUCKETS - 1 and spent_ns > RPC_BOUNDS_NS[i]:
            i += 1
        store_release(&self.rpc_buckets[rpc][i], self.rpc_buckets[rpc][i] + requests)
        store_release(&self.rpc_spent_ns[rpc], self.rpc_spent_ns[rpc] + spent_ns * requests)

    def count(self, int64_t begun_ns, int64_t messages, requests=NO_REQUESTS, *,
              int64_t appended_ns=0, int64_t durable_ns=0, peer=None, bint by_grpc=False):
        """Count messages and requests, by kind, that arrived at `begun_ns` of the monotonic clock.

        Their messages were in the log at `appended_ns`, and on disk at `durable_ns`; 0: not known.
        `peer` has the packed address and the port of the client, for the log of slow requests.
        """
        cdef Answered answered
        cdef Stages stages
        cdef Host host
        cdef int64_t now = monotonic_ns()
        cdef int i
        clear_answered(&answered)
        begin_stages(&stages, begun_ns)
        stages.appended, stages.durable = appended_ns, durable_ns
        answered.messages, answered.by_grpc = messages, by_grpc
        for i in range(<int> RPCS):
            answered.requests[i] = requests[i]
        if self.add(&stages, &answered, now) and peer is not None:
            unpack_host(&host, peer)
            self.note_slow(&stages, &answered, now, host.address, host.length, host.port)

    @property
    def counts(self):
        """Messages in each bucket."""
        return [load_acquire(&self.buckets[i]) for i in range(BUCKETS)]

    @property
    def sum_ns(self):
        """The time of all messages together, in nanoseconds."""
        return load_acquire(&self.spent_ns)

    @property
    def max_ns(self):
        """The longest time, in nanoseconds."""
        return load_acquire(&self.longest_ns)

    @property
    def rpc_counts(self):
        """Requests in each bucket of RPC_BOUNDS_MS and after the last one, by kind; then those by
        gRPC."""
        return [
            [load_acquire(&self.rpc_buckets[rpc][i]) for i in range(RPC_BUCKETS)]
            for rpc in range(2 * <int> RPCS)
        ]

    @property
    def rpc_sums_ns(self):
        """The time of all requests together, in nanoseconds, as rpc_counts."""
        return [load_acquire(&self.rpc_spent_ns[rpc]) for rpc in range(2 * <int> RPCS)]
