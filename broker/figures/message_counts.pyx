"""What is counted about the messages of a topic: sizes by type, delays, ends of transactions."""

cimport cython

from congreve.base.atomic cimport add_relaxed, load_acquire

TYPES = ("normal", "fifo", "delay", "transaction")
"""The types of messages (RocketMQ 5: TopicMessageType)."""

SIZE_BOUNDS = (1 << 10, 4 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20)
"""Bytes of a record (RocketMQ 5: BrokerMetricsManager.registerMetricsView)."""
COMMIT_BOUNDS_S = (5, 60, 600, 3_600, 12 * 3_600, 24 * 3_600)
DELAY_BOUNDS_S = (60, 600, 3_600, 12 * 3_600, 24 * 3_600, 3 * 24 * 3_600)

cdef int64_t[BUCKETS_OF_SIZES - 1] SIZES
cdef int64_t[BUCKETS_OF_SIZES - 1] COMMITS
cdef int64_t[BUCKETS_OF_SIZES - 1] DELAYS
for number in range(BUCKETS_OF_SIZES - 1):
    SIZES[number] = SIZE_BOUNDS[number]
    COMMITS[number] = COMMIT_BOUNDS_S[number]
    DELAYS[number] = DELAY_BOUNDS_S[number]


cdef inline void count(Histogram *histogram, const int64_t *bounds, int64_t value,
                       int64_t times) noexcept nogil:
    """Count a value; one on a bound is in the bucket below it."""
    cdef int i = 0
    while i < BUCKETS_OF_SIZES - 1 and value > bounds[i]:
        i += 1
    add_relaxed(&histogram.buckets[i], times)
    add_relaxed(&histogram.sum, value * times)


cdef object counted(const Histogram *histogram):
    """The values in each bucket, and their sum; None without a value."""
    cdef int64_t values = 0
    cdef int i
    for i in range(BUCKETS_OF_SIZES):
        values += load_acquire(&histogram.buckets[i])
    if not values:
        return None
    counts = [load_acquire(&histogram.buckets[i]) for i in range(BUCKETS_OF_SIZES)]
    return counts, load_acquire(&histogram.sum)


@cython.final
cdef class TopicCounts:
    """Counts the messages that a topic gets. Any thread counts and reads.

    (RocketMQ 5: BrokerMetricsManager.)
    """

    cdef void add_sent(self, MessageType kind, int64_t messages, int64_t size) noexcept nogil:
        count(&self.size_histograms[<int> kind], SIZES, size // max(messages, 1), messages)

    cdef void add_delay(self, int64_t seconds) noexcept nogil:
        count(&self.delay_histogram, DELAYS, seconds, 1)

    cdef void add_commit(self, int64_t seconds) noexcept nogil:
        count(&self.commit_histogram, COMMITS, seconds, 1)

    cdef void add_rollback(self) noexcept nogil:
        add_relaxed(&self.rolled_back, 1)

    def count_sent(self, str kind not None, int64_t messages, int64_t size):
        """Count messages of a type in TYPES, `size` bytes of records together."""
        self.add_sent(<MessageType> <int> TYPES.index(kind), messages, size)

    def count_delay(self, int64_t seconds):
        """Count a timed message, by the seconds from its birth to its delivery time."""
        self.add_delay(seconds)

    def count_commit(self, int64_t seconds):
        """Count a committed half message, by the seconds from its birth to the commit."""
        self.add_commit(seconds)

    def count_rollback(self):
        """Count a half message that was rolled back."""
        self.add_rollback()

    @property
    def sizes(self):
        """Records by size in SIZE_BOUNDS and above, and their bytes, for types with a message."""
        found = {}
        for i, kind in enumerate(TYPES):
            counts = counted(&self.size_histograms[i])
            if counts is not None:
                found[kind] = counts
        return found

    @property
    def delays(self):
        """Timed messages by their delay in DELAY_BOUNDS_S and above, and its sum in seconds; None
        without one."""
        return counted(&self.delay_histogram)

    @property
    def commits(self):
        """Committed half messages by their age in COMMIT_BOUNDS_S and above, and its sum; None
        without one."""
        return counted(&self.commit_histogram)

    @property
    def rollbacks(self):
        """Half messages that were rolled back."""
        return load_acquire(&self.rolled_back)
