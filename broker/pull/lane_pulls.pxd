from libc.stdint cimport int32_t, int64_t, uint8_t

from congreve.broker.pull.lane_table cimport LanePull, LanePullTable
from congreve.engine.queue.gather cimport FilePart, Gather
from congreve.remoting.lanes.byte_buffer cimport ByteBuffer
from congreve.remoting.lanes.connections cimport LaneConnection
from congreve.remoting.lanes.lane cimport Lane
from congreve.remoting.wire.fast_headers cimport PullHeader
from congreve.remoting.wire.frame cimport Frame, Header


cdef class LanePulls:
    cdef readonly LanePullTable table
    """The pulls that this lane knows."""
    cdef readonly int64_t answered
    """Pulls that were answered here."""
    cdef Gather gather
    cdef PullHeader pull        # of the request at hand
    cdef ByteBuffer answers     # of the connection at hand

    # Serves a pull that finds messages in memory. False: nothing was done, it is for the loop.
    cdef bint serve(self, Lane lane, LaneConnection *connection, const Frame *frame,
                    const Header *header) noexcept nogil
    # Sends the answers.
    cdef void flush(self, Lane lane, LaneConnection *connection) noexcept nogil
    # Lets go of segments that the log has no more.
    cdef void turn_ended(self) noexcept nogil

    cdef bint look(self, LanePull *known) noexcept nogil
    cdef bint look_with_gil(self, LanePull *known) noexcept with gil
    cdef int map_file(self, LanePull *known) except -1
    cdef void note(self, LanePull *known) noexcept nogil
    cdef void put_found(self, int32_t serialize_type, int32_t opaque) noexcept nogil
    cdef void send_from_file(self, Lane lane, LaneConnection *connection, int32_t serialize_type,
                             int32_t opaque, FilePart part) noexcept nogil
    cdef void release_segments(self) noexcept with gil
