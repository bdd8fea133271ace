"""What one thread counts about messages: sizes by type, delays, ends of transactions."""

cimport cython
from libc.string cimport memset

from congreve.engine.atomic cimport load_acquire, store_release

TYPES = ("normal", "fifo", "delay", "transaction")
"""The types of messages (RocketMQ 5: TopicMessageType)."""

SIZE_BOUNDS = (1 << 10, 4 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20)
"""Bytes of a record (RocketMQ 5: BrokerMetricsManager.registerMetricsView)."""
COMMIT_BOUNDS_S = (5, 60, 600, 3_600, 12 * 3_600, 24 * 3_600)
DELAY_BOUNDS_S = (60, 600, 3_600, 12 * 3_600, 24 * 3_600, 3 * 24 * 3_600)


@cython.final
cdef class Histogram:
    """Counts values in buckets; one thread counts, any thread reads.

    A value on a bound is in the bucket below it. (RocketMQ 5: Aggregation.explicitBucketHistogram.)
    """

    def __cinit__(self, tuple bounds not None):
        self.bounds = bounds
        self.count_of_bounds = <int> len(bounds)
        for number, bound in enumerate(bounds):
            self.ends[number] = bound
        memset(self.buckets, 0, sizeof(self.buckets))

    cdef void add(self, int64_t value, int64_t times) noexcept nogil:
        cdef int i = 0
        while i < self.count_of_bounds and value > self.ends[i]:
            i += 1
        store_release(&self.buckets[i], self.buckets[i] + times)
        store_release(&self.total, self.total + value * times)

    def count(self, int64_t value, int64_t times=1):
        """Count a value."""
        self.add(value, times)

    @property
    def counts(self):
        """How many values are in each bucket, and after the last bound."""
        return [load_acquire(&self.buckets[i]) for i in range(self.count_of_bounds + 1)]

    @property
    def sum(self):
        """The sum of all values."""
        return load_acquire(&self.total)


@cython.final
cdef class MessageCounts:
    """Counts the messages that one thread stores; any thread reads.

    (RocketMQ 5: BrokerMetricsManager.)
    """

    def __cinit__(self):
        self.normal, self.fifo = Histogram(SIZE_BOUNDS), Histogram(SIZE_BOUNDS)
        self.delayed, self.transactional = Histogram(SIZE_BOUNDS), Histogram(SIZE_BOUNDS)
        self.delays = Histogram(DELAY_BOUNDS_S)
        self.commits = Histogram(COMMIT_BOUNDS_S)

    cdef void add_sent(self, MessageType kind, int64_t messages, int64_t size) noexcept nogil:
        size = size // max(messages, 1)
        if kind == NORMAL_MESSAGE:
            self.normal.add(size, messages)
        elif kind == FIFO_MESSAGE:
            self.fifo.add(size, messages)
        elif kind == DELAY_MESSAGE:
            self.delayed.add(size, messages)
        else:
            self.transactional.add(size, messages)

    cdef void add_rollback(self) noexcept nogil:
        store_release(&self.rolled_back, self.rolled_back + 1)

    def count_sent(self, str kind not None, int64_t messages, int64_t size):
        """Count messages of a type in TYPES, `size` bytes of records together."""
        self.add_sent(<MessageType> <int> TYPES.index(kind), messages, size)

    def count_rollback(self):
        """Count a half message that was rolled back."""
        self.add_rollback()

    @property
    def sizes(self):
        """Bytes of records, by type."""
        found = (self.normal, self.fifo, self.delayed, self.transactional)
        return dict(zip(TYPES, found, strict=True))

    @property
    def rollbacks(self):
        """Half messages that were rolled back."""
        return load_acquire(&self.rolled_back)
