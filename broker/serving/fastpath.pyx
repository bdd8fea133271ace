"""Sends of ordinary messages, a chunk of bytes at a time.

`FastPath` takes the frames of a connection's chunk. `run()` decodes them without the GIL and
without a Python object for each. `broker/send/fast` appends and answers ordinary sends,
`broker/transaction/fast` stores and ends half messages, `broker/delay/fast` parks delayed messages.
Every other frame is for the lane (pulls) or goes to the Python handlers, which have all rules,
including those of this module.
"""

cimport cython
from libc.stdint cimport uint8_t

from congreve.broker.accounts.account_table cimport AccountTable
from congreve.broker.delay.fast cimport DelayPath
from congreve.broker.figures.message_counts cimport TopicCounts
from congreve.broker.figures.put_times cimport RPC_END
from congreve.broker.quotas.send_quota cimport SendQuota
from congreve.broker.requests.answer_buffer cimport has_room, put_success
from congreve.broker.requests.arrivals cimport note_arrival
from congreve.broker.requests.prepared cimport clear_prepared
from congreve.broker.requests.stops cimport (
    STOP_ACK,
    STOP_POP,
    STOP_ALONE,
    STOP_PYTHON,
    STOP_DONE,
    STOP_FULL,
    STOP_NEXT_FRAME,
    STOP_NOTIFY,
    STOP_ANSWER_BUFFER,
    STOP_PULL,
    STOP_QUEUE,
    STOP_QUEUE_ROOM,
    STOP_SEGMENT,
    STOP_UNFRAMEABLE,
)
from congreve.broker.requests.topic_table cimport TopicTable
from congreve.broker.send.fast cimport SendPath
from congreve.broker.transaction.fast cimport (
    END_DONE,
    END_QUEUE,
    END_QUEUE_ROOM,
    END_SEGMENT,
    EndStatus,
    TransactionPath,
)
from congreve.engine.log.commit_log cimport Appended
from congreve.remoting.wire.answers cimport SEND_RESPONSE_MAX
from congreve.remoting.wire.fast_headers cimport (
    BATCH_ACK_MESSAGE,
    END_TRANSACTION,
    POP_MESSAGE,
    is_ack,
    is_pull,
    is_send,
)
from congreve.remoting.wire.frame cimport (
    FLAG_ONEWAY,
    FLAG_RESPONSE,
    FRAME_BAD,
    FRAME_PARTIAL,
    HEADER_OK,
    FrameStatus,
    next_frame,
)
from congreve.remoting.wire.header_decoder cimport HeaderDecoder

cdef enum:
    PIECE = 64 * 1024               # bytes of requests that are appended under one hold of the lock


