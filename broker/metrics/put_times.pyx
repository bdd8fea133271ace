"""How long sends take, counted in fixed buckets."""

cimport cython
from libc.string cimport memset

from congreve.engine.atomic cimport load_acquire, store_release
from congreve.remoting.lanes.sockets cimport monotonic_ns

BOUNDS_US = (
    50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000,
    1_000_000, 2_000_000, 3_000_000, 4_000_000, 5_000_000, 10_000_000,
)
"""Upper ends of all buckets but the last, in microseconds; among them those of 4.9.4."""

cdef int64_t[BUCKETS - 1] BOUNDS_NS
for number, bound in enumerate(BOUNDS_US):
    BOUNDS_NS[number] = bound * 1000


@cython.final
cdef class PutTimes:
    """Counts messages by the time from their request to their answer.

    One thread counts, any thread reads. (RocketMQ: StoreStatsService, putMessageDistributeTime.)
    """

    def __cinit__(self):
        memset(self.buckets, 0, sizeof(self.buckets))

    cdef void add(self, int64_t begun_ns, int64_t messages) noexcept nogil:
        cdef int64_t spent
        cdef int i = 0
        if not messages:
            return
        spent = monotonic_ns() - begun_ns
        while i < BUCKETS - 1 and spent >= BOUNDS_NS[i]:
            i += 1
        store_release(&self.buckets[i], self.buckets[i] + messages)
        store_release(&self.spent_ns, self.spent_ns + spent * messages)
        if spent > self.longest_ns:
            store_release(&self.longest_ns, spent)

    def count(self, int64_t begun_ns, int64_t messages):
        """Count messages whose request came at `begun_ns` of the monotonic clock."""
        self.add(begun_ns, messages)

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
