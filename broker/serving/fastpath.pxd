from libc.stdint cimport uint8_t

from congreve.base.clock cimport monotonic_ns
from congreve.broker.accounts.account_table cimport AccountTable
from congreve.broker.delay.fast cimport DelayPath
from congreve.broker.figures.put_times cimport PutTimes, Stages, begin_stages
from congreve.broker.requests.stops cimport Stop
from congreve.broker.requests.topic_table cimport TopicTable
from congreve.broker.send.fast cimport SendPath
from congreve.broker.transaction.fast cimport TransactionPath
from congreve.engine.log.commit_log cimport CommitLog
from congreve.remoting.wire.fast_headers cimport SendHeader
from congreve.remoting.wire.frame cimport Frame, Header
from congreve.remoting.wire.header_decoder cimport HeaderDecoder

cdef enum:
    UNKNOWN_CODE = -1   # of a frame whose header cannot be read here


cdef class FastPath:
    cdef CommitLog log
    cdef HeaderDecoder headers
    cdef AccountTable accounts          # None without access control
    cdef readonly SendPath sends
    """Its sends, and what it has appended."""
    cdef TopicTable topics
    cdef TransactionPath transactions
    cdef DelayPath delays
    cdef bint answers_wait

    # The current frame.
    cdef Frame frame
    cdef Header header
    cdef SendHeader send_header

    # The current chunk.
    cdef Py_ssize_t at
    cdef bint of_calls          # frames that a codec has made of calls which it has checked
    cdef Stages stages

    cdef readonly PutTimes put_times
    """How long requests took whose answers did not wait in LaneCommit."""

    cdef inline void begin_chunk(self) noexcept nogil:
        self.at = 0
        begin_stages(&self.stages, monotonic_ns())
        self.sends.begin_chunk(self.stages.begun)

    # Serves ordinary frames, and returns why it stopped at the frame at `at`.
    cdef Stop run(self, const uint8_t *data, Py_ssize_t available) noexcept nogil
    cdef Stop prepare(self, const uint8_t *data, Py_ssize_t available) noexcept nogil
    cdef Stop prepare_piece(self, const uint8_t *data, Py_ssize_t available) noexcept nogil
    cdef void decode_again(self, const uint8_t *data, Py_ssize_t available) noexcept nogil
    cdef Stop prepare_frame(self) noexcept nogil
    cdef bint is_permitted(self) noexcept nogil
    cdef Stop serve_alone(self) noexcept nogil
    cdef Stop serve_end(self) noexcept nogil