@cython.final
cdef class FastPath:
    """Serves ordinary sends of a whole chunk for a lane, and stops where that has to do a step.

    (RocketMQ: SendMessageProcessor.)
    """

    def __cinit__(self):
        self.headers = HeaderDecoder()
        self.put_times = PutTimes()

    def __init__(self, *, store, TopicTable topics, TransactionPath transactions, DelayPath delays,
                 settings, SendQuota quota not None, AccountTable accounts=None):
        self.accounts = accounts
        self.headers.keeps_fields = accounts is not None
        self.log = store.log
        self.topics = topics
        self.transactions, self.delays = transactions, delays
        self.sends = SendPath(
            self.log, topics, transactions=transactions, delays=delays, settings=settings,
            quota=quota,
        )
        self.answers_wait = settings.answers_wait
        self.set_store_host(settings.store_host)

    def set_store_host(self, bytes host):
        """Set the broker's address in records and ids: 4 or 16 bytes, then the port as i32."""
        self.sends.set_store_host(host)
        self.transactions.set_store_host(host)

    cdef Stop run(self, const uint8_t *data, Py_ssize_t available) noexcept nogil:
        cdef Stop stop, appended
        while True:
            stop = self.prepare(data, available)
            if self.sends.prepared.count:
                appended = self.sends.append_prepared(&self.at)
                if appended != STOP_NEXT_FRAME:
                    self.decode_again(data, available)
                    return appended
                if stop == STOP_DONE or stop == STOP_UNFRAMEABLE:
                    return stop
            elif stop == STOP_ALONE:
                stop = self.serve_alone()
                if stop != STOP_NEXT_FRAME:
                    return stop
                self.at += self.frame.size
            else:
                return stop
            self.log.lock.let_others_in()

    cdef Stop prepare(self, const uint8_t *data, Py_ssize_t available) noexcept nogil:
        """Prepare sends up to PIECE bytes, or up to a frame that is something else."""
        cdef Stop stop
        if self.accounts is None:
            return self.prepare_piece(data, available)
        self.accounts.begin_checks()
        stop = self.prepare_piece(data, available)
        self.accounts.end_checks()
        return stop

    cdef Stop prepare_piece(self, const uint8_t *data, Py_ssize_t available) noexcept nogil:
        cdef Py_ssize_t at = self.at
        cdef FrameStatus status
        cdef Stop stop
        clear_prepared(&self.sends.prepared)
        while at - self.at < PIECE:
            status = next_frame(data + at, available - at, &self.frame)
            if status == FRAME_PARTIAL:
                return STOP_DONE
            if status == FRAME_BAD:
                return STOP_UNFRAMEABLE
            stop = self.prepare_frame()
            if stop != STOP_NEXT_FRAME:
                return stop
            at += self.frame.size
        return STOP_FULL

    cdef void decode_again(self, const uint8_t *data, Py_ssize_t available) noexcept nogil:
        """Decode the frame at `at`, after others behind it were prepared."""
        next_frame(data + self.at, available - self.at, &self.frame)
        self.headers.decode(&self.frame, &self.header, &self.send_header)

    cdef Stop prepare_frame(self) noexcept nogil:
        if self.headers.decode(&self.frame, &self.header, &self.send_header) != HEADER_OK:
            self.header.code = UNKNOWN_CODE
            return STOP_PYTHON
        if self.header.flag & FLAG_RESPONSE or not self.is_permitted():
            return STOP_PYTHON
        if is_send(self.header.code):
            return self.sends.prepare(&self.frame, &self.header, &self.send_header)
        if is_pull(self.header.code):
            return STOP_PULL
        if self.header.code == POP_MESSAGE:
            return STOP_POP
        if is_ack(self.header.code) or self.header.code == BATCH_ACK_MESSAGE:
            return STOP_ACK
        return STOP_ALONE if self.header.code == END_TRANSACTION else STOP_PYTHON

    cdef bint is_permitted(self) noexcept nogil:
        return self.accounts is None or self.of_calls or self.accounts.may_pass(
            &self.header, &self.send_header, self.frame.body, self.headers.signed
        )

    cdef Stop serve_alone(self) noexcept nogil:
        cdef Stop stop
        self.sends.take_lock()
        if self.header.code == END_TRANSACTION:
            stop = self.serve_end()
        else:
            stop = self.sends.append_parked()
        self.log.lock.drop()
        if self.header.code == END_TRANSACTION and (
            stop == STOP_NEXT_FRAME or stop == STOP_NOTIFY
        ):
            self.sends.quota.charge_end(&self.header, &self.sends.born_host)
        return stop

    cdef Stop serve_end(self) noexcept nogil:
        cdef Appended appended
        cdef EndStatus status
        cdef void *queue
        if not (self.sends.accepting and self.transactions.ends_transactions):
            return STOP_PYTHON
        if self.log.backend.failure:
            return STOP_PYTHON
        if not has_room(&self.sends.answers, SEND_RESPONSE_MAX):
            self.sends.wanted_bytes = SEND_RESPONSE_MAX
            return STOP_ANSWER_BUFFER
        status = self.transactions.end(&self.header, &appended)
        queue = self.transactions.queue
        if status == END_SEGMENT:
            return STOP_SEGMENT
        if status == END_QUEUE:
            self.sends.topic = self.transactions.topic
            self.sends.queue_id = self.transactions.queue_id
            return STOP_QUEUE
        if status == END_QUEUE_ROOM:
            self.sends.full_queue, self.sends.full_topic = queue, self.transactions.target()
            self.sends.full_queue_id = self.transactions.queue_id
            return STOP_QUEUE_ROOM
        if status != END_DONE:
            return STOP_PYTHON
        self.sends.appended_end = appended.end
        if queue == NULL:
            (<TopicCounts> self.transactions.topic.counts).add_rollback()
        else:
            (<TopicCounts> self.transactions.topic.counts).add_commit(
                self.transactions.age_ms() // 1000
            )
        if not self.header.flag & FLAG_ONEWAY:
            self.sends.count_request(<int> RPC_END)
            put_success(&self.sends.answers, self.frame.serialize_type, self.header.opaque)
        if queue != NULL and note_arrival(&self.sends.arrivals, queue, False):
            return STOP_NOTIFY
        return STOP_NEXT_FRAME
