from libc.stdint cimport int64_t

from congreve.remoting.lanes.connections cimport LaneConnection
from congreve.remoting.lanes.lane cimport Lane


cdef struct Rest:
    int64_t connection
    int64_t until_ms


cdef class RestingConnections:
    cdef int64_t rest_ms
    cdef Rest *rests            # a ring, in the order of their ends
    cdef int64_t first
    cdef int64_t count
    cdef int64_t capacity

    # Stops reading the connection for `rest_ms`; without memory it is read on.
    cdef void add(self, Lane lane, LaneConnection *connection) noexcept nogil
    # Reads the connections again whose rest is over. Returns how long the lane may sleep, in ms.
    cdef int turn(self, Lane lane) noexcept nogil
    cdef bint grow(self) noexcept nogil
