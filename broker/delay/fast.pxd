from libc.stdint cimport int32_t, int64_t, uint8_t

from congreve.base.slices cimport Slice
from congreve.broker.requests.properties cimport DeliveryWish
from congreve.engine.log.commit_log cimport CommitLog
from congreve.records.record cimport Message

# The result of parking a message.
cdef enum ParkStatus:
    PARK_DONE
    PARK_PYTHON               # without a change: the Python handler serves it
    PARK_QUEUE              # without a change: call open_queue() and retry


cdef class DelayPath:
    cdef object store
    cdef CommitLog log
    cdef bytes cluster
    cdef bytes broker_name
    cdef Slice broker
    cdef uint8_t *added_properties  # the properties that parking adds
    cdef uint8_t *handle_text
    cdef uint8_t *handle
    cdef Py_ssize_t handle_size_max
    cdef int64_t *delays_ms
    cdef int32_t levels
    cdef bint takes_times
    cdef int64_t furthest_ms
    cdef int64_t roll_ms
    cdef list opened_queues     # owns the queues below
    cdef void **queues      # borrowed, NULL until opened: of each level, then of the timer topic

    # Of the last park().
    cdef void *queue        # borrowed: the queue of the message
    cdef int32_t place      # in `queues`
    cdef int64_t due_ms     # of a timed message
    cdef Slice recall_handle    # of a timed message; no length: it has none

    # Turns a message that is ready to be appended into its parked form, for `queue`.
    cdef ParkStatus park(self, Message *message, const DeliveryWish *wish) noexcept nogil
    cdef int open_queue(self) except -1

    cdef bint for_level(self, Message *message, int64_t level, int64_t now) noexcept nogil
    cdef bint for_time(self, Message *message, const DeliveryWish *wish,
                       int64_t now) noexcept nogil
    cdef int64_t due_time(self, const DeliveryWish *wish, int64_t now) noexcept nogil
