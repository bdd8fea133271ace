from libc.stdint cimport int32_t, int64_t

from congreve.broker.figures.pull_counter cimport PullCounter
from congreve.engine.queue.consume_queue cimport ConsumeQueue
from congreve.engine.read.gather cimport TagFilter
from congreve.records.filter.record_filter cimport RecordFilter
from congreve.remoting.wire.fast_headers cimport PullHeader
from congreve.remoting.wire.header_decoder cimport HeaderDecoder


cdef enum:
    KEY_MAX = 32 * 1024     # bytes of a pull plan's key
    COMMIT_OFFSET = 1       # bits of a pull's sysFlag
    SUSPEND = 2
    SUBSCRIPTION = 4


cdef class PullPlan:
    cdef readonly object group
    """The group's settings."""
    cdef readonly object topic
    """The topic's settings."""
    cdef readonly object subscription
    """The subscription of the group's heartbeats; None when the request has its own."""
    cdef readonly str message_model
    """The group's message model, empty when the request has its own subscription."""
    cdef readonly ConsumeQueue queue
    """The queue to pull from."""
    cdef readonly TagFilter tags
    """The tag filter; None lets all messages pass."""
    cdef readonly RecordFilter records
    """The SQL92 filter; None lets all messages pass."""
    cdef readonly PullCounter counter
    """Counts what the group pulled from the topic."""
    cdef str group_name
    cdef str topic_name


cdef class PullPlans:
    cdef object config
    cdef HeaderDecoder headers
    cdef dict groups
    cdef dict topics
    cdef dict consumers
    cdef dict by_key
    cdef int64_t size           # bytes of their keys and filters
    # Lanes read these numbers without the GIL. A pull plan is still valid while `changes` is
    # the same; another `added` means that plans were added.
    cdef int64_t changes
    cdef int64_t added

    # Returns the pull plan with this key; None if there is none, or its checks changed.
    cdef PullPlan for_lane(self, bytes key)
    # Whether the loop answers with messages, too: it suggests from which broker to pull next.
    cdef bint by_loop(self) except -1
    # How long a pull waits for messages; -1: as long as its request says.
    cdef int64_t timeout_ms(self) except? -2
    # Returns whether its checks would have the same result now.
    cdef bint unchanged(self, PullPlan plan) except -1


# Writes the fields that a pull's checks depend on as one key; its length, -1 if it is too long.
cdef Py_ssize_t put_key(const PullHeader *pull, char *key) noexcept nogil
