from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from congreve.broker.commit.lane_commit cimport LaneCommit
from congreve.broker.pop.lanes.server cimport LanePopServer
from congreve.broker.pull.lanes.pulls cimport LanePulls
from congreve.broker.requests.stops cimport Stop
from congreve.broker.send.fast cimport SendPath
from congreve.broker.serving.fastpath cimport FastPath
from congreve.engine.index.index cimport KeyIndex
from congreve.remoting.lanes.connections cimport LaneConnection
from congreve.remoting.lanes.lane cimport Lane, LaneSink
from congreve.remoting.lanes.resting cimport RestingConnections


cdef enum:
    LANES_MAX = 63              # a queue has a watcher bit for each


cdef class LaneServer(LaneSink):
    cdef readonly FastPath path
    """The fast path of this lane."""
    cdef readonly LanePulls pulls
    """The pulls of this lane."""
    cdef readonly LanePopServer pops
    """The pops and acknowledgements of this lane."""
    cdef SendPath sends             # of `path`
    cdef RestingConnections resting
    cdef KeyIndex index             # None if the store has no index
    cdef object store
    cdef LaneCommit commit          # None with ASYNC_FLUSH
    cdef bint posts_appends
    cdef bint listens_to_backend    # for all lanes
    cdef int follower_fds[LANES_MAX]
    cdef int follower_count
    cdef void *lanes[LANES_MAX]     # the LaneServer of all lanes, with this one
    cdef int lane_count
    cdef object references          # they keep `lanes` alive
    cdef public uint32_t by_handlers
    """Listeners whose requests are all for handlers: a bit for each, by its place."""
    cdef public bint accepting
    """Whether the store takes messages now; the event loop sets it."""

    cdef bint serve_pop(self, Lane lane, LaneConnection *connection) noexcept nogil
    cdef bint serve_ack(self, LaneConnection *connection) noexcept nogil
    cdef bint serve_pull(self, Lane lane, LaneConnection *connection) noexcept nogil
    cdef bint resume(self, Stop stop) noexcept nogil
    cdef bint resume_with_gil(self, Stop stop) noexcept with gil
    cdef bint open_queue(self) except -1
    cdef bint make_room(self) except -1
    cdef bint pass_on(self, Lane lane, LaneConnection *connection) noexcept nogil
    cdef void find_queues(self) noexcept nogil
    cdef void finish(self, Lane lane, LaneConnection *connection) noexcept nogil
    cdef void notify_arrivals(self, Lane lane) noexcept nogil
    cdef void arrived_here(self, void *queue) noexcept nogil
    cdef void arrived(self, void *queue) noexcept nogil
    cdef void notify_lanes(self, void *queue, uint64_t watchers) noexcept nogil
