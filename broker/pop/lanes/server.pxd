from libc.stdint cimport int32_t, int64_t, uint64_t

from congreve.broker.commit.lane_commit cimport LaneCommit
from congreve.broker.figures.put_times cimport PutTimes, Stages
from congreve.broker.pop.lanes.acks cimport LaneAcks
from congreve.broker.pop.lanes.journal_writer cimport PopJournalWriter
from congreve.broker.pop.lanes.lost_pops cimport LostPops
from congreve.broker.pop.lanes.pops cimport LanePops, Outcome
from congreve.broker.pop.lanes.table cimport LanePop
from congreve.broker.pull.lanes.polling cimport LanePolling, WaitingPull
from congreve.broker.quotas.quota_table cimport QuotaTable
from congreve.remoting.lanes cimport entry_kinds
from congreve.remoting.lanes.connections cimport LaneConnection
from congreve.remoting.lanes.lane cimport Lane
from congreve.remoting.wire.frame cimport Frame, Header
from congreve.remoting.wire.header_decoder cimport HeaderDecoder

# Mailbox entries for the event loop.
cdef enum:
    ACKNOWLEDGED = entry_kinds.OF_SINK + 5
    POPPED = entry_kinds.OF_SINK + 6
    DUE_SOONER = entry_kinds.OF_SINK + 7
    POPS_LOST = entry_kinds.OF_SINK + 8


cdef enum:
    AT_ONCE = 64                # pops that one turn of the lane answers

# An answer to a pop that has waited; its bytes are in the buffer of answers.
cdef struct WokenPop:
    int64_t connection
    int64_t begun_ms
    int64_t begin
    int64_t end


cdef class LanePopServer:
    cdef readonly LanePops pops
    """Its pops."""
    cdef LaneAcks acks
    cdef PopJournalWriter journal
    cdef QuotaTable quotas
    cdef LostPops lost
    cdef readonly LanePolling polling
    """The pops that wait here for messages."""
    cdef uint64_t watcher       # the lane's bit among the watchers of a queue
    cdef bint stopping
    cdef bint accepting
    cdef HeaderDecoder headers  # of pops that waited
    cdef WokenPop[AT_ONCE] woken
    cdef int32_t woken_count
    cdef LaneCommit commit      # of the lane; None with ASYNC_FLUSH
    cdef PutTimes times         # of the lane
    cdef int64_t appended_end   # the log's end after what the chunk has changed; 0: nothing

    cdef void begin_chunk(self) noexcept nogil
    # Serve a pop, or an acknowledgement. False: nothing was done, and the event loop has to.
    cdef bint serve_pop(self, Lane lane, LaneConnection *connection, const Frame *frame,
                        const Header *header, Stages *stages) noexcept nogil
    cdef bint serve_ack(self, const Frame *frame, const Header *header) noexcept nogil
    # Writes the journal of what the chunk has changed, and sends the answers.
    cdef void finish(self, Lane lane, LaneConnection *connection, Stages *stages) noexcept nogil
    # Checks pops that waited, if the store is `accepting` changes. Returns how long the lane may
    # sleep, in ms.
    cdef int turn_ended(self, Lane lane, bint accepting) noexcept nogil
    # Ends all pops that wait, without messages, and lets no other pop wait.
    cdef void dismiss(self, Lane lane) noexcept nogil
    cdef void closed(self, LaneConnection *connection) noexcept nogil

    cdef Outcome serve_metered(self, LaneConnection *connection, const Frame *frame,
                               const Header *header) noexcept nogil
    cdef bint wait(self, Lane lane, LaneConnection *connection, const Frame *frame,
                   const Header *header) noexcept nogil
    cdef void watch(self, const LanePop *known) noexcept nogil
    cdef void wait_again(self, WaitingPull *waiting, LanePop *known) noexcept nogil
    cdef void serve_due(self, Lane lane, WaitingPull *waiting) noexcept nogil
    cdef bint may_pass(self, LanePop *known) noexcept nogil
    cdef void pass_on(self, Lane lane, WaitingPull *waiting) noexcept nogil
    cdef void try_later(self, Lane lane, WaitingPull *waiting) noexcept nogil
    cdef void send_woken(self, Lane lane) noexcept nogil
    cdef bint may_wait(self) noexcept nogil
    cdef void release_segments(self) noexcept with gil
    cdef void note_append(self) noexcept nogil
    cdef void send_pops(self, Lane lane, LaneConnection *connection, const Stages *stages,
                        bint written) noexcept nogil
    cdef void send_acks(self, Lane lane, LaneConnection *connection, Stages *stages,
                        bint written) noexcept nogil
    cdef void count(self, LaneConnection *connection, const Stages *stages, int rpc,
                    int32_t requests) noexcept nogil
