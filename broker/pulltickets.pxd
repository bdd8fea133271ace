from libc.stdint cimport int32_t, int64_t

from congreve.engine.consumequeue cimport ConsumeQueue
from congreve.engine.reader cimport TagFilter
from congreve.records.recordfilter cimport RecordFilter
from congreve.remoting.hotheaders cimport PullHeader


cdef class PullCounter:
    cdef readonly int64_t pulls
    cdef readonly int64_t messages
    cdef readonly int64_t size

    cpdef void add(self, int64_t messages, int64_t size) noexcept


cdef class PullTicket:
    cdef readonly object group
    cdef readonly object topic
    cdef readonly object subscription
    cdef readonly str message_model
    cdef readonly ConsumeQueue queue
    cdef readonly TagFilter tags
    cdef readonly RecordFilter records
    cdef readonly PullCounter counter
    cdef str group_name
    cdef str topic_name


cdef class PullTickets:
    cdef object config
    cdef object offsets
    cdef dict groups
    cdef dict topics
    cdef dict consumers
    cdef dict tickets
    cdef bytes key              # of the pull that find() was asked for last

    # The ticket of such a pull, None where there is none that still holds.
    cdef PullTicket find(self, const PullHeader *pull)
    # Keep this ticket for pulls like the one that find() was asked for last.
    cdef int keep(self, PullTicket ticket) except -1
    # Take the offset that a pull commits.
    cdef int commit(self, PullTicket ticket, const PullHeader *pull) except -1
    # Whether the checks behind a ticket come out as they did.
    cdef bint unchanged(self, PullTicket ticket) except -1
