from libc.stdint cimport int32_t, int64_t, uint8_t

from congreve.broker.topictable cimport TopicEntry, TopicTable
from congreve.broker.transactionwindow cimport HalfWindow
from congreve.engine.commitlog cimport Appended, CommitLog
from congreve.engine.consumequeue cimport ConsumeQueue
from congreve.records.record cimport Host, Message, RecordView
from congreve.remoting.frame cimport Header
from congreve.remoting.slices cimport Slice

cdef struct EndHeader:          # protocol.md 8
    Slice producer_group
    int64_t half_offset
    int64_t physical_offset
    int32_t how                 # SYS_TRANSACTION_COMMIT or _ROLLBACK

# What became of an END_TRANSACTION.
cdef enum EndStatus:
    END_DONE
    END_COLD                    # nothing was done: it is for the Python handler
    END_SEGMENT                 # nothing was done: the log needs its next segment
    END_QUEUE                   # nothing was done: `topic` has no queue `queue_id` open
    END_QUEUE_ROOM              # nothing was done: `queue` needs room


cdef class TransactionPath:
    cdef public bint takes_half_messages
    cdef public bint ends_transactions
    cdef object store
    cdef CommitLog log
    cdef TopicTable topics
    cdef HalfWindow window
    cdef ConsumeQueue half_queue    # None until somebody stored a half message
    cdef ConsumeQueue op_queue

    cdef bytes cluster
    cdef uint8_t *more          # what a half message has more than it was sent with
    cdef uint8_t *room          # properties of a committed message
    cdef Message committed
    cdef Message op
    cdef uint8_t op_body[20]

    # Of the last end().
    cdef TopicEntry *topic
    cdef int32_t queue_id
    cdef void *queue            # borrowed: where the message went, NULL for a rollback

    # Turns a message that is ready to be appended into its half message, for `half_queue`.
    cdef void make_half(self, Message *message) noexcept nogil
    # The message into its real topic (commit) and the op record behind it, or nothing at all.
    cdef EndStatus end(self, const Header *header, Appended *appended) noexcept nogil

    cdef bint find(self, const EndHeader *ask, RecordView *half) noexcept nogil
    cdef EndStatus prepare_commit(self, const RecordView *half) noexcept nogil
    cdef void prepare_op(self, int64_t half_offset) noexcept nogil
