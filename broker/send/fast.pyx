"""Sends in compiled code: a send is prepared, appended under the append lock, then answered.

The lock is held for the appends alone. `broker/send/processor.py` has all rules; this module
serves the sends that are ordinary.
"""

cimport cython
from cpython.mem cimport PyMem_Free
from libc.stdint cimport int32_t, uint8_t

from congreve.base.slices cimport slice_of
from congreve.broker.delay.fast cimport PARK_PYTHON, PARK_QUEUE, ParkStatus
from congreve.broker.figures.message_counts cimport (
    DELAY_MESSAGE,
    FIFO_MESSAGE,
    NORMAL_MESSAGE,
    TRANSACTION_MESSAGE,
    MessageType,
    TopicCounts,
)
from congreve.broker.figures.put_times cimport RPC_BATCH, RPC_SEND, RPC_SEND_V2
from congreve.broker.requests.answer_buffer cimport (
    allocate_answers,
    grow_answers,
    has_room,
    put_busy,
    put_send_answer,
    send_answer_size_max,
    set_id_host,
)
from congreve.broker.requests.arrivals cimport note_arrival
from congreve.broker.requests.lite_bucket cimport lite_bucket
from congreve.broker.requests.prepared cimport (
    TOPIC_MAX,
    allocate_prepared,
    is_full,
    put_topic,
)
from congreve.broker.requests.properties cimport (
    SEND_BATCH,
    SEND_HALF,
    SEND_SINGLE,
    stored_properties,
)
from congreve.broker.requests.send_message cimport fill_message
from congreve.broker.requests.stops cimport (
    STOP_ALONE,
    STOP_PYTHON,
    STOP_FULL,
    STOP_NEXT_FRAME,
    STOP_NOTIFY,
    STOP_ANSWER_BUFFER,
    STOP_PARK_QUEUE,
    STOP_QUEUE,
    STOP_QUEUE_ROOM,
    STOP_SEGMENT,
)
from congreve.engine.log.commit_log cimport (
    APPEND_NEXT_SEGMENT,
    APPEND_OK,
    APPEND_QUEUE_ROOM,
    Appended,
    AppendStatus,
)
from congreve.engine.queue.consume_queue cimport ConsumeQueue
from congreve.records.batches.batch_body cimport is_ordinary_batch
from congreve.records.layout cimport SYS_TRANSACTION_MASK, SYS_TRANSACTION_PREPARED
from congreve.records.packed_host cimport unpack_host
from congreve.remoting.wire.fast_headers cimport SEND_MESSAGE
from congreve.remoting.wire.frame cimport FLAG_ONEWAY


