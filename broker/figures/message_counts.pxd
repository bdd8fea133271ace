from libc.stdint cimport int64_t

cdef enum:
    BUCKETS_OF_SIZES = 7        # as many as of delays and of commits

# The kinds of messages, in the order of TYPES.
cdef enum MessageType:
    NORMAL_MESSAGE
    FIFO_MESSAGE
    DELAY_MESSAGE
    TRANSACTION_MESSAGE
    MESSAGE_TYPES

# One cache line.
cdef struct Histogram:
    int64_t[BUCKETS_OF_SIZES] buckets
    int64_t sum


cdef class TopicCounts:
    cdef Histogram[MESSAGE_TYPES] size_histograms
    cdef Histogram delay_histogram
    cdef Histogram commit_histogram
    cdef int64_t rolled_back

    # Counts the messages of a send, `size` bytes of records together.
    cdef void add_sent(self, MessageType kind, int64_t messages, int64_t size) noexcept nogil
    # Counts a timed message, by the seconds from its birth to its delivery time.
    cdef void add_delay(self, int64_t seconds) noexcept nogil
    # Counts a committed half message, by the seconds from its birth to the commit.
    cdef void add_commit(self, int64_t seconds) noexcept nogil
    cdef void add_rollback(self) noexcept nogil
