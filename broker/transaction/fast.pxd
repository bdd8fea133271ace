from libc.stdint cimport int32_t, int64_t, uint8_t

from congreve.base.slices cimport Slice
from congreve.broker.requests.topic_table cimport TopicEntry, TopicTable
from congreve.broker.transaction.window cimport HalfWindow
from congreve.engine.log.commit_log cimport Appended, CommitLog
from congreve.engine.queue.consume_queue cimport ConsumeQueue
from congreve.records.record cimport Message, RecordView
from congreve.remoting.wire.frame cimport Header

cdef struct EndHeader:          # docs/formats/frame.md
    Slice producer_group
    int64_t half_offset
    int64_t physical_offset
    int32_t how                 # SYS_TRANSACTION_COMMIT or _ROLLBACK

# The result of an END_TRANSACTION.
cdef enum EndStatus:
    END_DONE
    END_PYTHON                    # nothing was done: the Python handler serves it
    END_SEGMENT                 # nothing was done: the log needs its next segment
    END_QUEUE                   # nothing was done: `topic` has no queue `queue_id` open
    END_QUEUE_ROOM              # nothing was done: `queue` needs room


cdef class TransactionPath:
    cdef public bint takes_half_messages
    """Whether compiled code stores half messages; otherwise the Python handler gets them."""
    cdef public bint ends_transactions
    """Whether compiled code ends transactions; otherwise the Python handler does."""
    cdef object store
    cdef CommitLog log
    cdef TopicTable topics
    cdef HalfWindow window
    cdef ConsumeQueue half_queue    # None until a half message was stored
    cdef ConsumeQueue op_queue

    cdef bytes cluster
    cdef uint8_t *added_properties  # the properties that a half message gets in addition
    cdef uint8_t *committed_properties  # all properties of a committed message
    cdef Message committed
    cdef Message op
    cdef bytes op_properties
    cdef uint8_t op_body[20]
    cdef Slice real_topic       # of the half message that find() read

    # Of the last end().
    cdef TopicEntry *topic      # of the message
    cdef int32_t queue_id
    cdef void *queue            # borrowed: the queue of the message, NULL for a rollback

    # The real topic of the message that the last end() committed.
    cdef inline Slice target(self) noexcept nogil:
        cdef Slice found
        found.data, found.length = self.committed.topic, self.committed.topic_length
        return found

    # How long that message had been a half message.
    cdef inline int64_t age_ms(self) noexcept nogil:
        return max(self.op.born_timestamp - self.committed.born_timestamp, 0)

    # Turns a message that is ready for the append into its half message, for `half_queue`.
    cdef void make_half(self, Message *message) noexcept nogil
    # Appends the message to its real topic (for a commit) and the op record after it, or nothing.
    cdef EndStatus end(self, const Header *header, Appended *appended) noexcept nogil

    cdef bint find(self, const EndHeader *ask, RecordView *half) noexcept nogil
    cdef EndStatus prepare_commit(self, const RecordView *half) noexcept nogil
    cdef void prepare_op(self, int64_t half_offset) noexcept nogil