@cython.final
cdef class SendPath:
    """Prepares, appends and answers ordinary sends (RocketMQ: SendMessageProcessor).

    One thread uses it, without the GIL. A batch and a parked message are each prepared by
    themselves.
    """

    def __cinit__(self):
        allocate_answers(&self.answers)
        allocate_prepared(&self.prepared)

    def __dealloc__(self):
        PyMem_Free(self.answers.data)
        PyMem_Free(self.prepared.text)

    def __init__(self, CommitLog log not None, TopicTable topics not None, *,
                 TransactionPath transactions not None, DelayPath delays not None, settings,
                 SendQuota quota not None):
        self.log = log
        self.topics = topics
        self.transactions, self.delays, self.quota = transactions, delays, quota
        self.answers_wait = settings.answers_wait
        self.max_message_size = settings.max_message_size
        self.reserves_properties = settings.reserves_properties
        self.constant_bytes = (settings.cluster, *settings.send_constants)
        self.cluster = slice_of(self.constant_bytes[0])
        self.answers.constants[0] = slice_of(self.constant_bytes[1])
        self.answers.constants[1] = slice_of(self.constant_bytes[2])
        self.set_store_host(settings.store_host)

    cdef int set_store_host(self, bytes host) except -1:
        unpack_host(&self.store_host, host)
        set_id_host(&self.answers, &self.store_host)
        return 0

    # --- without the append lock

    cdef int make_room(self) except -1:
        return grow_answers(&self.answers, self.wanted_bytes)

    cdef Stop prepare(self, const Frame *frame, const Header *header,
                      const SendHeader *fields) noexcept nogil:
        cdef PreparedSend *send = &self.prepared.sends[self.prepared.count]
        cdef Py_ssize_t properties
        if self.prepared.count and (
            is_full(&self.prepared) or fields.batch or self.prepared.sends[0].kind == SEND_BATCH
        ):
            return STOP_FULL
        if not self.is_ordinary(frame, fields, send):
            return STOP_PYTHON
        send.answer_size_max = send_answer_size_max(&self.answers, frame.body.length, fields.batch)
        if send.wish.time.data != NULL:
            send.answer_size_max += self.delays.handle_size_max
        self.wanted_bytes = self.prepared.answer_size_max + send.answer_size_max
        if not has_room(&self.answers, self.wanted_bytes):
            return STOP_ANSWER_BUFFER
        fill_message(&send.message, fields, frame.body, self.cluster,
                     self.prepared.text + self.prepared.text_used)
        properties = send.message.properties_length
        if fields.batch:
            properties += send.message.properties_more_length
        put_topic(&self.prepared, send, fields.topic, properties)
        send.message.topic = send.topic.bytes
        send.message.born_host = self.born_host
        send.message.store_host = self.store_host
        send.body = frame.body
        send.queue_id = fields.queue_id
        send.any_queue = fields.queue_id < 0
        send.frame_size = frame.size
        send.code = header.code
        send.serialize_type = frame.serialize_type
        send.opaque = header.opaque
        send.oneway = header.flag & FLAG_ONEWAY != 0
        send.refused = self.quota.refuses(header, fields, frame.body, &self.born_host)
        if not send.refused and (
            send.kind == SEND_HALF or send.wish.level.data != NULL or send.wish.time.data != NULL
        ):
            return STOP_ALONE
        self.prepared.count += 1
        self.prepared.answer_size_max += send.answer_size_max
        return STOP_NEXT_FRAME

    cdef bint is_ordinary(self, const Frame *frame, const SendHeader *fields,
                          PreparedSend *send) noexcept nogil:
        """Whether no rule of the Python handlers applies, unless the topic has one.

        Sets `kind`, `wish` and the properties of the message.
        """
        if not (fields.complete and self.accepting) or self.log.backend.failure:
            return False
        if frame.body.length > self.max_message_size or fields.topic.length > TOPIC_MAX:
            return False
        send.kind = SEND_BATCH if fields.batch else SEND_SINGLE
        if fields.sys_flag & SYS_TRANSACTION_MASK:
            send.kind = SEND_HALF
            if not self.is_half(fields):
                return False
        send.message.properties = self.prepared.text + self.prepared.text_used
        if not stored_properties(
            &fields.properties, send.kind, &fields.producer_group, self.answers_wait,
            self.reserves_properties, self.prepared.text + self.prepared.text_used,
            &send.message.properties_length, &send.message.tags_code, &send.wish,
        ):
            return False
        return not fields.batch or is_ordinary_batch(
            frame.body.data, frame.body.length, self.reserves_properties
        )

    cdef bint is_half(self, const SendHeader *fields) noexcept nogil:
        """Whether a send with a transaction type is an ordinary half message."""
        return (
            fields.sys_flag & SYS_TRANSACTION_MASK == SYS_TRANSACTION_PREPARED
            and not fields.batch and self.transactions.takes_half_messages
            and self.transactions.half_queue is not None
        )

    cdef Stop append_prepared(self, Py_ssize_t *at) noexcept nogil:
        cdef Stop stop
        cdef int32_t i
        self.take_lock()
        stop = self.append_all(at)
        self.log.lock.drop()
        for i in range(self.prepared.appended):
            if self.prepared.sends[i].kind != SEND_BATCH or self.prepared.sends[i].refused:
                self.answer(&self.prepared.sends[i])
        return stop

    # --- under the append lock

    cdef void take_lock(self) noexcept nogil:
        self.log.lock.take()
        self.holds += 1
        self.now_ms = self.log.clock.now_ms()

    cdef Stop append_all(self, Py_ssize_t *at) noexcept nogil:
        cdef Stop stop = STOP_NEXT_FRAME
        cdef PreparedSend *send
        cdef void *queue
        while self.prepared.appended < self.prepared.count:
            send = &self.prepared.sends[self.prepared.appended]
            if send.refused:
                self.prepared.appended += 1
                at[0] += send.frame_size
                continue
            queue = self.queue_of(send, &stop)
            if queue == NULL:
                return stop
            stop = self.append(send, queue)
            if stop != STOP_NEXT_FRAME:
                return stop
            self.prepared.appended += 1
            if send.kind == SEND_BATCH:
                self.answer(send)       # the log has the offsets of its messages
            if note_arrival(&self.arrivals, queue, False):
                return STOP_NOTIFY
            at[0] += send.frame_size
        return STOP_NEXT_FRAME

    cdef Stop append_parked(self) noexcept nogil:
        cdef PreparedSend *send = &self.prepared.sends[0]
        cdef Stop stop = STOP_NEXT_FRAME
        cdef ParkStatus status
        cdef bint delayed = send.kind != SEND_HALF
        cdef void *queue = self.queue_of(send, &stop)
        if queue == NULL:
            return stop
        if delayed:
            status = self.delays.park(&send.message, &send.wish)
            if status == PARK_PYTHON:
                return STOP_PYTHON
            if status == PARK_QUEUE:
                return STOP_PARK_QUEUE
            queue = self.delays.queue
        else:
            self.transactions.make_half(&send.message)
            queue = <void *> self.transactions.half_queue
        stop = self.append(send, queue)
        if stop != STOP_NEXT_FRAME:
            return stop
        self.answer(send)
        return STOP_NOTIFY if note_arrival(&self.arrivals, queue, delayed) else STOP_NEXT_FRAME

    cdef void *queue_of(self, PreparedSend *send, Stop *stop) noexcept nogil:
        """The queue of the send; NULL with the reason in `stop`."""
        self.topic = self.topics.find_key(&send.topic)
        if send.wish.priority >= 0 and self.topic != NULL:
            self.choose_by_priority(send)
        elif send.wish.lite.data != NULL and self.topic != NULL:
            self.choose_by_lite(send)
        elif send.any_queue and self.topic != NULL and self.may_choose(send):
            send.queue_id = send.message.queue_id = self.turn % self.topic.write_queues
        self.queue_id = send.queue_id
        if self.topic == NULL or not 0 <= send.queue_id < self.topic.queue_count:
            stop[0] = STOP_PYTHON
            return NULL
        if self.topic.queues[send.queue_id] == NULL:
            stop[0] = STOP_QUEUE
        return self.topic.queues[send.queue_id]

    cdef void choose_by_priority(self, PreparedSend *send) noexcept nogil:
        """The queue of a message with a priority, if its sender could have chosen one itself."""
        if 0 <= send.queue_id < self.topic.queue_count and self.topic.write_queues > 0:
            send.queue_id = min(send.wish.priority, self.topic.write_queues - 1)
            send.message.queue_id = send.queue_id

    cdef void choose_by_lite(self, PreparedSend *send) noexcept nogil:
        """The queue of a message of a lite topic, or -1 if Python has to decide."""
        if self.topics.lite_full:
            send.queue_id = -1
        elif send.any_queue and self.topic.takes_lite and self.topic.write_queues > 0 and (
            self.type_of(send) == NORMAL_MESSAGE
        ):
            send.queue_id = lite_bucket(send.wish.lite, self.topic.write_queues)
            send.message.queue_id = send.queue_id

    cdef bint may_choose(self, const PreparedSend *send) noexcept nogil:
        return (
            self.topic.takes_normal and self.topic.write_queues > 0
            and self.type_of(send) == NORMAL_MESSAGE
        )

    cdef Stop append(self, PreparedSend *send, void *queue) noexcept nogil:
        """Append the message, or the batch, to the log and the queue, and count it."""
        cdef AppendStatus status
        if send.kind == SEND_BATCH:
            status = self.log.append_batch(
                &send.message, send.body.data, send.body.length, <ConsumeQueue> queue,
                self.now_ms, &send.appended,
            )
        else:
            status = self.log.append(
                &send.message, <ConsumeQueue> queue, self.now_ms, &send.appended
            )
        if status == APPEND_NEXT_SEGMENT:
            return STOP_SEGMENT
        if status == APPEND_QUEUE_ROOM:
            self.full_queue = queue
            self.full_topic.data, self.full_topic.length = send.topic.bytes, send.topic.length
            self.full_queue_id = send.queue_id
            return STOP_QUEUE_ROOM
        if status != APPEND_OK:
            return STOP_PYTHON
        send.counts = self.topic.counts
        if send.any_queue:
            self.turn = (self.turn + 1) & 0x7FFFFFFF
        self.appended_end = send.appended.end
        self.put_messages += send.appended.count
        self.put_batches += send.kind == SEND_BATCH
        self.put_bytes += send.appended.end - send.appended.physical_offset
        return STOP_NEXT_FRAME

    cdef void answer(self, const PreparedSend *send) noexcept nogil:
        """Encode the answer; for a batch, which reads the log, under the append lock."""
        cdef const uint8_t *log = NULL
        cdef Slice recall_handle
        recall_handle.data, recall_handle.length = NULL, 0
        if not send.refused:
            self.count(send)
        if send.oneway:
            return
        if send.refused:
            put_busy(&self.answers, send.serialize_type, send.opaque)
            return
        if send.kind == SEND_BATCH:
            log = self.log.active.data - self.log.active.base_offset
        if send.wish.time.data != NULL:
            recall_handle = self.delays.recall_handle
        put_send_answer(
            &self.answers, send.answer_size_max, send.serialize_type, send.opaque, send.queue_id,
            &send.appended, log, recall_handle,
        )

    cdef void count(self, const PreparedSend *send) noexcept nogil:
        """Count the messages of an appended send by type and size, and its request."""
        cdef const Appended *appended = &send.appended
        (<TopicCounts> send.counts).add_sent(
            self.type_of(send), appended.count, appended.end - appended.physical_offset
        )
        if send.wish.time.data != NULL:
            (<TopicCounts> send.counts).add_delay(
                max(self.delays.due_ms - send.message.born_timestamp, 0) // 1000
            )
        self.answered.messages += appended.count
        if send.oneway:
            return
        if send.kind == SEND_BATCH:
            self.count_request(<int> RPC_BATCH)
        elif send.code == SEND_MESSAGE:
            self.count_request(<int> RPC_SEND)
        else:
            self.count_request(<int> RPC_SEND_V2)

    cdef MessageType type_of(self, const PreparedSend *send) noexcept nogil:
        """RocketMQ 5: BrokerMetricsManager.getMessageType."""
        if send.kind == SEND_HALF:
            return TRANSACTION_MESSAGE
        if send.wish.in_order:
            return FIFO_MESSAGE
        if send.wish.level.data != NULL or send.wish.time.data != NULL:
            return DELAY_MESSAGE
        return NORMAL_MESSAGE
