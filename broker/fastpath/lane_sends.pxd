from libc.stdint cimport int64_t, uint8_t

from congreve.broker.fastpath.fastpath cimport FastPath, Stop
from congreve.broker.pull.lane_pulls cimport LanePulls
from congreve.broker.send.lane_commit cimport LaneCommit
from congreve.engine.index.index cimport KeyIndex
from congreve.remoting.lanes.connections cimport LaneConnection
from congreve.remoting.lanes.lane cimport Lane, LaneSink


cdef enum:
    FOLLOWERS_MAX = 64


cdef class LaneSends(LaneSink):
    cdef readonly FastPath path
    """The fast path of this lane."""
    cdef readonly LanePulls pulls
    """The pulls of this lane."""
    cdef KeyIndex index             # None where the store has none
    cdef object store
    cdef LaneCommit commit          # None with ASYNC_FLUSH
    cdef bint tells_appends
    cdef bint leads                 # listens to the backend, for all lanes and the loop
    cdef int follower_fds[FOLLOWERS_MAX]
    cdef int follower_count
    cdef public bint loop_waits
    """Whether the loop wants a MOVED_LETTER at each event of the backend."""
    cdef public bint accepting
    """Whether the store takes messages now; the event loop sets it."""

    cdef bint serve_pull(self, Lane lane, LaneConnection *connection) noexcept nogil
    cdef bint resume(self, Stop stop) noexcept nogil
    cdef bint resume_with_gil(self, Stop stop) noexcept with gil
    cdef int open_queue(self) except -1
    cdef int make_room(self) except -1
    cdef bint pass_on(self, Lane lane, LaneConnection *connection) noexcept nogil
    cdef void find_half_queue(self) noexcept nogil
    cdef void finish(self, Lane lane, LaneConnection *connection) noexcept nogil
    cdef void tell_arrivals(self, Lane lane) noexcept nogil
