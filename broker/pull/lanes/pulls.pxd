from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from congreve.base.byte_buffer cimport ByteBuffer
from congreve.base.slices cimport Slice
from congreve.broker.figures.put_times cimport PutTimes, Stages
from congreve.broker.pull.lanes.polling cimport LanePolling, PullProgress, WaitingPull
from congreve.broker.quotas.quota_table cimport Charged, QuotaTable
from congreve.broker.pull.lanes.table cimport LanePull, LanePullTable
from congreve.engine.read.gather cimport FilePart, Gather
from congreve.remoting.lanes cimport entry_kinds
from congreve.remoting.lanes.connections cimport LaneConnection
from congreve.remoting.lanes.lane cimport Lane
from congreve.remoting.wire.fast_headers cimport PullHeader
from congreve.remoting.wire.frame cimport Frame, Header
from congreve.remoting.wire.header_decoder cimport HeaderDecoder


cdef enum:
    SERVE_AGAIN = entry_kinds.TO_SINK + 5   # a mailbox entry for the lane: a pull to serve now

# What becomes of a pull.
cdef enum Outcome:
    FOUND                   # this lane answers it
    WAITS                   # for messages
    UNREADABLE              # its messages have to be read from disk, or its queue repaired
    ENDS                    # the loop answers it, with any result


cdef class LanePulls:
    cdef readonly LanePullTable table
    """The pull plans of this lane."""
    cdef readonly int64_t answered
    """Pulls that were answered here."""
    cdef readonly LanePolling polling
    """The pulls that wait here for messages."""
    cdef uint64_t watcher       # the lane's bit among the watchers of a queue
    cdef int32_t ended_kind     # kinds of mailbox entries: pulls that the loop must answer now,
    cdef int32_t unreadable_kind    # and pulls that wait for the disk
    cdef bint stopping
    cdef HeaderDecoder headers  # of pulls that waited
    cdef Gather gather
    cdef QuotaTable quotas
    cdef bint metered           # some name has a limit
    cdef Charged charged        # the names that the current request is charged to then
    cdef PullHeader pull        # of the current request
    cdef ByteBuffer answers     # of the current connection
    cdef PutTimes times         # of the lane
    cdef int64_t answered_now   # pulls of the current chunk

    # Serves a pull. False: nothing was done, and the loop has to validate it.
    cdef bint serve(self, Lane lane, LaneConnection *connection, const Frame *frame,
                    const Header *header) noexcept nogil
    # Serves a pull that the loop gives back: its progress, and its frame.
    cdef void serve_again(self, Lane lane, LaneConnection *connection, const uint8_t *data,
                          int64_t size) noexcept nogil
    # Sends the answers.
    cdef void flush(self, Lane lane, LaneConnection *connection) noexcept nogil
    # Counts the pulls of a chunk.
    cdef void count_answers(self, LaneConnection *connection, const Stages *stages) noexcept nogil
    # Checks pulls that waited, and unmaps segments that the log has deleted. Returns how long the
    # lane may sleep, in ms.
    cdef int turn_ended(self, Lane lane) noexcept nogil
    # Answers all waiting pulls with an error, and lets no other pull wait.
    cdef void dismiss(self, Lane lane, const uint8_t *remark, int64_t length) noexcept nogil

    cdef Outcome look(self, LanePull *known, PullProgress *progress) noexcept nogil
    cdef void go_on(self, Lane lane, LaneConnection *connection, WaitingPull *waiting,
                    LanePull *known, Outcome outcome) noexcept nogil
    cdef void end(self, Lane lane, LaneConnection *connection, WaitingPull *waiting) noexcept nogil
    cdef void try_later(self, Lane lane, WaitingPull *waiting) noexcept nogil
    cdef void drop(self, WaitingPull *waiting) noexcept nogil
    cdef void commit(self, LanePull *known, PullProgress *progress) noexcept nogil
    cdef int64_t timeout_ms(self, const LanePull *known) noexcept nogil
    cdef bint scan(self, LanePull *known) noexcept nogil
    cdef bint look_with_gil(self, LanePull *known) noexcept with gil
    cdef int map_file(self, LanePull *known) except -1
    cdef bint answer(self, Lane lane, LaneConnection *connection, LanePull *known,
                     int32_t serialize_type, int32_t opaque) noexcept nogil
    # Sets the names whose quotas the current pull is charged to.
    cdef void meter(self, LaneConnection *connection, const Header *header) noexcept nogil
    cdef int64_t quota_wait(self) noexcept nogil
    cdef void postpone(self, Lane lane, LaneConnection *connection, WaitingPull *waiting,
                       LanePull *known, int64_t wait_ns) noexcept nogil
    cdef void refuse(self, Lane lane, LaneConnection *connection,
                     WaitingPull *waiting) noexcept nogil
    cdef void answer_error(self, Lane lane, LaneConnection *connection, WaitingPull *waiting,
                           int32_t code, Slice remark) noexcept nogil
    cdef void count(self, LanePull *known) noexcept nogil
    cdef void count_answer(self, LaneConnection *connection,
                           const PullProgress *progress) noexcept nogil
    cdef void wait(self, WaitingPull *waiting, LanePull *known) noexcept nogil
    cdef void serve_due(self, Lane lane, WaitingPull *waiting) noexcept nogil
    cdef void put_found(self, int32_t serialize_type, int32_t opaque) noexcept nogil
    cdef void send_from_file(self, Lane lane, LaneConnection *connection, int32_t serialize_type,
                             int32_t opaque, FilePart part) noexcept nogil
    cdef void release_segments(self) noexcept with gil
