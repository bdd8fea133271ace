from libc.stdint cimport int32_t, int64_t, uint8_t

from congreve.broker.accounts.account_table cimport AccountTable
from congreve.broker.delay.fast cimport DelayPath
from congreve.broker.metrics.put_times cimport PutTimes
from congreve.broker.pull.fast cimport PullPath
from congreve.broker.send.properties cimport DeliveryWish, SendKind
from congreve.broker.transaction.fast cimport TransactionPath
from congreve.broker.fastpath.answer_buffer cimport AnswerBuffer
from congreve.broker.fastpath.arrivals cimport Arrivals
from congreve.broker.fastpath.topic_table cimport TopicEntry, TopicTable
from congreve.engine.log.commit_log cimport Appended, CommitLog
from congreve.records.record cimport Message
from congreve.remoting.lanes.sockets cimport monotonic_ns
from congreve.remoting.wire.frame cimport Frame, Header
from congreve.remoting.wire.header_decoder cimport HeaderDecoder
from congreve.remoting.wire.fast_headers cimport SendHeader
from congreve.remoting.transport.frame_reader cimport FrameSink
from congreve.remoting.wire.slices cimport Slice

# The reason why run() returns to code with the GIL.
cdef enum Stop:
    STOP_NEXT_FRAME     # the frame is served; run() continues and never returns this
    STOP_DONE           # the rest is not a complete frame
    STOP_UNFRAMEABLE
    STOP_COLD           # this frame is for the Python handlers
    STOP_PULL           # this frame is a pull
    STOP_OUT            # the answers' buffer is too small for this frame's answer
    STOP_QUEUE          # the topic table does not have this queue yet
    STOP_PARK_QUEUE     # the same for a queue of delayed messages
    STOP_QUEUE_ROOM     # the queue needs its next file
    STOP_SEGMENT        # the log needs its next segment
    STOP_NOTIFY         # this frame is served, and the list of arrivals is full
    STOP_PIECE          # others may append now

cdef enum:
    UNKNOWN_CODE = -1   # of a frame whose header cannot be read here


cdef class FastPath(FrameSink):
    cdef object store
    cdef object group_commit
    cdef object arrived                 # called with a watched queue or a parking queue
    cdef CommitLog log
    cdef HeaderDecoder headers
    cdef AccountTable accounts          # None without access control
    cdef PullPath pulls
    cdef TopicTable topics
    cdef TransactionPath transactions
    cdef DelayPath delays
    cdef bint sync_flush
    cdef bint accepting
    cdef int32_t max_message_size

    # The current frame.
    cdef Frame frame
    cdef Header header
    cdef SendHeader send
    cdef SendKind kind
    cdef DeliveryWish wish
    cdef Message message
    cdef Appended appended
    cdef TopicEntry *topic
    cdef void *full_queue               # borrowed: the queue of STOP_QUEUE_ROOM, for a message
    cdef Slice full_topic               # to this topic
    cdef int32_t full_queue_id          # and queue
    cdef uint8_t *properties            # room for two property strings

    # Constants of this broker.
    cdef tuple constant_bytes           # the bytes that slices below and in `message` point into
    cdef Slice cluster                  # the property CLUSTER

    # The current chunk.
    cdef Py_ssize_t at
    cdef AnswerBuffer answers
    cdef int64_t appended_end
    cdef int64_t begun_ns               # by the monotonic clock
    cdef int64_t chunk_messages
    cdef int64_t now_ms                 # all records of one run() have this time
    cdef Arrivals arrivals

    cdef readonly int64_t put_messages
    """Messages appended here, members of batches included."""
    cdef readonly int64_t put_bytes
    """Bytes of the records appended here."""
    cdef readonly int64_t put_batches
    """Batches appended here."""
    cdef readonly PutTimes put_times
    """How long sends took whose answers did not wait in GroupCommit."""
    cdef readonly int64_t holds
    """How often the append lock was held here, each time for some 64 KiB of requests at most."""

    cdef inline void begin_chunk(self) noexcept nogil:
        self.at = self.appended_end = self.chunk_messages = 0
        self.begun_ns = monotonic_ns()
        self.answers.used = self.arrivals.count = 0

    cdef Stop run(self, const uint8_t *data, Py_ssize_t available) noexcept nogil
    cdef Stop serve_frame(self) noexcept nogil
    cdef Stop serve_send(self) noexcept nogil
    cdef bint is_ordinary_send(self) noexcept nogil
    cdef bint is_half(self) noexcept nogil
    cdef Stop park(self) noexcept nogil
    cdef Stop append(self, void *queue) noexcept nogil
    cdef Stop serve_end(self) noexcept nogil
    cdef int resume(self, Stop stop, object connection) except -1
    cdef bint room_made(self, bint in_log) except -1
    cdef int answer_cold(self, object connection) except -1
    cdef Py_ssize_t answer_room(self) noexcept nogil
