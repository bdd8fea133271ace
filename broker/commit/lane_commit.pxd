from libc.stdint cimport int32_t, int64_t, uint8_t

from congreve.broker.figures.put_times cimport RPCS, Answered, PutTimes, Stages
from congreve.engine.replication.confirm_offset cimport ConfirmOffset
from congreve.remoting.lanes cimport entry_kinds
from congreve.remoting.lanes.connections cimport LaneConnection
from congreve.remoting.lanes.lane cimport Lane

cdef enum CommitFailure:
    # Positive values are errnos.
    COMMIT_LATE = -1            # not durable here in time
    COMMIT_NO_SLAVE = -2        # durable here, and no slave could be waited for
    COMMIT_SLAVE_LATE = -3      # durable here, not confirmed by a slave in time


cdef enum:
    HOLD = entry_kinds.TO_SINK + 4      # a mailbox entry for the lane: the answer of a handler

# What comes before the answer of a handler in its mailbox entry.
cdef struct HandlerAnswer:
    int64_t upto
    int64_t begun_ns
    int32_t[RPCS] requests      # the request, by its kind


# Answers of one connection that wait until messages up to `upto` may be acknowledged.
cdef struct HeldAnswers:
    int64_t upto
    int64_t deadline_ms
    Stages stages
    Answered answered
    int64_t connection
    uint8_t *data
    int64_t size
    bint lacks_slave            # no slave could be waited for: only the disk is


cdef class LaneCommit:
    cdef ConfirmOffset confirm
    cdef PutTimes times
    cdef int64_t timeout_ms
    cdef int32_t failed_kind    # the kind of mailbox entries with answers that are not durable
    cdef HeldAnswers *held      # a ring
    cdef int64_t capacity
    cdef int64_t first
    cdef int64_t count
    cdef int64_t on_disk        # of them; counted where slaves are waited for
    cdef int64_t last_upto      # of the last one
    cdef int64_t epoch          # of the last release; connections answered then have it as mark
    cdef int64_t awaited        # how many of them have not sent again
    cdef int64_t awake_until_ns
    cdef int32_t hurried
    cdef int32_t next_hurried
    cdef int64_t requested      # the end of what the backend was last told to write
    cdef int32_t writes_elsewhere
    cdef double write_ns        # moving mean

    # Sends the answers when the log up to `upto` is durable and, with SYNC_MASTER, confirmed by a
    # slave, in the order of these calls. They are about `answered`, appended at this moment.
    cdef void hold(self, Lane lane, LaneConnection *connection, const uint8_t *answers,
                   int64_t size, int64_t upto, const Stages *stages,
                   const Answered *answered) noexcept nogil
    # Holds the answer of a handler; `data` begins with a HandlerAnswer.
    cdef void hold_one(self, Lane lane, LaneConnection *connection, const uint8_t *data,
                       int64_t size) noexcept nogil
    # Sends all due answers; the lane calls it when the backend's eventfd is readable.
    cdef void release(self, Lane lane) noexcept nogil
    # Returns how long the lane may sleep, in ms.
    cdef int sleep_ms(self, Lane lane) noexcept nogil
    cdef void answer_done(self, Lane lane) noexcept nogil
    cdef void write(self, Lane lane) noexcept nogil
    cdef bint first_is_done(self) noexcept nogil
    cdef bint is_done(self, int64_t upto, bint lacks_slave) noexcept nogil
    cdef void answer(self, Lane lane, LaneConnection *connection, const uint8_t *answers,
                     int64_t size, bint lacks_slave) noexcept nogil
    cdef void note_durable(self) noexcept nogil
    cdef void fail_first(self, Lane lane, int32_t why) noexcept nogil
    cdef bint grow(self) noexcept nogil
