from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from congreve.base.byte_buffer cimport ByteBuffer
from congreve.remoting.lanes.busy_poll cimport BusyPoll
from congreve.remoting.lanes.connections cimport ConnectionTable, LaneConnection, Listeners
from congreve.remoting.lanes.handle cimport LaneHandle
from congreve.remoting.lanes.mailbox cimport Mailbox, MailboxEntry

cdef enum:
    UNFRAMEABLE = -1            # result of LaneSink.take()


cdef class LaneSink:
    cdef int event_fd           # an eventfd that the sink reads, or -1
    cdef Mailbox mailbox        # the lane's, which sets it; the sink handles kinds from TO_SINK
    # Takes whole frames from a connection's bytes, in the lane's thread. Returns the number of
    # bytes taken, or UNFRAMEABLE. It answers with lane.put(), or gives a frame to the loop with
    # lane.pass_frame(); if that returns False it stops before this frame. A sink with
    # entries of its own about connections lets no frame be late.
    cdef int64_t take(self, Lane lane, LaneConnection *connection, const uint8_t *data,
                      int64_t available) noexcept nogil
    # Called at the end of each turn of the lane. Returns how long epoll may sleep, in ms; 0: not
    # at all.
    cdef int turn_ended(self, Lane lane) noexcept nogil
    # Called when `event_fd` is readable.
    cdef void readable(self, Lane lane) noexcept nogil
    # Called with a mailbox entry from another thread for the sink.
    cdef void handle_entry(self, Lane lane, const MailboxEntry *entry) noexcept nogil
    # Called before a connection is closed.
    cdef void closed(self, LaneConnection *connection) noexcept nogil


cdef class Lane:
    cdef LaneSink sink
    cdef Mailbox to_loop
    cdef Mailbox to_lane
    cdef int epoll
    cdef Listeners listeners
    cdef bint may_listen
    cdef bint stopping
    cdef ConnectionTable table      # sinks call its find()
    cdef readonly LaneHandle handle
    """The event loop's end of the lane."""
    cdef uint8_t *input
    cdef ByteBuffer frames      # of the calls that one read brought
    cdef int64_t now_ms
    cdef int64_t turn_left      # bytes that this turn may still read
    cdef BusyPoll busy_poll         # sinks ask its is_allowed()
    cdef bint polls             # the turn read a small chunk
    cdef int64_t next_check_ms
    cdef int64_t unfinished_max
    cdef int64_t crowded_bytes  # of incomplete frames, beyond which large ones wait
    cdef int64_t untold         # open connections that the loop does not know of
    cdef readonly int64_t turns
    """Waits of epoll so far."""
    cdef readonly int64_t connections
    """Open connections."""
    cdef readonly int64_t cut_count
    """Connections that were closed for incomplete frames."""

    # Called by sinks.
    cdef void put(self, LaneConnection *connection, const uint8_t *data,
                  int64_t length) noexcept nogil
    cdef bint pass_frame(self, LaneConnection *connection, const uint8_t *data, int64_t size,
                         bint ordered, bint may_be_late) noexcept nogil
    cdef void post(self, int32_t kind, int64_t connection, const void *data, int64_t size,
                   int32_t number) noexcept nogil

    cdef int serve(self) noexcept nogil
    cdef void serve_connection(self, LaneConnection *connection, uint32_t events) noexcept nogil
    cdef int sleep_ms(self, int wanted) noexcept nogil
    cdef void accept_all(self, int32_t listener) noexcept nogil
    cdef void begin(self, LaneConnection *connection, int32_t listener) noexcept nogil
    cdef void adopt(self, const MailboxEntry *entry) noexcept nogil
    cdef bint decide(self, LaneConnection *connection) noexcept nogil
    cdef bint hand_over(self, LaneConnection *connection) noexcept nogil
    cdef void read(self, LaneConnection *connection) noexcept nogil
    cdef void take(self, LaneConnection *connection, const uint8_t *data,
                   int64_t available) noexcept nogil
    cdef void take_http2(self, LaneConnection *connection, const uint8_t *data,
                         int64_t length) noexcept nogil
    cdef void flush_http2(self, LaneConnection *connection) noexcept nogil
    cdef void leave_http2(self) noexcept nogil
    cdef void write_out(self, LaneConnection *connection) noexcept nogil
    cdef void count_unsent(self, LaneConnection *connection) noexcept nogil
    cdef void resume(self, LaneConnection *connection) noexcept nogil
    cdef void watch(self, LaneConnection *connection) noexcept nogil
    cdef void tell_opened(self, LaneConnection *connection) noexcept nogil
    cdef void close(self, LaneConnection *connection, int error) noexcept nogil
    cdef void read_entries(self) noexcept nogil
    cdef void handle_entry(self, MailboxEntry *entry) noexcept nogil
    cdef void check_timeouts(self) noexcept nogil
    cdef void cut(self, LaneConnection *connection, int32_t why) noexcept nogil
    cdef void shed(self, int64_t upto) noexcept nogil
