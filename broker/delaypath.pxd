from libc.stdint cimport int32_t, int64_t, uint8_t

from congreve.broker.sendproperties cimport DeliveryWish
from congreve.engine.commitlog cimport CommitLog
from congreve.records.record cimport Message

# What became of a message that is for later.
cdef enum ParkStatus:
    PARK_DONE
    PARK_COLD               # nothing was done: it is for the Python handler
    PARK_QUEUE              # nothing was done: open_queue(), try again


cdef class DelayPath:
    cdef object store
    cdef CommitLog log
    cdef bytes cluster
    cdef uint8_t *more      # what a parked message has more than it was sent with
    cdef int64_t *delays_ms
    cdef int32_t levels
    cdef bint takes_times
    cdef int64_t furthest_ms
    cdef int64_t roll_ms
    cdef list kept          # the queues below, by their ids
    cdef void **queues      # borrowed, NULL until asked for: of each level, then of the timer topic

    # Of the last park().
    cdef void *queue        # borrowed: where the message belongs
    cdef int32_t place      # in `queues`

    # Turns a message that is ready to be appended into its parked form, for `queue`.
    cdef ParkStatus park(self, Message *message, const DeliveryWish *wish) noexcept nogil
    cdef int open_queue(self) except -1

    cdef bint for_level(self, Message *message, int64_t level, int64_t now) noexcept nogil
    cdef bint for_time(self, Message *message, const DeliveryWish *wish,
                       int64_t now) noexcept nogil
    cdef int64_t due_time(self, const DeliveryWish *wish, int64_t now) noexcept nogil
