from libc.stdint cimport int32_t, int64_t

from congreve.remoting.lanes.connections cimport ConnectionTable
from congreve.remoting.lanes.mailbox cimport Mailbox


cdef class LaneHandle:
    cdef Mailbox to_loop
    cdef Mailbox to_lane
    cdef ConnectionTable connections

    cdef int post(self, int32_t kind, int64_t connection) except -1
