from libc.stdint cimport int32_t, int64_t, uint8_t

from congreve.base.slices cimport Slice
from congreve.broker.delay.fast cimport DelayPath
from congreve.broker.figures.message_counts cimport MessageType
from congreve.broker.figures.put_times cimport Answered, clear_answered
from congreve.broker.quotas.send_quota cimport SendQuota
from congreve.broker.requests.answer_buffer cimport AnswerBuffer
from congreve.broker.requests.arrivals cimport Arrivals
from congreve.broker.requests.prepared cimport PreparedSend, PreparedSends
from congreve.broker.requests.stops cimport Stop
from congreve.broker.requests.topic_table cimport TopicEntry, TopicTable
from congreve.broker.transaction.fast cimport TransactionPath
from congreve.engine.log.commit_log cimport CommitLog
from congreve.records.host cimport Host
from congreve.remoting.wire.fast_headers cimport SendHeader
from congreve.remoting.wire.frame cimport Frame, Header


cdef class SendPath:
    cdef CommitLog log
    cdef TopicTable topics
    cdef TransactionPath transactions
    cdef DelayPath delays
    cdef SendQuota quota
    cdef bint answers_wait
    cdef int32_t max_message_size
    cdef bint reserves_properties

    # Constants of this broker.
    cdef tuple constant_bytes           # the bytes that slices below point into
    cdef Slice cluster                  # the property CLUSTER
    cdef Host store_host

    # The current chunk.
    cdef bint accepting                 # whether the store takes messages
    cdef Host born_host
    cdef PreparedSends prepared
    cdef AnswerBuffer answers
    cdef Arrivals arrivals
    cdef Py_ssize_t wanted_bytes        # bytes of answers, after STOP_ANSWER_BUFFER
    cdef int32_t turn                   # of queues, where senders leave the choice to the broker
    cdef int64_t now_ms                 # all records of one hold of the lock have this time
    cdef int64_t appended_end
    cdef Answered answered              # what the answers are about

    # After a stop.
    cdef TopicEntry *topic
    cdef int32_t queue_id               # of STOP_QUEUE
    cdef void *full_queue               # borrowed: the queue of STOP_QUEUE_ROOM, for a message
    cdef Slice full_topic               # to this topic
    cdef int32_t full_queue_id          # and queue

    cdef readonly int64_t put_messages
    """Messages appended here, members of batches included."""
    cdef readonly int64_t put_bytes
    """Bytes of the records appended here."""
    cdef readonly int64_t put_batches
    """Batches appended here."""
    cdef readonly int64_t holds
    """How often the append lock was held here, each time for some 64 KiB of requests at most."""

    cdef inline void begin_chunk(self, int64_t now_ns) noexcept nogil:
        self.appended_end = 0
        clear_answered(&self.answered)
        self.answers.used = self.arrivals.count = 0
        self.quota.begin_chunk(now_ns)

    cdef inline void count_request(self, int rpc) noexcept nogil:
        self.answered.requests[rpc] += 1

    # Cancels the charge of a prepared send that another thread or a handler will serve.
    cdef inline void cancel_charge(self, const Frame *frame, const Header *header,
                                   const SendHeader *fields) noexcept nogil:
        self.quota.cancel_charge(header, fields, frame.body, &self.born_host)

    cdef int set_store_host(self, bytes host) except -1
    # Makes room for `wanted_bytes` of answers.
    cdef int make_room(self) except -1

    # Prepares a send for append_prepared(), or, with STOP_ALONE, for append_parked().
    cdef Stop prepare(self, const Frame *frame, const Header *header,
                      const SendHeader *fields) noexcept nogil
    # Appends the prepared sends under the append lock, and adds the bytes of their frames to `at`.
    # Stops at one that cannot be appended yet, and after one that fills the list of arrivals:
    # then `at` is at that frame.
    cdef Stop append_prepared(self, Py_ssize_t *at) noexcept nogil
    # The rest is called under the append lock.
    cdef Stop append_parked(self) noexcept nogil
    cdef void take_lock(self) noexcept nogil

    cdef bint is_ordinary(self, const Frame *frame, const SendHeader *fields,
                          PreparedSend *send) noexcept nogil
    cdef bint is_half(self, const SendHeader *fields) noexcept nogil
    cdef Stop append_all(self, Py_ssize_t *at) noexcept nogil
    cdef void *queue_of(self, PreparedSend *send, Stop *stop) noexcept nogil
    cdef void choose_by_priority(self, PreparedSend *send) noexcept nogil
    cdef void choose_by_lite(self, PreparedSend *send) noexcept nogil
    cdef bint may_choose(self, const PreparedSend *send) noexcept nogil
    cdef Stop append(self, PreparedSend *send, void *queue) noexcept nogil
    cdef void answer(self, const PreparedSend *send) noexcept nogil
    cdef void count(self, const PreparedSend *send) noexcept nogil
    cdef MessageType type_of(self, const PreparedSend *send) noexcept nogil
