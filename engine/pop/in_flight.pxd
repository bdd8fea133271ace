from libc.stdint cimport int64_t, uint8_t

from congreve.engine.pop.changes cimport Outcome, Pops
from congreve.engine.pop.journal cimport Journal
from congreve.engine.pop.state cimport Window


cdef class InFlight:
    cdef Pops pops
    cdef dict windows               # by group, topic and queue id
    cdef object limits              # PopLimits
    cdef Journal part               # of a snapshot
    cdef int64_t copied             # messages that were out in its windows

    cdef PopWindow make_window(self, str group, str topic, int queue_id, int64_t begin)
    cdef int drop_window(self, PopWindow window) except -1
    cdef int copy_window(self) noexcept nogil
    cdef void set_limits(self, int64_t times)
    cdef str too_many(self)
    cdef int repeat_all(self, const uint8_t *at, int64_t size) except -1


cdef class PopWindow:
    cdef InFlight owner
    cdef Pops *pops                 # of the owner
    cdef Window state
    cdef readonly str group
    """Of the consumers."""
    cdef readonly str topic
    """Of the queue; a retry topic has windows of its own."""
    cdef readonly int queue_id
    """In the topic."""
    cdef bytes name

    cdef object answer(self, Outcome outcome)
