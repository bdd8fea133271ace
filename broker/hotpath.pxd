from libc.stdint cimport int32_t, int64_t, uint8_t

from congreve.broker.delaypath cimport DelayPath
from congreve.broker.pullpath cimport PullPath
from congreve.broker.sendproperties cimport DeliveryWish
from congreve.broker.transactionpath cimport TransactionPath
from congreve.broker.topictable cimport TopicEntry, TopicTable
from congreve.engine.commitlog cimport Appended, CommitLog
from congreve.records.host cimport MESSAGE_ID_MAX
from congreve.records.record cimport Host, Message
from congreve.remoting.frame cimport Frame, Header
from congreve.remoting.headerdecoder cimport HeaderDecoder
from congreve.remoting.hotheaders cimport SendHeader
from congreve.remoting.inbox cimport FrameSink
from congreve.remoting.slices cimport Slice

# Why run() came back to code that holds the GIL.
cdef enum Stop:
    STOP_NEXT_FRAME     # nothing to do here: go on (never leaves run())
    STOP_DONE           # what is left is no whole frame
    STOP_UNFRAMEABLE
    STOP_COLD           # this frame is for the Python handlers
    STOP_PULL           # this frame is a pull
    STOP_OUT            # the answers' buffer is too small for this frame's answer
    STOP_QUEUE          # the queue was never used since its topic came into the table
    STOP_PARK_QUEUE     # the same for a queue of messages that wait
    STOP_QUEUE_ROOM
    STOP_SEGMENT        # the log needs its next segment

cdef enum:
    TOUCHED_MAX = 64    # queues to tell of remembered in one run; more: STOP_DONE early, run again


cdef class HotPath(FrameSink):
    cdef object store
    cdef object gate
    cdef object arrived                 # called with a watched queue, or one of messages that wait
    cdef CommitLog log
    cdef HeaderDecoder headers
    cdef PullPath pulls
    cdef TopicTable topics
    cdef TransactionPath transactions
    cdef DelayPath delays
    cdef bint sync_flush
    cdef bint accepting
    cdef int32_t max_message_size

    # The frame at hand.
    cdef Frame frame
    cdef Header header
    cdef SendHeader send
    cdef DeliveryWish wish
    cdef Message message
    cdef Appended appended
    cdef TopicEntry *topic
    cdef void *full_queue               # borrowed: what STOP_QUEUE_ROOM is about
    cdef uint8_t *properties            # room for two property strings

    # Constants of this broker.
    cdef tuple kept                     # the bytes that slices below and in `message` point into
    cdef Slice cluster                  # the property CLUSTER
    cdef uint8_t id_host[MESSAGE_ID_MAX]
    cdef Py_ssize_t id_host_length      # message ids begin with our address, in hex
    cdef Slice constants[2]             # MSG_REGION and TRACE_ON, by serialize type

    # The chunk at hand.
    cdef Py_ssize_t at
    cdef uint8_t *out
    cdef Py_ssize_t out_capacity
    cdef Py_ssize_t out_used
    cdef int64_t appended_end
    cdef int64_t now_ms                 # what one run() stores has one time
    cdef void *touched[TOUCHED_MAX]     # borrowed ConsumeQueues; topics do not change during a run
    cdef int32_t touched_count

    cdef readonly int64_t put_messages
    cdef readonly int64_t put_bytes
    cdef readonly int64_t put_batches

    cdef Stop run(self, const uint8_t *data, Py_ssize_t available) noexcept nogil
    cdef Stop serve_frame(self) noexcept nogil
    cdef Stop serve_send(self) noexcept nogil
    cdef bint is_half(self) noexcept nogil
    cdef Stop serve_end(self) noexcept nogil
    cdef Stop touch(self, void *queue) noexcept nogil
    cdef void fill_message(self) noexcept nogil
    cdef void answer_send(self, bint batch) noexcept nogil
    cdef Py_ssize_t message_ids(self, uint8_t *at) noexcept nogil
    cdef int resume(self, Stop stop, object connection) except -1
    cdef bint room_made(self, bint in_log) except -1
    cdef int answer_cold(self, object connection) except -1
    cdef int grow_out(self, Py_ssize_t wanted) except -1
    cdef Py_ssize_t answer_room(self, bint batch) noexcept nogil
