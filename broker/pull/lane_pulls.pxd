from libc.stdint cimport int64_t, uint8_t

from congreve.broker.fastpath.answer_buffer cimport AnswerBuffer
from congreve.broker.pull.pull_table cimport PullTable
from congreve.broker.pull.validated_pull cimport KEY_MAX
from congreve.engine.queue.gather cimport Gather
from congreve.remoting.wire.fast_headers cimport PullHeader
from congreve.remoting.wire.frame cimport Frame, Header

cdef enum LanePull:
    LANE_PULL_ANSWERED
    LANE_PULL_ROOM      # the answers' buffer is too small
    LANE_PULL_LOOP      # nothing was done: the event loop must serve it


cdef class LanePulls:
    cdef PullTable table
    cdef Gather gather
    cdef readonly int64_t answered
    """Pulls that this lane has answered."""
    cdef PullHeader pull        # of the request at hand
    cdef uint8_t key[KEY_MAX]

    # Answers a pull that finds messages near the end of the log, under the append lock.
    cdef LanePull serve(self, const Frame *frame, const Header *header,
                        AnswerBuffer *answers) noexcept nogil
    cdef void put_answer(self, const Frame *frame, const Header *header,
                         AnswerBuffer *answers) noexcept nogil
