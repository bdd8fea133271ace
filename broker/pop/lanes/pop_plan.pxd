from libc.stdint cimport int32_t, int64_t

from congreve.broker.figures.pull_counter cimport PullCounter
from congreve.broker.pull.lanes.polling cimport WaitCounts
from congreve.engine.pop.state cimport Window
from congreve.engine.read.gather cimport TagFilter
from congreve.records.filter.record_filter cimport RecordFilter
from congreve.remoting.wire.fast_headers cimport PopHeader

cdef enum:
    KEY_MAX = 32 * 1024         # bytes of a pop plan's key

# A queue that a pop takes from; both are borrowed.
cdef struct PopQueue:
    void *queue                 # a ConsumeQueue
    Window *window              # NULL: the group only pulls this one
    int64_t read_to             # then: the offset that it has committed
    int32_t kind                # a PoppedFrom; -1: only the event loop takes what is here


cdef class WaitCounter:
    cdef WaitCounter total      # of all groups and topics; None for that one
    cdef WaitCounts counts


cdef class PopPlan:
    cdef readonly object group
    """The group's settings."""
    cdef readonly object topic
    """The topic's settings."""
    cdef readonly dict retry_topics
    """The settings of the topics with what comes again, None for those that are not there."""
    cdef readonly TagFilter tags
    """The tag filter; None lets all messages pass."""
    cdef readonly RecordFilter records
    """The SQL92 filter; None lets all messages pass."""
    cdef readonly PullCounter counter
    """Counts what the group took from the topic."""
    cdef readonly bint by_priority
    """Whether the queues are taken from in their order."""
    cdef WaitCounter waiting
    cdef list places            # of `queues`: group, topic and queue id
    cdef list windows           # and their windows
    cdef list opened            # and ConsumeQueues
    cdef PopQueue *queues       # those of the topic, then those with what comes again
    cdef int32_t count          # of the former
    cdef int32_t retries        # of the latter


cdef class PopPlans:
    cdef object config
    cdef dict groups
    cdef dict topics
    cdef dict pulled
    cdef object find
    cdef object committed
    cdef dict read_to           # of those queues that groups only pull
    cdef dict by_key
    cdef int64_t size           # bytes of their keys and filters
    # Lanes read these numbers without the GIL, as those of PullPlans.
    cdef int64_t changes
    cdef int64_t added

    # Returns the pop plan with this key; None if there is none, or its checks changed.
    cdef PopPlan for_lane(self, bytes key)
    cdef bint unchanged(self, PopPlan plan) except -1
    cdef bint note_read(self, PopPlan plan) except -1
    # How many pops of one group and topic may wait, and how many of all.
    cdef int64_t waiting_max(self) except -1
    cdef int64_t all_waiting_max(self) except -1
    # How many of 100 such pops look first for what comes again.
    cdef int32_t retries_first(self, PopPlan plan) except -1
    # The direction in which such pops go over their queues, 0 for those that begin with another
    # one each.
    cdef int32_t direction(self, PopPlan plan) except? -2


# Writes the fields that a pop's checks depend on as one key; its length, -1 if it is too long.
cdef Py_ssize_t put_key(const PopHeader *pop, char *key) noexcept nogil
