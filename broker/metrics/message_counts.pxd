from libc.stdint cimport int64_t

cdef enum:
    BOUNDS_MAX = 8

# The kinds of messages, in the order of TYPES.
cdef enum MessageType:
    NORMAL_MESSAGE
    FIFO_MESSAGE
    DELAY_MESSAGE
    TRANSACTION_MESSAGE
    MESSAGE_TYPES


cdef class Histogram:
    cdef readonly tuple bounds
    """Upper ends of all buckets but the last."""
    cdef int count_of_bounds
    cdef int64_t[BOUNDS_MAX] ends
    cdef int64_t[BOUNDS_MAX + 1] buckets
    cdef int64_t total

    cdef void add(self, int64_t value, int64_t times) noexcept nogil


cdef class MessageCounts:
    cdef Histogram normal, fifo, delayed, transactional
    cdef readonly Histogram delays
    """Seconds from the birth of timed messages to their delivery time."""
    cdef readonly Histogram commits
    """Seconds from the birth of half messages to their commits."""
    cdef int64_t rolled_back

    # Counts the messages of a send, `size` bytes of records together.
    cdef void add_sent(self, MessageType kind, int64_t messages, int64_t size) noexcept nogil
    cdef void add_rollback(self) noexcept nogil
